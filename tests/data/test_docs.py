"""The schemas that the documents show are schemas."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from momentree.data import schema_file

DOCS = Path(__file__).parents[2] / "docs"
REST = '\n[columns.rest_of_it]\nkind = "boolean"\n'


@pytest.mark.parametrize("name", ["tables.md", "images.md", "text.md"])
def test_schemas_in_the_documents_can_be_read(name: str) -> None:
    blocks = re.findall(r"^```toml\n(.*?)^```", (DOCS / name).read_text(encoding="utf-8"), re.M | re.S)
    assert blocks
    for block in blocks:
        whole = "version" in block
        schema = schema_file.parse(block if whole else 'version = 1\ntarget = "rest_of_it"\n' + block + REST)
        assert schema_file.parse(schema.to_toml()) == schema
