"""Where compact rows are kept: in memory while they are few, else in nameless files on disk.

A row has to be reachable in any order, so a file larger than memory needs a private copy. It is written to files that
have no name from the moment they exist (0600, `O_TMPFILE` where the system has it), in a directory that is said: no
other program can open them, and they are gone when the process is, however it ends.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from momentree.errors import InputError

Array = NDArray[Any]
MEMORY = 256 << 20


class Store:
    """Blocks of rows appended in order, then read as one array a field."""

    def __init__(self, *, memory: int = MEMORY, scratch: str | Path | None = None) -> None:
        self.directory = Path(scratch) if scratch is not None else Path(tempfile.gettempdir())
        self.memory = memory
        self.on_disk = False
        self._blocks: dict[str, list[Array]] = {}
        self._files: dict[str, IO[bytes]] = {}
        self._like: dict[str, Array] = {}
        self._bytes = 0

    def append(self, fields: Mapping[str, Array]) -> None:
        """The next rows."""
        for name, array in fields.items():
            self._like.setdefault(name, np.empty((0, *array.shape[1:]), array.dtype))
            self._bytes += array.nbytes
            if self.on_disk:
                self._write(name, array)
            else:
                self._blocks.setdefault(name, []).append(array)
        if not self.on_disk and self._bytes > self.memory:
            self.on_disk = True
            for name in list(self._blocks):
                for array in self._blocks.pop(name):
                    self._write(name, array)

    def _write(self, name: str, array: Array) -> None:
        try:
            if name not in self._files:
                self._files[name] = tempfile.TemporaryFile(dir=self.directory, prefix="momentree-")  # noqa: SIM115
            self._files[name].write(np.ascontiguousarray(array).data.cast("B") if array.size else b"")
        except OSError as error:
            raise self._full(error) from None

    def _full(self, error: OSError) -> InputError:
        self.close()
        return InputError(
            f"the private copy of the rows cannot be written in {self.directory}: {os.strerror(error.errno or 0)}; "
            "free some space there or name another directory"
        )

    def arrays(self) -> dict[str, Array]:
        """One array a field; mapped, read-only, where they are on disk."""
        if not self.on_disk:
            return {name: np.concatenate(blocks) for name, blocks in self._blocks.items()}
        out = {}
        for name, like in self._like.items():
            row = like.dtype.itemsize * int(np.prod(like.shape[1:]))
            try:
                file = self._files[name]
                file.flush()
                size = os.fstat(file.fileno()).st_size
                # The mapping keeps the nameless file alive; it goes when the last array does.
                flat = mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ) if size else b""
            except OSError as error:
                raise self._full(error) from None
            count = size // row if row else -1
            out[name] = np.frombuffer(flat, like.dtype).reshape(count, *like.shape[1:]) if row else like
        self.close()
        rows = len(out["usable"])
        return {
            name: array if array.size else np.empty((rows, *array.shape[1:]), array.dtype)
            for name, array in out.items()
        }

    def close(self) -> None:
        """Let go of the files, after an error too; mapped arrays stay readable until they are dropped."""
        for file in self._files.values():
            with contextlib.suppress(OSError):  # what is left in its buffer may not fit on the disk
                file.close()
        self._files.clear()
        self._blocks.clear()
