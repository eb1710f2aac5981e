"""Ctrl-C and a polite kill wait for the end of a step."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def deferred_interrupts() -> Iterator[list[int]]:
    """An interruption waits for the end of the step and its checkpoint; a second one does not wait."""
    came: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield came
        return

    def note(number: int, frame: Any) -> None:
        if came:
            raise KeyboardInterrupt
        came.append(number)
        print("stopping after this step", file=sys.stderr)

    before = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield came
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
