"""Waiting for other processes, as long as a slow machine may need."""

from __future__ import annotations

import time
from collections.abc import Callable


def wait_until(happened: Callable[[], object], output: Callable[[], str] = lambda: "", seconds: float = 600) -> None:
    """Return when `happened()` is true; fail with the output when the seconds are over."""
    end = time.monotonic() + seconds
    while not happened():
        assert time.monotonic() < end, f"it did not happen within {seconds:g} s\n{output()}"
        time.sleep(0.1)
