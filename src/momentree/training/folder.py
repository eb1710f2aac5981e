"""A run's folder: who may write into it, where its files are, and how its secrets leave it.

Secret until the run is sealed: `noise.key`. Beside it, and removed with it: `checkpoints/`, `waiting/` (vectors of
earlier steps) and `releases.log`; these three hold released numbers only, but together with the key they would give
away raw gradients, so they go in one act.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
from pathlib import Path
from typing import Any

from momentree.errors import InputError
from momentree.files import read_json

KEY, LOGS = "noise.key", "releases*.log"
CHECKPOINTS, WAITING = "checkpoints", "waiting"


class Folder:
    """One run's folder, locked while it is open. A second process is told so and touches nothing."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock: int | None = None
        self._made = False

    @staticmethod
    def create(path: str | os.PathLike[str]) -> Folder:
        folder = Folder(Path(path))
        folder._made = not folder.path.exists()
        try:
            folder.path.mkdir(parents=True, exist_ok=True)
            if any(folder.path.iterdir()):
                raise InputError(
                    f"folder {folder.path} is not empty: give a new one, or go on with the run in it by resume"
                )
        except (FileExistsError, NotADirectoryError):
            raise InputError(f"{folder.path} is a file: give a new folder") from None
        except OSError as error:
            raise InputError(f"folder {folder.path} cannot be made ({error.strerror}): give another place") from None
        folder._take()
        (folder.path / CHECKPOINTS).mkdir(mode=0o700)
        return folder

    @staticmethod
    def open(path: str | os.PathLike[str]) -> Folder:
        folder = Folder(Path(path))
        if not folder.path.is_dir():
            raise InputError(f"folder {folder.path} does not exist: give the folder of a run")
        folder._take()
        return folder

    def _take(self) -> None:
        handle = os.open(self.path, os.O_RDONLY)  # the folder itself is the lock: no file that could be left behind
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(handle)
            raise InputError(
                f"folder {self.path} is in use by another process: wait for it, or stop it, before going on"
            ) from None
        self._lock = handle

    def close(self) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def abandon(self) -> None:
        """A run that could not be started leaves nothing behind."""
        for entry in self.path.iterdir():
            shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
        if self._made:
            self.path.rmdir()
        self.close()

    @property
    def checkpoints(self) -> Path:
        return self.path / CHECKPOINTS

    @property
    def waiting(self) -> Path:
        return self.path / WAITING

    def log(self, attempt: int) -> Path:
        """The releases that one attempt has shown: a later one does not have to repeat them."""
        return self.path / ("releases.log" if attempt == 1 else f"releases-{attempt}.log")

    def write_secrets(self, secrets: dict[str, str]) -> None:
        """The key and what recognises the data under it: a new file, readable by its owner only, durable."""
        handle = os.open(self.path / KEY, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            place = str(os.fstat(file.fileno()).st_ino)
            file.write(json.dumps({**secrets, "place": place}, indent=2) + "\n")
            file.flush()
            os.fsync(file.fileno())
        durable(self.path)

    def read_secrets(self, *, moved: bool = False) -> dict[str, Any]:
        """What `write_secrets` wrote. The file's number in the file system tells a copy from the original."""
        if not (self.path / KEY).exists():
            raise InputError(
                f"run {self.path} is sealed, its noise key is destroyed: it can be used but not resumed; start another"
            )
        secrets = read_json(self.path / KEY, "noise key")
        if not isinstance(secrets, dict) or not all(isinstance(v, str) for v in secrets.values()):
            raise InputError(f"noise key of {self.path} was changed since it was written: restore it or start another")
        if secrets.get("place") != str((self.path / KEY).stat().st_ino) and not moved:
            raise InputError(
                f"{self.path} is a copy of the folder the run was started in: if the original can still go on, the "
                "same noise would be used twice; resume the original, or say --moved (load(moved=True)) if this copy "
                "is the only one"
            )
        return secrets

    def seal(self) -> None:
        """Destroy the key, then everything that is of no use without it."""
        key = self.path / KEY
        if key.exists():
            size = key.stat().st_size
            with open(key, "r+b") as file:
                file.write(bytes(size))
                file.flush()
                os.fsync(file.fileno())
            key.unlink()
            durable(self.path)
        for name in (CHECKPOINTS, WAITING):
            shutil.rmtree(self.path / name, ignore_errors=True)
        for log in self.path.glob(LOGS):
            log.unlink()


def durable(folder: Path) -> None:
    """Names in a folder survive a power cut only once the folder itself is flushed."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def seal(path: str | os.PathLike[str], *, unfinished: bool = False) -> None:
    """`momentree seal RUN`: afterwards the folder can be handed over as it is, and cannot be resumed.

    A run that can still go on is left alone unless `unfinished` says that it is given up: what it has spent is spent,
    and without the key there will be neither model nor certificate.
    """
    folder = Folder.open(path)
    try:
        record = read_json(folder.path / "record.json", "record")
        ended = isinstance(record, dict) and record.get("finished") is not None
        if not ended and not unfinished and (folder.path / KEY).exists():
            raise InputError(
                f"run {folder.path} has not finished: without its key it could not go on; resume it, or give it up by "
                "--unfinished (seal(unfinished=True))"
            )
        folder.seal()
    finally:
        folder.close()
