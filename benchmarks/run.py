"""Runs the benchmarks one after the other: `--quick` takes a few minutes, without it all of them at full size."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
ALL = ("noise.py", "steps.py", "strategies.py", "amplification.py", "accuracy.py")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    for name in ALL:
        path = HERE / name
        if not path.exists():
            continue
        print(f"\n== {name}", flush=True)
        if name == "accuracy.py" and not _data():
            print("skipped: MOMENTREE_DATA names no folder of data sets")
            continue
        done = subprocess.run([sys.executable, str(path), *(["--quick"] if options.quick else [])], check=False)
        if done.returncode:
            raise SystemExit(f"{name} failed with exit code {done.returncode}")


def _data() -> bool:
    return Path(os.environ.get("MOMENTREE_DATA", HERE.parent.parent / "shared" / "data")).is_dir()


if __name__ == "__main__":
    main()
