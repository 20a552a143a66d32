"""Callbacks that stop a run or record the calls that it makes."""

from __future__ import annotations

from fedul.core import RoundMetrics
from fedul.training import Callback, RunInfo, RunResult


class StopAt(Callback):
    """Interrupts a run after a round, as Ctrl-C does."""

    def __init__(self, number: int) -> None:
        self.number = number

    def on_warning(self, message: str) -> None:
        pass

    def on_round_end(self, run: RunInfo, metrics: RoundMetrics) -> None:
        if metrics.round == self.number:
            raise KeyboardInterrupt


class Recorder(Callback):
    """Records runs, rounds and warnings; interrupted at the start of run number `stop_at`.

    `calls` has "start TITLE", "round N", "end TITLE" and "failed TITLE" in the order of the calls.
    """

    def __init__(self, stop_at: int | None = None) -> None:
        self.calls: list[str] = []
        self.infos: list[RunInfo] = []
        self.started: list[tuple[int, int, str]] = []
        self.ended: list[str] = []
        self.rounds: list[RoundMetrics] = []
        self.history: list[RoundMetrics] = []
        self.messages: list[str] = []
        self._stop_at = stop_at

    def on_run_start(self, run: RunInfo) -> None:
        self.calls.append(f"start {run.title}".strip())
        if run.number == self._stop_at:
            raise KeyboardInterrupt
        self.infos.append(run)
        self.history = list(run.history)
        self.started.append((run.number, run.total, run.title))

    def on_round_end(self, run: RunInfo, metrics: RoundMetrics) -> None:
        self.calls.append(f"round {metrics.round}")
        self.rounds.append(metrics)

    def on_warning(self, message: str) -> None:
        self.messages.append(message)

    def on_run_end(self, run: RunInfo, result: RunResult | None) -> None:
        self.calls.append(f"{'failed' if result is None else 'end'} {run.title}".strip())
        if result is not None:
            self.ended.append(run.title)
