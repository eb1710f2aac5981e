"""Writing files so that nothing is ever half-written: write aside, flush to disk, then rename."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path
from typing import Any

from momentree.errors import InputError


def write_bytes(path: Path, content: bytes, *, mode: int = 0o644) -> None:
    """Replace `path` by `content` in one step; what was there stays until all of it is on disk."""
    path = Path(path)
    aside = None
    try:
        handle, aside = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        with os.fdopen(handle, "wb") as file:
            os.fchmod(file.fileno(), mode)
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(aside, path)
    except OSError as error:
        if aside is not None:
            Path(aside).unlink(missing_ok=True)
        why = error.strerror or type(error).__name__
        raise InputError(f"cannot write {path} ({why}): give a place that exists, is writable and has room") from None


def write_text(path: Path, text: str, *, mode: int = 0o644) -> None:
    write_bytes(path, text.encode("utf-8"), mode=mode)


def write_json(path: Path, value: Any, *, mode: int = 0o644) -> None:
    write_text(path, json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False) + "\n", mode=mode)


def read_json(path: Path, what: str) -> Any:
    """JSON from outside, or one line that does not quote it."""
    try:
        return json.loads(Path(path).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InputError(f"{what} {path} does not exist: give the folder of a run that wrote one") from None
    except (OSError, UnicodeDecodeError, ValueError, RecursionError):
        raise InputError(f"{what} {path} is not readable JSON: it was changed or cut since it was written") from None
