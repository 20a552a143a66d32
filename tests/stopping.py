"""A run that is stopped from within, for tests of resuming."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


class StopAt:
    """A reporter that interrupts a run after some rounds, as Ctrl-C does."""

    def __init__(self, number: int) -> None:
        self.number = number

    def warn(self, sentence: str) -> None:
        pass

    def round(self, figures: Mapping[str, Any], rounds: int) -> None:
        if figures["round"] == self.number:
            raise KeyboardInterrupt
