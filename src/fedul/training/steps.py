"""Runs as generators that wait whenever clients train, so that the clients of several runs can train together."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import TypeVar

from fedul.core import RoundSums, Update
from fedul.engines.base import Broadcast, Engine


@dataclass(frozen=True, eq=False)
class TrainRequest:
    """What a run waits for: the updates of these clients, or sums over them.

    Parameters
    ----------
    engine : Engine
        The engine of the run.
    broadcast : Broadcast
        What the coordinator sends.
    clients : sequence of str
        The clients of the round.
    """

    engine: Engine
    broadcast: Broadcast
    clients: Sequence[str]


T = TypeVar("T")
RunSteps = Generator[TrainRequest, Iterator[Update] | RoundSums, T]


def complete(steps: RunSteps[T]) -> T:
    """Run to the end, where clients train with the engine of the run, and return the result."""
    with closing(steps):
        try:
            request = next(steps)
            while True:
                request = steps.send(request.engine.train(request.broadcast, request.clients))
        except StopIteration as end:
            result: T = end.value
            return result
