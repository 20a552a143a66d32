"""Runs of the same settings in lock-step: whenever all wait for their clients, the clients of all train as one."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from typing import TypeVar

from fedul.engines.base import Engine
from fedul.engines.simulation.engine import SimulationEngine
from fedul.engines.simulation.joint import JointEngine
from fedul.training.steps import RunSteps, TrainRequest, complete

T = TypeVar("T")


def join_engines(engines: Sequence[Engine]) -> JointEngine | None:
    """Return the engines of several runs as one; None if their clients cannot train together."""
    simulated = [engine for engine in engines if isinstance(engine, SimulationEngine)]
    return JointEngine.of(simulated) if len(simulated) == len(engines) else None


def complete_runs(runs: Sequence[RunSteps[T]], joint: JointEngine | None) -> list[T]:
    """Run to the end and return the results, with a joint engine together, else one after another.

    Every run stops when it has had its last round. If one fails or the user interrupts, all are closed.

    Parameters
    ----------
    runs : sequence of generator
        The runs, which have the same settings.
    joint : JointEngine or None
        Their engines as one.
    """
    if joint is None:
        return [complete(steps) for steps in runs]
    results: dict[int, T] = {}
    waiting: dict[int, TrainRequest] = {}
    with ExitStack() as stack:
        for steps in runs:
            stack.callback(steps.close)
        for number, steps in enumerate(runs):
            try:
                waiting[number] = next(steps)
            except StopIteration as end:
                results[number] = end.value
        while waiting:
            updates = joint.train({number: (each.broadcast, each.clients) for number, each in waiting.items()})
            for number in list(waiting):
                try:
                    answer = joint.answer(number, updates.pop(number), waiting[number].broadcast)
                    waiting[number] = runs[number].send(answer)
                except StopIteration as end:
                    results[number] = end.value
                    del waiting[number]
    return [results[number] for number in range(len(runs))]
