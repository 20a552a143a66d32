from __future__ import annotations

import os

# Before anything loads PyTorch: test processes with two threads each wait for one another on two cores.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import pytest


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Slow tests first, then those of commands: no core waits at the end for a long test that began late.

    Of commands, which share a server and runs, most then go to one process.
    """
    items.sort(key=lambda item: (item.get_closest_marker("slow") is None, "end_to_end" not in item.path.parts))
