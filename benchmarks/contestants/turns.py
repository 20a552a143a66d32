"""A contestant's end of the line: it warms up, says that it is ready, and does one round for each "go" it reads.

Answers are JSON, a line each, on what was standard output; whatever else a framework prints there goes to standard
error. Frameworks that have a loop of their own call `go_on` from a hook between two rounds, where it waits.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from typing import Any, NoReturn

from work import Work

WARM_UP = 2


class Turns:
    """When to do a round, and how long it took."""

    def __init__(self) -> None:
        self._answers = os.fdopen(os.dup(1), "w", buffering=1)
        os.dup2(2, 1)
        self._rounds = -1
        self._since = 0.0

    @property
    def number(self) -> int:
        """Of the round that is under way, from 1."""
        return self._rounds + 1

    def go_on(self) -> bool:
        """Called before every round, and so after the one before: whether there is another one."""
        now = time.perf_counter()
        taken = now - self._since
        self._rounds += 1
        if self._rounds == 0:
            self._since = now
        if self._rounds < WARM_UP:
            return True
        self._say({"ready": True, "warm_up": taken} if self._rounds == WARM_UP else {"seconds": taken})
        told = sys.stdin.readline().strip()
        self._since = time.perf_counter()
        return told == "go"

    def finish(self, loss: float, **facts: Any) -> None:
        self._say({"loss": loss, "rounds": self._rounds, **facts})

    def unavailable(self, reason: str) -> NoReturn:
        """Says why this contestant cannot take part, and ends the program."""
        self._say({"unavailable": reason})
        sys.exit(0)

    def _say(self, answer: dict[str, Any]) -> None:
        print(json.dumps(answer), file=self._answers)


def arguments(description: str | None) -> argparse.ArgumentParser:
    """A parser with what every contestant takes."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--work", type=Work.read, required=True, help="the work, as JSON")
    return parser
