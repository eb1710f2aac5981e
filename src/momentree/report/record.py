"""`record.json`: the run, in public facts. The report and the certificate are pure functions of it.

Keys (version 1): `plan` (the facts for `Plan(**facts)`), `run` (`certificate.RunFacts`), `figures` (`Plan.to_dict()`),
`certificate` (as in `certificate.json`), `model` (kind, parameters),
`data` (rows, columns, what the schema declares; never a value), `steps` (columns of equal length: `step`,
`released_norm`, `noise_norm`, both of released quantities), `epsilon` (pairs step, ε of the prefix had the stop been
fixed beforehand), `held_out` (a list of `{step, loss, …}` on declared rows), `result` (final figures), `environment`
(versions, device), `started`, `finished`. `checksum` covers all of it: against accidents, not against forgers.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from momentree.errors import CheckError, InputError
from momentree.files import read_json, write_json

VERSION = 1
NAME = "record.json"
KEYS = (
    "plan",
    "run",
    "figures",
    "certificate",
    "model",
    "data",
    "steps",
    "epsilon",
    "held_out",
    "result",
    "environment",
    "started",
    "finished",
)


def checksum(record: dict[str, Any]) -> str:
    """SHA-256 of the record's canonical JSON without its own checksum."""
    body = {name: value for name, value in record.items() if name != "checksum"}
    return hashlib.sha256(json.dumps(body, sort_keys=True, ensure_ascii=True).encode()).hexdigest()


def write_record(folder: Path, record: dict[str, Any]) -> None:
    """Write `record.json` aside, then rename. Unknown keys are a defect of the caller."""
    unknown = set(record) - {*KEYS, "version", "checksum"}
    if unknown:
        raise ValueError(f"unknown record keys {sorted(unknown)}")
    body = json.loads(json.dumps({"version": VERSION, **record}, allow_nan=False))
    write_json(folder / NAME, body | {"checksum": checksum(body)})


def read_record(folder: Path) -> dict[str, Any]:
    """The record of a run, checked: version, keys, types of the parts, checksum. One line says what is off."""
    path = Path(folder) / NAME
    record = read_json(path, "record")
    if not isinstance(record, dict):
        raise InputError(f"record {path} is not a JSON object: it was changed since it was written")
    if record.get("version") != VERSION:
        raise InputError(f"record {path} has another version than {VERSION}: use the release that wrote it")
    for name in ("plan", "run"):
        if not isinstance(record.get(name), dict):
            raise InputError(f"record {path} lacks its {name!r} part: it was changed since it was written")
    unknown = set(record) - {*KEYS, "version", "checksum"}
    if unknown:
        raise InputError(f"record {path} has a part that this release does not know: use the release that wrote it")
    if record.get("checksum") != checksum(record):
        raise CheckError(f"record {path} does not match its own checksum: it was changed since it was written")
    return record
