"""The whole path from the command line, timed: Adult from draft to certificate, and 10⁷ rows to the first step.

    python benchmarks/path.py adult            needs MOMENTREE_DATA
    python benchmarks/path.py large [--rows 10000000] [--format csv]
    python benchmarks/path.py summary          the records so far

Each command is a process of its own, as a user starts them; wall and CPU seconds and the largest resident size are the
kernel's own figures. What is measured is added to benchmarks/records/path.jsonl, with the load of the machine.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import resource
import select
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

HERE = Path(__file__).parent
RECORD = HERE / "records" / "path.jsonl"
MOMENTREE = [str(Path(sys.executable).parent / "momentree")]
BLOCK = 250_000


def timed(*arguments: str) -> tuple[float, float, str]:
    """Wall and CPU seconds of one command, and its output; a command that fails ends the benchmark."""
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    done = subprocess.run([*MOMENTREE, *arguments], capture_output=True, text=True, check=False)
    wall, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        raise SystemExit(f"momentree {' '.join(arguments)}: exit {done.returncode}\n{done.stderr}")
    return wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, done.stdout


def adult(folder: Path) -> dict[str, Any]:
    """Draft, confirm, train at ε = 1, evaluate, report, certificate --verify."""
    data = str(folder / "adult.parquet")
    with tempfile.TemporaryDirectory(prefix="momentree-path-") as place:
        schema, run = str(Path(place) / "schema.toml"), str(Path(place) / "run")
        commands = {
            "draft": ("schema", "draft", data, "--target", "income", "--out", schema),
            "confirm": ("schema", "confirm", schema, "--all"),
            "train": ("train", data, "--target", "income", "--schema", schema, "--epsilon", "1", "--delta", "1e-5",
                      "--holdout", "split=test", "--out", run),
            "evaluate": ("evaluate", run, data, "--json"),
            "report": ("report", run),
            "verify": ("certificate", run, "--verify"),
        }  # fmt: skip
        found = {name: timed(*words) for name, words in commands.items()}
    return {
        "what": "adult",
        "wall": {name: round(wall, 2) for name, (wall, _, _) in found.items()},
        "total_wall": round(sum(wall for wall, _, _ in found.values()), 1),
        "total_cpu": round(sum(cpu for _, cpu, _ in found.values()), 1),
        "accuracy": json.loads(found["evaluate"][2])["accuracy"],
    }


def large(rows: int, ending: str, place: Path) -> dict[str, Any]:
    """14 numbers, 5 categories, a boolean target: seconds until the run begins, and until a step is shown."""
    data, schema = place / f"large.{ending}", place / "schema.toml"
    make(data, rows)
    columns = [f'[columns.x{i}]\nkind = "number"\nbounds = [-5, 5]' for i in range(14)]
    columns += [
        f'[columns.c{i}]\nkind = "category"\nvalues = {json.dumps([f"v{k}" for k in range(10)])}' for i in range(5)
    ]
    schema.write_text(
        'version = 1\ntarget = "y"\nrow_norm = 4.0\n\n' + "\n\n".join(columns) + '\n\n[columns.y]\nkind = "boolean"\n'
    )
    words = (
        "train",
        str(data),
        "--target",
        "y",
        "--schema",
        str(schema),
        "--epsilon",
        "1",
        "--out",
        str(place / "run"),
    )
    start = time.perf_counter()
    screen, stderr = os.openpty()  # the bar is drawn on a terminal only
    child = subprocess.Popen([*MOMENTREE, *words], stdout=subprocess.DEVNULL, stderr=stderr)
    os.close(stderr)
    shown, ready = b"", None
    try:
        while (found := re.search(rb" step (\d+)/", shown)) is None:  # the first that is shown, after its checkpoint
            if ready is None and (place / "run" / "record.json").exists():
                ready = (time.perf_counter() - start, cpu_of(child.pid))
            if child.poll() is not None:
                raise SystemExit(f"train ended with {child.returncode} before its first step")
            if select.select([screen], [], [], 0.02)[0]:
                shown += os.read(screen, 4096)
        wall = time.perf_counter() - start
        status = Path(f"/proc/{child.pid}/status").read_text()
        cpu = cpu_of(child.pid)
    finally:
        child.kill()
        child.wait()
        os.close(screen)
    peak = next(line for line in status.splitlines() if line.startswith("VmHWM")).split()[1]
    own = next(line for line in status.splitlines() if line.startswith("RssAnon")).split()[1]
    assert ready is not None
    return {
        "what": f"large {ending}",
        "rows": rows,
        "bytes": data.stat().st_size,
        "run_begins": {"wall": round(ready[0], 1), "cpu": round(ready[1], 1)},
        f"step_{found[1].decode()}_shown": {"wall": round(wall, 1), "cpu": round(cpu, 1)},
        "peak_rss_gib": round(int(peak) / 2**20, 2),
        "anonymous_gib": round(int(own) / 2**20, 2),
    }


def cpu_of(process: int) -> float:
    """Seconds of CPU that a running process has used."""
    ticks = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(ticks[11]) + int(ticks[12])) / os.sysconf("SC_CLK_TCK")


def make(path: Path, rows: int) -> None:
    rng = np.random.default_rng(0)
    writer: Any = None
    for start in range(0, rows, BLOCK):
        size = min(BLOCK, rows - start)
        x = rng.standard_normal((14, size)).astype(np.float32).round(4)
        names = np.array([f"v{k}" for k in range(10)])
        codes = rng.integers(0, 10, (5, size))
        arrays = {f"x{i}": x[i] for i in range(14)} | {f"c{i}": names[codes[i]] for i in range(5)}
        table = pa.table({**arrays, "y": x[0] + x[1] + (codes[0] > 5) > 0})
        if writer is None:
            csv = path.suffix == ".csv"
            writer = (pyarrow.csv.CSVWriter if csv else pq.ParquetWriter)(path, table.schema)
        writer.write_table(table)
    writer.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("adult", "large", "summary"))
    parser.add_argument("--rows", type=int, default=10**7)
    parser.add_argument("--format", choices=("csv", "parquet"), default="csv")
    parser.add_argument("--scratch", help="where the large file is made; 1.4 GB")
    options = parser.parse_args()
    if options.what == "summary":
        print(RECORD.read_text() if RECORD.exists() else "nothing measured yet", end="")
        return
    load = os.getloadavg()[0]
    if options.what == "adult":
        row = adult(Path(os.environ.get("MOMENTREE_DATA", HERE.parent.parent / "shared" / "data")))
    else:
        with tempfile.TemporaryDirectory(prefix="momentree-path-", dir=options.scratch) as place:
            row = large(options.rows, options.format, Path(place))
    row |= {"cores": os.cpu_count(), "load_before": round(load, 1)}
    print(json.dumps(row))
    with RECORD.open("a") as file:
        file.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    main()
