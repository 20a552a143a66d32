"""Callbacks: one protocol for progress, logging, trackers and tests, on every engine."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from fedul._utils.extensions import describe_part
from fedul.core import RoundMetrics
from fedul.errors import wrong_type

if TYPE_CHECKING:
    from fedul.training.result import RunResult
    from fedul.training.run_record import RunRecord


@dataclass(frozen=True)
class StopRun:
    """Request of a callback to end a run; `Callback.on_round_end` returns it after the round that is the last.

    The run delivers its classifier as if this were its last round, and its result has the reason (`stopped`). Resumed,
    it trains the rounds that are missing.

    Parameters
    ----------
    reason : str
        Why, in one sentence.

    Examples
    --------
    >>> class StopAtLoss(Callback):
    ...     def on_round_end(self, run, metrics):
    ...         return StopRun("the loss is below 0.1") if metrics.loss < 0.1 else None
    >>> StopAtLoss().on_round_end(RunInfo(rounds=3), RoundMetrics(round=1, loss=0.05, clients=2)).reason
    'the loss is below 0.1'
    """

    reason: str

    def __post_init__(self) -> None:
        if not isinstance(self.reason, str) or not self.reason.strip():
            raise wrong_type("StopRun", "a reason as text", self.reason)


@dataclass(frozen=True)
class RunInfo:
    """The run that a callback is called for.

    Parameters
    ----------
    rounds : int
        Rounds that the run will have at its end; the most that it may have, if it has `patience`.
    title : str
        Short name of the run, empty for a single one.
    number, total : int
        Position of the run among several, from 1, and how many there are.
    concurrent : int
        Runs that go on at the same time. If more than one, `on_round_end` is not called: they are in other processes.
    folder : Path or None
        The run folder, if there is one.
    history : sequence of RoundMetrics
        Rounds that were done before, where the run is resumed; `on_round_end` is not called for these.
    patience : int
        Rounds without a selected one after which the run ends; 0 if it does not end early.
    joint_runs : int
        Runs that this process trains at the same time, round by round, as one computation.
    role : {"run", "choice", "fold"}
        A run of its own; one that only serves to choose settings, whose rounds nothing can stop; or a fold of an
        evaluation.
    record : RunRecord or None
        Configuration and data of the run; None if it is in another process, whose folder has it.
    failure : BaseException or None
        What ended a run that has no result, in `on_run_end`.
    warn : callable
        Passes a warning on to the callbacks of the run.

    Examples
    --------
    >>> RunInfo(rounds=30, title="first").total
    1
    """

    rounds: int
    title: str = ""
    number: int = 1
    total: int = 1
    concurrent: int = 1
    folder: Path | None = None
    history: Sequence[RoundMetrics] = ()
    patience: int = 0
    joint_runs: int = 1
    role: Literal["run", "choice", "fold"] = "run"
    record: RunRecord | None = field(default=None, compare=False, repr=False)
    failure: BaseException | None = field(default=None, compare=False)
    warn: Callable[[str], None] = field(default=warnings.warn, compare=False, repr=False)

    @property
    def key(self) -> tuple[Path | None, str, int]:
        """What distinguishes this run from others at the same time."""
        return self.folder, self.title, self.number


class Callback:
    """Base class of callbacks. Override what you need; all methods do nothing by default.

    Pass callbacks to `fedul.train`, `fedul.evaluate` or `fedul.compare` as ``callbacks=[...]``. An exception that a
    callback raises ends the run; the last checkpoint stays, if one was written before.

    Examples
    --------
    >>> class PrintLoss(Callback):
    ...     def on_round_end(self, run, metrics):
    ...         print(f"round {metrics.round} of {run.rounds}: loss {metrics.loss:.2f}")
    >>> PrintLoss().on_round_end(RunInfo(rounds=3), RoundMetrics(round=1, loss=0.5, clients=2))
    round 1 of 3: loss 0.50
    """

    def on_run_start(self, run: RunInfo) -> StopRun | None:
        """Called before the first round. Return `StopRun` to train no further round of a run that is resumed."""

    def on_round_end(self, run: RunInfo, metrics: RoundMetrics) -> StopRun | None:
        """Called after every round, once it has been evaluated. Return `StopRun` to end the run."""

    def on_checkpoint(self, run: RunInfo, metrics: RoundMetrics) -> None:
        """Called when the checkpoint in the run folder is that of this round."""

    def on_warning(self, message: str) -> None:
        """Called with everything that a user should know, one sentence at a time.

        If no callback overrides this method, messages are issued as Python warnings.
        """

    def on_run_end(self, run: RunInfo, result: RunResult | None) -> None:
        """Called at the end of a run, with its result; None if it was interrupted or failed."""


class CallbackList(Callback):
    """Several callbacks as one, called in order."""

    def __init__(self, callbacks: Iterable[Callback] = ()) -> None:
        if not isinstance(callbacks, Iterable):
            raise wrong_type("callbacks", "a list of fedul.Callback objects", callbacks)
        self._callbacks = tuple(callbacks)
        for each in self._callbacks:
            if not isinstance(each, Callback):
                raise wrong_type("callbacks", "a list of fedul.Callback objects", each)
        self._warns = any(type(each).on_warning is not Callback.on_warning for each in self._callbacks)

    def on_run_start(self, run: RunInfo) -> StopRun | None:
        return _first_request([(callback, callback.on_run_start(run)) for callback in self._callbacks])

    def on_round_end(self, run: RunInfo, metrics: RoundMetrics) -> StopRun | None:
        return _first_request([(callback, callback.on_round_end(run, metrics)) for callback in self._callbacks])

    def on_checkpoint(self, run: RunInfo, metrics: RoundMetrics) -> None:
        for callback in self._callbacks:
            callback.on_checkpoint(run, metrics)

    def on_warning(self, message: str) -> None:
        if not self._warns:
            warnings.warn(message, stacklevel=_levels_to_user())
        for callback in self._callbacks:
            callback.on_warning(message)

    def on_run_end(self, run: RunInfo, result: RunResult | None) -> None:
        for callback in self._callbacks:
            callback.on_run_end(run, result)


class CollectWarnings(Callback):
    """Keeps the warnings of a run in `messages`."""

    def __init__(self) -> None:
        self.messages: list[str] = []

    def on_warning(self, message: str) -> None:
        self.messages.append(message)


def _first_request(requests: Sequence[tuple[Callback, StopRun | None]]) -> StopRun | None:
    for callback, request in requests:
        if not isinstance(request, StopRun | None):
            raise wrong_type(describe_part("callback", callback), "StopRun or None as the return value", request)
    return next((request for _, request in requests if request is not None), None)


def _levels_to_user() -> int:
    """Return the stack level of the first caller outside of fedul, for `warnings.warn` one frame up."""
    package = __name__.partition(".")[0] + "."
    frame, level = sys._getframe(1), 1
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith(package):
        frame, level = frame.f_back, level + 1
    return level
