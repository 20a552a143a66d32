"""The simulator's side of the protocol of `interleaved.py`: warm up, report, and run one round per "go" on stdin.

Replies are JSON, one per line, on the original standard output. Everything else that a framework prints there goes to
standard error. A framework with its own loop calls `next_round` from a hook between two rounds, where it blocks.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any, NoReturn

from workload import Workload

WARM_UP_ROUNDS = 2


class RoundTimer:
    """Waits for the request of the next round and reports how long the previous one took.

    Parameters
    ----------
    outputs : callable, optional
        Returns the outputs of the current global model. They are reported of the start and of the first round.
    warm_up_rounds : int
        Rounds before the first request.
    """

    def __init__(self, outputs: Callable[[], list[float]] | None = None, warm_up_rounds: int = WARM_UP_ROUNDS) -> None:
        self.outputs, self._warm_up_rounds = outputs, warm_up_rounds
        self._first_outputs: list[list[float]] = []
        self._replies = os.fdopen(os.dup(1), "w", buffering=1)
        os.dup2(2, 1)
        self._finished = -1
        self._started = 0.0

    @property
    def round(self) -> int:
        """Number of the current round, from 1."""
        return self._finished + 1

    def next_round(self) -> bool:
        """Report the previous round, wait, and return whether there is another one."""
        now = time.perf_counter()
        seconds = now - self._started
        self._finished += 1
        if self.outputs is not None and self._finished <= 1:
            self._first_outputs.append(self.outputs())
        if self._finished == 0:
            self._started = time.perf_counter()
        if self._finished < self._warm_up_rounds:
            return True
        ready = {"ready": True, "warm_up": seconds, "outputs": self._first_outputs}
        self._reply(ready if self._finished == self._warm_up_rounds else {"seconds": seconds})
        request = sys.stdin.readline().strip()
        self._started = time.perf_counter()
        return request == "go"

    def finish(self, data: str) -> None:
        """Report the source of the data."""
        self._reply({"rounds": self._finished, "data": data})

    def unavailable(self, reason: str) -> NoReturn:
        """Report why this simulator cannot take part, and exit."""
        self._reply({"unavailable": reason})
        sys.exit(0)

    def _reply(self, reply: dict[str, Any]) -> None:
        print(json.dumps(reply), file=self._replies)


def make_parser(description: str | None) -> argparse.ArgumentParser:
    """Return a parser with the options of every simulator."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--workload", type=Workload.from_json, required=True, help="the workload, as JSON")
    return parser
