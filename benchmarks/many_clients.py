"""Cost of 10,000 clients compared with 1,000, and of ten million memory-mapped rows. About two minutes.

    python benchmarks/many_clients.py [--json]

(i) The same rows as 10,000 and as 1,000 clients: setup, seconds per round and peak memory. In both, 100 clients
participate in a round (1 % and 10 %), so that only the number of idle clients differs. The increase of the peak divided
by the increase in clients is the cost of one client; the part of it that is class priors and row indices is counted.

(ii) Ten million rows of 64 bytes in a memory-mapped .npy file and 1,000 clients, of which 1 % participate. Mapped pages
belong to the page cache, so the measure is the peak of anonymous memory (RssAnon, sampled) minus that of the process
after imports and a small training run. Linux only.

Each federation is built and trained in a separate process; repeated measurements give their median.
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

from _measure import compare_to_target, describe_machine, make_parser, print_result

FEW, MANY = 1_000, 10_000
ROWS, FEATURES = 400_000, 64
SETS, CLASSES = 5, 10
PARTICIPANTS, ROUNDS = 100, 5
REPEATS = 3

MAPPED_ROWS, MAPPED_CLIENTS, MAPPED_PARTICIPANTS, MAPPED_ROUNDS = 10_000_000, 1_000, 10, 2
BLOCK = 250_000  # rows per write

PEAK_TARGET = 1.2  # ratio of process memory, 10,000 to 1,000 clients
ROUND_TARGET = 1.5  # ratio of the time of a round
SETUP_TARGET = 10.0  # ratio of the setup time: at most linear
MAPPED_TARGET = 0.5  # anonymous memory added by ten million mapped rows, relative to the file size


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("--part", help=argparse.SUPPRESS)  # measure this process instead of new ones
    arguments = parser.parse_args()
    if arguments.part:
        kind, _, value = arguments.part.partition(":")
        print(json.dumps({"clients": many_clients, "file": mapped_file}[kind](value)))
        return

    few, many = {}, {}
    for repeat in range(REPEATS):  # alternating, so that other load affects both
        for clients, figures in ((FEW, few), (MANY, many))[:: 1 if repeat % 2 == 0 else -1]:
            for name, value in measure(f"clients:{clients}").items():
                figures.setdefault(name, []).append(value)
    few, many = ({name: statistics.median(values) for name, values in one.items()} for one in (few, many))
    ratios = {name: many[name] / few[name] for name in ("peak_mb", "round_seconds", "setup_seconds")}
    added, tables = ((many[name] - few[name]) * 1e3 / (MANY - FEW) for name in ("peak_mb", "client_tables_mb"))
    mapped = measure_mapped_file()
    result = {
        "clients": {str(FEW): few, str(MANY): many},
        "ratios": ratios,
        "kb_per_client": {"peak": added, "priors and row indices": tables},
        "mapped": mapped,
        "targets": {
            "peak_mb": PEAK_TARGET,
            "round_seconds": ROUND_TARGET,
            "setup_seconds": SETUP_TARGET,
            "mapped": MAPPED_TARGET,
        },
        "rows": ROWS,
        "participants": PARTICIPANTS,
        "model": "mlp",
        "machine": describe_machine(),
    }
    table = [["clients", "peak memory", "round", "setup", ""]]
    for count, one in ((FEW, few), (MANY, many)):
        seconds = [f"{one['round_seconds'] * 1e3:.0f} ms", f"{one['setup_seconds']:.2f} s"]
        table.append([f"{count:,}", f"{one['peak_mb']:.0f} MB", *seconds, ""])
    table.append(["ratio", *(f"{ratio:.2f}" for ratio in ratios.values()), ""])
    verdicts = (compare_to_target(ratios[name], result["targets"][name]) for name in ratios)
    table.append(["target", *verdicts, ""])
    table.append(["per client", f"{added:.1f} kB", "", "", f"of which priors and row indices {tables:.1f} kB"])
    table.append(["", "", "", "", ""])
    table.append(["mapped rows", "anonymous", "round", "setup", "file"])
    seconds = [f"{mapped['round_seconds']:.2f} s", f"{mapped['setup_seconds']:.1f} s"]
    table.append([f"{MAPPED_ROWS:,}", f"{mapped['added_mb']:.0f} MB", *seconds, f"{mapped['file_mb']:.0f} MB"])
    table.append(["ratio", f"{mapped['ratio']:.2f}", "", "", compare_to_target(mapped["ratio"], MAPPED_TARGET)])
    print_result(result, table, as_json=arguments.json)


def measure(part: str) -> dict[str, float]:
    """Run a part in a new process and return its measurements."""
    command = [sys.executable, __file__, "--part", part]
    figures: dict[str, float] = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
    return figures


def measure_mapped_file() -> dict[str, float]:
    """Return the measurements of ten million rows in a temporary file."""
    import numpy as np

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.npy"
        generator = np.random.default_rng(0)
        rows = np.lib.format.open_memmap(path, "w+", np.uint8, (MAPPED_ROWS, FEATURES))
        for first in range(0, MAPPED_ROWS, BLOCK):
            last = min(first + BLOCK, MAPPED_ROWS)
            rows[first:last] = generator.integers(0, 256, (last - first, FEATURES), np.uint8)
        del rows
        figures = measure(f"file:{path}")
        size = path.stat().st_size / 1e6
    return {**figures, "file_mb": size, "ratio": figures["added_mb"] / size}


def many_clients(value: str) -> dict[str, float]:
    """Train a federation of this many clients in this process."""
    import numpy as np

    clients = int(value)
    # Only sizes matter: the rows are noise.
    rows = np.random.default_rng(0).integers(0, 256, (ROWS, FEATURES), np.uint8)
    figures = train_federation(rows, clients, PARTICIPANTS, ROUNDS)
    return {**figures, "peak_mb": peak_mb()}


def mapped_file(value: str) -> dict[str, float]:
    """Train on a mapped file in this process and sample its anonymous memory."""
    import numpy as np

    import fedul

    # Import everything first, so that it does not count as memory of the rows.
    fedul.train(fedul.load("digits", clients=2), model="mlp", rounds=1, participation=0.5)
    sampler = MemorySampler()
    with sampler:
        figures = train_federation(np.load(value, mmap_mode="r"), MAPPED_CLIENTS, MAPPED_PARTICIPANTS, MAPPED_ROUNDS)
    return {**figures, "added_mb": sampler.added_mb}


def train_federation(rows: Any, clients: int, participants: int, rounds: int) -> dict[str, float]:
    """Build a federation and train it; return seconds, and the size of priors and row indices."""
    import warnings

    import numpy as np

    import fedul
    from fedul.core import Federation, Scaling, UnlabeledSets, priors

    warnings.simplefilter("ignore")
    each = len(rows) // clients
    generator = np.random.default_rng(1)
    started = time.perf_counter()
    sets = []
    for c in range(clients):
        class_priors = priors.sample_priors("boosted", SETS, CLASSES, generator)
        own_rows = range(c * each, (c + 1) * each)
        sets.append(UnlabeledSets.from_arrays(f"client-{c}", rows, np.arange(each) % SETS, class_priors, rows=own_rows))
    federation = Federation(sets, "0123456789", scaling=Scaling(1 / 255))
    built = time.perf_counter() - started
    run = fedul.train(federation, model="mlp", rounds=rounds, participation=participants / clients)
    total = time.perf_counter() - started
    in_rounds = [metrics.seconds for metrics in run.history]
    indices = sum(t.nbytes for c in sets for part in (c.train, c.held_out) for t in (part.index, part.sets))
    return {
        "build_seconds": built,
        "setup_seconds": total - sum(in_rounds),
        "round_seconds": statistics.median(in_rounds),
        "client_tables_mb": (indices + sum(c.priors.nbytes for c in sets)) / 1e6,
    }


def peak_mb() -> float:
    """Return the peak resident memory of this process."""
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e6


class MemorySampler:
    """Samples the anonymous memory of this process, 100 times per second."""

    def __enter__(self) -> None:
        self._before = self._peak = anonymous_mb()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _sample(self) -> None:
        while not self._stop.wait(0.01):
            self._peak = max(self._peak, anonymous_mb())

    @property
    def added_mb(self) -> float:
        """Peak since the start of sampling, minus the value at the start."""
        return self._peak - self._before


def anonymous_mb() -> float:
    """Return the anonymous resident memory of this process."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("RssAnon:")) * 1024 / 1e6


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    main()
