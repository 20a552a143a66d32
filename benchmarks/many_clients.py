"""Cost of 10,000 clients compared with 1,000, of ten million mapped rows, and of a million clients. Three minutes.

    python benchmarks/many_clients.py [--million] [--json]

(i) The same rows as 10,000 and as 1,000 clients: setup, seconds per round and peak memory. In both, 100 clients
participate in a round (1 % and 10 %), so that only the number of idle clients differs. The increase of the peak divided
by the increase in clients is the cost of one client; the part of it that is class priors and row indices is counted.

(ii) Ten million rows of 64 bytes in a memory-mapped .npy file and 1,000 clients, of which 1 % participate. Mapped pages
belong to the page cache, so the measure is the peak of anonymous memory (RssAnon, sampled) minus that of the process
after imports and a small training run. Linux only.

(iii) 10,000, 100,000 and 1,000,000 clients of 20 rows in a mapped file, built by `Federation.from_arrays`; 1,000
clients participate in a round. With --million, only this part. Memory is the peak of anonymous memory, beyond that of
the process after imports and a small training run; it includes the arrays that the federation is built from.

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

TABLE_CLIENTS = (10_000, 100_000, 1_000_000)
TABLE_ROWS, TABLE_SETS, TABLE_PARTICIPANTS, TABLE_ROUNDS = 20, 2, 1_000, 9

PEAK_TARGET = 1.2  # ratio of process memory, 10,000 to 1,000 clients
ROUND_TARGET = 1.5  # ratio of the time of a round
SETUP_TARGET = 10.0  # ratio of the setup time: at most linear
TABLE_MEMORY_TARGET = 2_000.0  # anonymous MB of a million clients
TABLE_ROUND_TARGET = 1.2  # ratio of the time of a round, most to fewest clients
MAPPED_TARGET = 0.5  # anonymous memory added by ten million mapped rows, relative to the file size


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("--million", action="store_true", help="measure only 10,000 to 1,000,000 clients of 20 rows")
    parser.add_argument("--part", help=argparse.SUPPRESS)  # measure this process instead of new ones
    arguments = parser.parse_args()
    if arguments.part:
        kind, _, value = arguments.part.partition(":")
        print(json.dumps({"clients": many_clients, "file": mapped_file, "table": client_table}[kind](value)))
        return

    if arguments.million:
        tables = measure_tables()
        print_result({"tables": tables, "machine": describe_machine()}, describe_tables(tables), as_json=arguments.json)
        return
    few, many = {}, {}
    for repeat in range(REPEATS):  # alternating, so that other load affects both
        for clients, figures in ((FEW, few), (MANY, many))[:: 1 if repeat % 2 == 0 else -1]:
            for name, value in measure(f"clients:{clients}").items():
                figures.setdefault(name, []).append(value)
    few, many = ({name: statistics.median(values) for name, values in one.items()} for one in (few, many))
    ratios = {name: many[name] / few[name] for name in ("peak_mb", "round_seconds", "setup_seconds")}
    added, tables = ((many[name] - few[name]) * 1e3 / (MANY - FEW) for name in ("peak_mb", "client_tables_mb"))
    mapped, tables = measure_mapped_file(), measure_tables()
    result = {
        "clients": {str(FEW): few, str(MANY): many},
        "ratios": ratios,
        "kb_per_client": {"peak": added, "priors and row indices": tables},
        "mapped": mapped,
        "tables": tables,
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
    table.append(["", "", "", "", ""])
    table += describe_tables(tables)
    print_result(result, table, as_json=arguments.json)


def measure(part: str) -> dict[str, float]:
    """Run a part in a new process and return its measurements."""
    command = [sys.executable, __file__, "--part", part]
    figures: dict[str, float] = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
    return figures


def measure_tables() -> dict[str, dict[str, float]]:
    """Return the measurements of federations made from arrays, by their number of clients."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.npy"
        write_rows(path, TABLE_CLIENTS[-1] * TABLE_ROWS)
        return {str(clients): measure(f"table:{clients}:{path}") for clients in TABLE_CLIENTS}


def describe_tables(tables: dict[str, dict[str, float]]) -> list[list[str]]:
    """Return the lines of the table about federations made from arrays."""
    lines = [["clients of 20 rows", "anonymous", "round (quartiles)", "start-up", "of which from_arrays"]]
    for count, one in tables.items():
        quartiles = f"{one['round_lower'] * 1e3:.0f}-{one['round_upper'] * 1e3:.0f}"
        seconds = [f"{one['round_seconds'] * 1e3:.0f} ms ({quartiles})", f"{one['setup_seconds']:.1f} s"]
        lines.append([f"{int(count):,}", f"{one['added_mb']:.0f} MB", *seconds, f"{one['build_seconds']:.1f} s"])
    first, last = tables[str(TABLE_CLIENTS[0])], tables[str(TABLE_CLIENTS[-1])]
    memory = compare_to_target(last["added_mb"], TABLE_MEMORY_TARGET)
    rounds = compare_to_target(last["round_seconds"] / first["round_seconds"], TABLE_ROUND_TARGET)
    return [*lines, ["target", memory, f"ratio {last['round_seconds'] / first['round_seconds']:.2f}: {rounds}", "", ""]]


def measure_mapped_file() -> dict[str, float]:
    """Return the measurements of ten million rows in a temporary file."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.npy"
        write_rows(path, MAPPED_ROWS)
        figures = measure(f"file:{path}")
        size = path.stat().st_size / 1e6
    return {**figures, "file_mb": size, "ratio": figures["added_mb"] / size}


def write_rows(path: Path, count: int) -> None:
    """Write random rows to a file. Only sizes matter."""
    import numpy as np

    generator = np.random.default_rng(0)
    rows = np.lib.format.open_memmap(path, "w+", np.uint8, (count, FEATURES))
    for first in range(0, count, BLOCK):
        last = min(first + BLOCK, count)
        rows[first:last] = generator.integers(0, 256, (last - first, FEATURES), np.uint8)


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


def client_table(value: str) -> dict[str, float]:
    """Train a federation made from arrays in this process and sample its anonymous memory."""
    import warnings

    import numpy as np

    import fedul
    from fedul.core import Federation, Scaling

    warnings.simplefilter("ignore")
    fedul.train(fedul.load("digits", clients=2), model="mlp", rounds=1, participation=0.5)
    clients, path = int(value.partition(":")[0]), value.partition(":")[2]
    sampler = MemorySampler()
    with sampler:
        started = time.perf_counter()
        generator = np.random.default_rng(1)
        priors = generator.uniform(0.1, 1, (clients * TABLE_SETS, CLASSES))
        priors[np.arange(len(priors)), np.arange(len(priors)) % CLASSES] *= 10
        priors /= priors.sum(axis=1, keepdims=True)
        rows = np.arange(clients * TABLE_ROWS, dtype=np.int32)
        sets = rows // TABLE_ROWS * TABLE_SETS + rows % TABLE_SETS
        del rows
        owner = np.arange(clients).repeat(TABLE_SETS)
        inputs = np.load(path, mmap_mode="r")[: clients * TABLE_ROWS]
        federation = Federation.from_arrays(inputs, sets, priors, owner, "0123456789", scaling=Scaling(1 / 255))
        built = time.perf_counter() - started
        run = fedul.train(
            federation, method="fedul", model="mlp", rounds=TABLE_ROUNDS, participation=TABLE_PARTICIPANTS / clients
        )
        total = time.perf_counter() - started
    in_rounds = [metrics.seconds for metrics in run.history]
    lower, median, upper = statistics.quantiles(in_rounds, n=4, method="inclusive")
    return {
        "build_seconds": built,
        "setup_seconds": total - sum(in_rounds),
        "round_seconds": median,
        "round_lower": lower,
        "round_upper": upper,
        "added_mb": sampler.added_mb,
    }


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
