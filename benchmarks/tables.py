"""Speed and memory with a user's table, compared with pandas.

    python benchmarks/tables.py [--rows 1000000] [--columns 50]

Writes a CSV, reads it with pandas, trains one round on it and classifies it, each in a separate process.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv

from _measure import print_table

CLIENTS, SETS, CLASSES = 10, 10, 3
TRAIN = "train --data t.csv --priors p.csv --rounds 1 --model linear --batch-size 1024 --out RUN"


def write_tables(folder: Path, rows: int, columns: int) -> None:
    """Write a table whose first five columns depend on the class, and the class counts of its sets."""
    generator = np.random.default_rng(0)
    client, group = generator.integers(0, CLIENTS, rows), generator.integers(0, SETS, rows)
    mixes = generator.dirichlet(np.ones(CLASSES), (CLIENTS, SETS)).cumsum(axis=-1)
    classes = (generator.random(rows)[:, None] > mixes[client, group]).sum(axis=1).clip(0, CLASSES - 1)
    table = {"client": pa.array([f"c{c}" for c in client]), "set": pa.array([f"s{s}" for s in group])}
    for j in range(columns):
        values = generator.normal(size=rows) + (classes * (j + 1) / 2 if j < 5 else 0)
        table[f"x{j}"] = pa.array(values.round(4))
    pacsv.write_csv(pa.table(table), folder / "t.csv")
    lines = ["client,set,a,b,c"]
    for c in range(CLIENTS):
        for s in range(SETS):
            counts = np.bincount(classes[(client == c) & (group == s)], minlength=CLASSES)
            lines.append(f"c{c},s{s},{','.join(map(str, counts))}")
    (folder / "p.csv").write_text("\n".join(lines) + "\n")


def measure(command: list[str], folder: Path) -> tuple[float, float]:
    """Run a command and return its seconds and its peak memory in gigabytes."""
    started = time.monotonic()
    pid = os.posix_spawn(command[0], command, {**os.environ, "PWD": str(folder)})
    _, status, used = os.wait4(pid, 0)
    if status:
        sys.exit(f"{' '.join(command)} failed")
    return time.monotonic() - started, used.ru_maxrss / 2**20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--columns", type=int, default=50)
    chosen = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        os.chdir(folder)
        write_tables(folder, chosen.rows, chosen.columns)
        fedul = [sys.executable, "-m", "fedul"]
        commands = {
            "pandas.read_csv": [sys.executable, "-c", "import pandas; pandas.read_csv('t.csv')"],
            "fedul train, one round": [*fedul, *TRAIN.split()],
            "fedul predict": [*fedul, *["predict", "RUN", "t.csv", "--out", "out.csv"]],
        }
        results = {name: measure(command, folder) for name, command in commands.items()}
        size = (folder / "t.csv").stat().st_size / 2**20
    base = results["pandas.read_csv"][0]
    rows = [
        [name, f"{seconds:.1f}", f"{chosen.rows / seconds:,.0f}", f"{seconds / base:.2f}", f"{memory:.2f}"]
        for name, (seconds, memory) in results.items()
    ]
    print(f"{chosen.rows:,} rows, {chosen.columns} columns, {size:.0f} MB")
    print_table([["", "seconds", "rows per second", "relative to pandas", "peak GB"], *rows])


if __name__ == "__main__":
    main()
