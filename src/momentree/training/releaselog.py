"""The log of what was shown: one line with a digest for each release, written before anyone sees it.

The trap that it closes: the same noise on a different value hands out the difference. Whoever resumes an earlier
checkpoint computes steps again that were seen already; each has to repeat its digest, or the run stops.

A plain write outlives a killed process. A power cut may lose the last lines, so every so many steps a reservation is
made durable first: "up to step k may be shown". After a power cut the log then says itself that more may have been seen
than it shows, and the run is not resumed from there.
"""

from __future__ import annotations

import os
from pathlib import Path

from momentree.errors import CheckError, InputError
from momentree.training.folder import durable

RESERVE = 64


class ReleaseLog:
    """Lines `step digest`, `reserve k boot`, `closed k`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.digests: dict[int, str] = {}
        self.reserved = 0
        self._boot: str | None = None
        self._closed = -1
        self._handle: int | None = None
        if path.exists():
            self._read()

    @property
    def last(self) -> int:
        """The last step that was shown one by one."""
        return max(self.digests, default=0)

    def _read(self) -> None:
        text = self.path.read_text(encoding="ascii", errors="replace")
        complete = text[: text.rfind("\n") + 1]
        if complete != text:  # a line cut off by the kill: its step was not yet shown
            os.truncate(self.path, len(complete))
        for line in complete.splitlines():
            words = line.split()
            if len(words) == 3 and words[0] == "reserve" and words[1].isdigit():
                self.reserved, self._boot = int(words[1]), words[2]
            elif len(words) == 2 and words[0] == "closed" and words[1].isdigit():
                self._closed = int(words[1])
            elif len(words) == 2 and words[0].isdigit() and len(words[1]) == 64:
                self.digests[int(words[0])] = words[1]
            else:
                raise InputError(f"{self.path} was changed since it was written: restore it or start another run")

    def check_complete(self) -> None:
        """After a power cut the log may have lost lines: then nobody can say that a replay repeats what was seen."""
        cut = self._boot is not None and self._boot != boot_id() and self._closed < self.last
        if cut and self.reserved > self.last:
            raise CheckError(
                f"the machine stopped while steps up to {self.reserved} may have been shown and the log ends at step "
                f"{self.last}: a replay cannot be checked, so the run goes on with fresh noise only and both attempts "
                "are counted: momentree resume --fork, or load(fork=True)"
            )

    def before_showing(self, step: int, digest: str) -> None:
        """Write the digest of a new release, or compare a replayed one."""
        seen = self.digests.get(step)
        if seen is not None:
            if seen != digest:
                raise CheckError(
                    f"step {step} was shown before and its replay differs (another machine or library): the run stops, "
                    "for the same noise on another value would disclose the difference; go on where it started, or "
                    "with fresh noise from the last checkpoint on, both attempts counted: momentree resume --fork, or "
                    "load(fork=True)"
                )
            return
        if step > self.reserved:
            self._write(f"reserve {step + RESERVE} {boot_id()}\n")
            os.fsync(self._open())
            if self.reserved == 0:
                durable(self.path.parent)
            self.reserved = step + RESERVE
        self._write(f"{step} {digest}\n")
        self.digests[step] = digest

    def close(self) -> None:
        """An orderly end: nothing was shown that is not in the log."""
        if self._handle is not None:
            if self._closed < self.last:
                self._write(f"closed {self.last}\n")
                os.fsync(self._handle)
            os.close(self._handle)
            self._handle = None

    def _open(self) -> int:
        if self._handle is None:
            self._handle = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        return self._handle

    def _write(self, line: str) -> None:
        os.write(self._open(), line.encode("ascii"))


def boot_id() -> str:
    """What tells one start of the machine from another; empty information where the system has none."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return "unknown"
