"""Waiting for other processes, as long as a slow machine may need."""

from __future__ import annotations

import time
from collections.abc import Callable


def until(happened: Callable[[], object], said: Callable[[], str] = lambda: "", seconds: float = 600) -> None:
    """Returns when it has happened; a failure tells what was said meanwhile."""
    end = time.monotonic() + seconds
    while not happened():
        assert time.monotonic() < end, f"it did not happen within {seconds:g} s\n{said()}"
        time.sleep(0.1)
