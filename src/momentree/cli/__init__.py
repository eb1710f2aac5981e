"""The command line: parse, call the library, exit code; nothing else.

Exit codes: 0 done, 1 a check said no, 2 bad input (one line), 3 an unexpected error (one line), 130 interrupted.
"""

from __future__ import annotations

import contextlib
import io
import os
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path

from momentree.cli.parser import make_parser
from momentree.errors import MomentreeError


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code. No message carries a data value or a key."""
    if arguments is None:
        for stream in (sys.stdout, sys.stderr):  # a terminal without ε gets its escape, not an error
            if isinstance(stream, io.TextIOWrapper):
                stream.reconfigure(errors="backslashreplace")
    given = list(sys.argv[1:] if arguments is None else arguments)
    debug = "--debug" in given
    try:
        parsed = make_parser().parse_args([word for word in given if word != "--debug"])
        code = int(parsed.run(parsed) or 0)
        sys.stdout.flush()
        return code
    except MomentreeError as error:
        if debug:
            traceback.print_exc()
        print(f"momentree: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print("momentree: interrupted; momentree resume RUN goes on with a run that had started", file=sys.stderr)
        return 130
    except BrokenPipeError:  # the reader has seen enough; nothing more may be written, at exit neither
        with contextlib.suppress(OSError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:
        if debug:
            traceback.print_exc()
        # The system's own word for what is wrong with a file or a disk; the file's name is the user's own.
        where = f" {error.filename}" if error.filename else ""
        print(
            f"momentree: cannot use a file{where} ({error.strerror or type(error).__name__}): "
            "give a place that exists, is accessible and has room",
            file=sys.stderr,
        )
        return 2
    except Exception as error:
        if debug:
            traceback.print_exc()
        # Neither the message nor the values of the frames: they may hold private data. The place is enough.
        place = traceback.extract_tb(error.__traceback__)[-1]
        print(
            f"momentree: unexpected {type(error).__name__} at {Path(place.filename).name}:{place.lineno}; "
            "please report this line, the command and `pip list` (--debug shows the traceback, which may hold data)",
            file=sys.stderr,
        )
        return 3
