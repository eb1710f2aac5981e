"""Runs what a document says: `python` blocks are executed, `console` blocks are typed and must exit with 0.

Usage: python docs/examples.py README.md [docs/….md …]. Blocks of one document share a folder and their variables. A
`console` block may show output after its commands; every line of it that holds no figure must really be printed.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

BLOCK = re.compile(r"^```(python|console)\n(.*?)^```", re.M | re.S)
NEEDS_DATA = re.compile(r"\bshared/data\b")


def run_console(text: str, folder: Path) -> None:
    """Type each `$ ` line; compare the fixed words of the output that the document shows."""
    binaries = str(Path(sys.executable).parent)
    environment = os.environ | {"PATH": f"{binaries}{os.pathsep}{os.environ['PATH']}"}
    for part in re.split(r"^\$ ", text, flags=re.M)[1:]:
        command, _, shown = part.partition("\n")
        done = subprocess.run(command, shell=True, cwd=folder, env=environment, capture_output=True, text=True)
        if done.returncode != 0:
            raise SystemExit(f"$ {command}\n{done.stdout}{done.stderr}\nexit code {done.returncode}")
        printed = done.stdout + done.stderr
        for line in shown.splitlines():
            if line.strip() and not re.search(r"[0-9…]", line) and line.strip() not in printed:
                raise SystemExit(f"$ {command}\nthe document shows {line!r}, which is not printed:\n{printed}")


def run_document(path: Path) -> int:
    """Run every block of one document in a fresh folder; return how many there were."""
    blocks = BLOCK.findall(path.read_text(encoding="utf-8"))
    variables: dict[str, object] = {"__name__": "__main__"}
    folder = Path(tempfile.mkdtemp(prefix="momentree-examples-"))
    here = Path.cwd()
    try:
        for language, text in blocks:
            if NEEDS_DATA.search(text):
                continue
            if language == "console":
                run_console(text, folder)
            else:
                os.chdir(folder)
                with contextlib.redirect_stdout(io.StringIO()):
                    exec(compile(text, str(path), "exec"), variables)
                os.chdir(here)
    finally:
        os.chdir(here)
        shutil.rmtree(folder, ignore_errors=True)
    return len(blocks)


def main() -> None:
    total = 0
    for name in sys.argv[1:]:
        count = run_document(Path(name))
        print(f"{name}: {count} examples run")
        total += count
    if total == 0:
        raise SystemExit("no example found: a check that cannot fail is none")


if __name__ == "__main__":
    main()
