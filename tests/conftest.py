from __future__ import annotations

import os

# Before anything loads PyTorch: test processes with two threads each wait for one another on two cores.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import pytest


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Slow tests first in every process, so that no core waits at the end for a long test that began late.

    Each of n processes begins with one of n successive parts of the list, and then takes over tests of the others. Slow
    tests are dealt to the parts file by file. Tests of commands share a server and runs, so they follow in one part.
    """
    selected = [item for item in items if item.get_closest_marker("long") is None]
    others = [item for item in items if item.get_closest_marker("long") is not None]  # deselected, unless asked for
    slow = [item for item in selected if item.get_closest_marker("slow") is not None]
    quick = [item for item in selected if item.get_closest_marker("slow") is None]
    quick.sort(key=lambda item: "end_to_end" not in item.path.parts)
    count = max(1, _processes(config))
    files = list(dict.fromkeys(item.path for item in slow))
    parts = [[item for item in slow if files.index(item.path) % count == part] for part in range(count)]
    size = -(-len(selected) // count)
    for part in parts:
        room = max(0, size - len(part))
        part += quick[:room]
        del quick[:room]
    items[:] = [*(item for part in parts for item in part), *quick, *others]


def _processes(config: pytest.Config) -> int:
    """Return the number of processes that run the tests; the same in all of them."""
    worker = getattr(config, "workerinput", None)
    return int(worker["workercount"]) if worker is not None else int(config.getoption("numprocesses", 0) or 0)
