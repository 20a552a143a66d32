"""What 10,000 clients cost beside 1,000, and ten million mapped rows beside the size of their file: two minutes.

    python benchmarks/many_clients.py [--json]

(i) The same rows as 10,000 and as 1,000 clients: set-up, seconds a round, and peak memory. In both 100 take part in a
round (1 % and 10 %), so that what differs is the number of those that stand by. The rise of the peak over the rise in
clients is what one of them costs; the share of it that is its class priors and the names of its rows is counted.

(ii) Ten million rows of 64 bytes in a .npy file, mapped, 1,000 clients over it, of which 1 % take part. Mapped pages
are the page cache's, so what counts is the peak of anonymous memory (RssAnon, sampled) over what the process had when
it had imported the program and trained something small. Linux only.

Each federation is built and trained in a process of its own; figures of several are their median.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from _measure import machine, options, show, verdict

FEW, MANY = 1_000, 10_000
ROWS, FEATURES = 400_000, 64
SETS, CLASSES = 5, 10
PARTICIPANTS, ROUNDS = 100, 5
REPEATS = 3

MAPPED_ROWS, MAPPED_CLIENTS, MAPPED_PARTICIPANTS, MAPPED_ROUNDS = 10_000_000, 1_000, 10, 2
BLOCK = 250_000  # rows that are written at once

PEAK_TARGET = 1.2  # memory of 10,000 clients over that of 1,000, all of the process
ROUND_TARGET = 1.5  # a round's time, likewise: a tenth of the rows are trained on, and as many judge
SET_UP_TARGET = 10.0  # set-up's time, likewise: linear at worst
MAPPED_TARGET = 0.5  # anonymous memory that ten million mapped rows add, over the size of their file


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--part", help=argparse.SUPPRESS)  # measure this process, not new ones
    arguments = parser.parse_args()
    if arguments.part:
        kind, _, value = arguments.part.partition(":")
        print(json.dumps({"clients": many_clients, "file": mapped_file}[kind](value)))
        return

    few, many = {}, {}
    for turn in range(REPEATS):  # in turn, so that a busy moment falls on both
        for clients, figures in ((FEW, few), (MANY, many))[:: 1 if turn % 2 == 0 else -1]:
            for name, value in measured(f"clients:{clients}").items():
                figures.setdefault(name, []).append(value)
    few, many = ({name: statistics.median(values) for name, values in one.items()} for one in (few, many))
    ratios = {name: many[name] / few[name] for name in ("peak_mb", "round_seconds", "set_up_seconds")}
    more = MANY - FEW
    added, owned = ((many[name] - few[name]) * 1e3 / more for name in ("peak_mb", "owned_mb"))
    mapped = from_file()
    result = {
        "clients": {str(FEW): few, str(MANY): many},
        "ratios": ratios,
        "kb_a_client": {"peak": added, "its own priors and names of rows": owned},
        "mapped": mapped,
        "targets": {
            "peak_mb": PEAK_TARGET,
            "round_seconds": ROUND_TARGET,
            "set_up_seconds": SET_UP_TARGET,
            "mapped": MAPPED_TARGET,
        },
        "rows": ROWS,
        "participants": PARTICIPANTS,
        "model": "mlp",
        "machine": machine(),
    }
    table = [["clients", "peak memory", "a round", "set-up", ""]]
    for count, one in ((FEW, few), (MANY, many)):
        seconds = [f"{one['round_seconds'] * 1e3:.0f} ms", f"{one['set_up_seconds']:.2f} s"]
        table.append([f"{count:,}", f"{one['peak_mb']:.0f} MB", *seconds, ""])
    table.append(["ratio", *(f"{ratio:.2f}" for ratio in ratios.values()), ""])
    verdicts = (verdict(ratios[name], result["targets"][name]) for name in ratios)
    table.append(["target", *verdicts, ""])
    table.append(["a client", f"{added:.1f} kB", "", "", f"of which its own {owned:.1f} kB"])
    table.append(["", "", "", "", ""])
    table.append(["mapped rows", "anonymous", "a round", "set-up", "file"])
    seconds = [f"{mapped['round_seconds']:.2f} s", f"{mapped['set_up_seconds']:.1f} s"]
    table.append([f"{MAPPED_ROWS:,}", f"{mapped['added_mb']:.0f} MB", *seconds, f"{mapped['file_mb']:.0f} MB"])
    table.append(["ratio", f"{mapped['ratio']:.2f}", "", "", verdict(mapped["ratio"], MAPPED_TARGET)])
    show(result, table, as_json=arguments.json)


def measured(part: str) -> dict[str, float]:
    """The figures of a new process."""
    command = [sys.executable, __file__, "--part", part]
    figures: dict[str, float] = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
    return figures


def from_file() -> dict[str, float]:
    """The figures of ten million rows in a file that is written before and deleted afterwards."""
    import numpy as np

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.npy"
        generator = np.random.default_rng(0)
        rows = np.lib.format.open_memmap(path, "w+", np.uint8, (MAPPED_ROWS, FEATURES))
        for first in range(0, MAPPED_ROWS, BLOCK):
            last = min(first + BLOCK, MAPPED_ROWS)
            rows[first:last] = generator.integers(0, 256, (last - first, FEATURES), np.uint8)
        del rows
        figures = measured(f"file:{path}")
        size = path.stat().st_size / 1e6
    return {**figures, "file_mb": size, "ratio": figures["added_mb"] / size}


def many_clients(value: str) -> dict[str, float]:
    """Trains so many clients in this process."""
    import numpy as np

    clients = int(value)
    # Only sizes matter here: the rows are noise, and nothing is learned.
    rows = np.random.default_rng(0).integers(0, 256, (ROWS, FEATURES), np.uint8)
    figures = trained(rows, clients, PARTICIPANTS, ROUNDS)
    return {**figures, "peak_mb": peak_mb()}


def mapped_file(value: str) -> dict[str, float]:
    """Trains on a mapped file in this process, watching its anonymous memory."""
    import numpy as np

    import fedul

    train_nothing(fedul)
    watch = Watch()
    with watch:
        figures = trained(np.load(value, mmap_mode="r"), MAPPED_CLIENTS, MAPPED_PARTICIPANTS, MAPPED_ROUNDS)
    return {**figures, "added_mb": watch.added_mb}


def train_nothing(fedul: Any) -> None:
    """Lets the program import all it uses, so that this is not taken for memory of the rows."""
    fedul.train(fedul.load("digits", clients=2), model="mlp", rounds=1, participation=0.5)


def trained(rows: Any, clients: int, participants: int, rounds: int) -> dict[str, float]:
    """Builds the federation and trains it: seconds, and what the clients own beside their rows."""
    import warnings

    import numpy as np

    import fedul
    from fedul import priors
    from fedul.federation import Federation, Scaling, UnlabeledSets  # before the clock runs: they import torch

    warnings.simplefilter("ignore")
    each = len(rows) // clients
    generator = np.random.default_rng(1)
    started = time.perf_counter()
    members = []
    for c in range(clients):
        told = priors.sample("boosted", SETS, CLASSES, generator)
        own = range(c * each, (c + 1) * each)
        members.append(UnlabeledSets.from_arrays(f"client-{c}", rows, np.arange(each) % SETS, told, rows=own))
    federation = Federation(members, "0123456789", scaling=Scaling(1 / 255))
    built = time.perf_counter() - started
    run = fedul.train(federation, model="mlp", rounds=rounds, participation=participants / clients)
    whole = time.perf_counter() - started
    in_rounds = [line["seconds"] for line in run.history]
    named = sum(t.nbytes for c in members for part in (c.train, c.held_out) for t in (part.index, part.sets))
    return {
        "build_seconds": built,
        "set_up_seconds": whole - sum(in_rounds),
        "round_seconds": statistics.median(in_rounds),
        "owned_mb": (named + sum(c.priors.nbytes for c in members)) / 1e6,
    }


def peak_mb() -> float:
    """The most resident memory this process has had so far."""
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e6


class Watch:
    """Samples the anonymous memory of this process, a hundred times a second."""

    def __enter__(self) -> None:
        self._before = self._most = anonymous_mb()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _sample(self) -> None:
        while not self._stop.wait(0.01):
            self._most = max(self._most, anonymous_mb())

    @property
    def added_mb(self) -> float:
        return self._most - self._before


def anonymous_mb() -> float:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("RssAnon:")) * 1024 / 1e6


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    main()
