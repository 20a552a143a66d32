"""Early stopping on any metric of a round, as a callback.

Without labels, ``patience`` of `TrainConfig` is usually better: it knows which round is to be delivered, and when ties
are ties. This callback is for other criteria, such as an error on labels that a researcher has.
"""

from __future__ import annotations

import math
from pathlib import Path

from fedul.core import RoundMetrics
from fedul.errors import InputError, unknown_name, wrong_type
from fedul.training.callbacks import Callback, RunInfo, StopRun

MONITORED = ("loss", "held_out_loss", "held_out_error", "test_error")
"""Metrics of a round that can be monitored; less of them is better."""


def check_monitor(name: str) -> str:
    """Return the name of a metric of a round; InputError if there is none."""
    if name not in MONITORED:
        raise unknown_name("metric", str(name), MONITORED)
    return name


class EarlyStopping(Callback):
    """Ends a run when a metric has not improved for some rounds; the result has the reason (`stopped`).

    Resumed runs count the rounds that were done before. Runs that are only trained to choose settings, and those of
    ``fedul compare --jobs`` in other processes, are not stopped.

    Parameters
    ----------
    monitor : str, default="held_out_loss"
        Metric: "loss", "held_out_loss", "held_out_error" or "test_error".
    patience : int, default=10
        Rounds without improvement after which the run ends.
    min_delta : float, default=0.0
        Improvement that counts must be larger.

    Examples
    --------
    >>> import fedul
    >>> stopping = fedul.EarlyStopping("loss", patience=1, min_delta=100.0)
    >>> data = fedul.load("digits", clients=2, rows=400)
    >>> run = fedul.train(data, method="fedul", rounds=5, seed=0, callbacks=[stopping])
    >>> len(run.history), run.result.stopped
    (2, 'The loss has not improved for 1 round, since round 1.')
    """

    def __init__(self, monitor: str = "held_out_loss", *, patience: int = 10, min_delta: float = 0.0) -> None:
        self._monitor = check_monitor(monitor)
        if not isinstance(patience, int) or isinstance(patience, bool) or patience < 1:
            raise wrong_type("patience", "a number of rounds, at least 1", patience)
        if not isinstance(min_delta, int | float) or not 0 <= min_delta < math.inf:
            raise wrong_type("min_delta", "a number of at least 0", min_delta)
        self._patience, self._min_delta = patience, min_delta
        self._best: dict[tuple[Path | None, str, int], tuple[float, int]] = {}  # value and round, by run

    def on_run_start(self, run: RunInfo) -> StopRun | None:
        self._best[run.key] = (math.inf, 0)
        requests = [self._assess(run, metrics) for metrics in run.history]
        return requests[-1] if requests else None

    def on_round_end(self, run: RunInfo, metrics: RoundMetrics) -> StopRun | None:
        return None if run.role == "choice" else self._assess(run, metrics)

    def _assess(self, run: RunInfo, metrics: RoundMetrics) -> StopRun | None:
        value, (best, since) = _value(metrics, self._monitor), self._best[run.key]
        if value < best - self._min_delta:
            self._best[run.key] = (value, metrics.round)
            return None
        if metrics.round - since < self._patience:
            return None
        rounds = f"{self._patience} round{'s' if self._patience > 1 else ''}"
        name = self._monitor.replace("_", " ")
        return StopRun(f"The {name} has not improved for {rounds}, since round {since}.")


def _value(metrics: RoundMetrics, name: str) -> float:
    """Return a metric of a round; InputError if the run does not have it."""
    value = getattr(metrics, name)
    if value is None:
        raise InputError(
            f"monitor: round {metrics.round} has no {name.replace('_', ' ')}; monitor another metric, or let the run "
            "measure it."
        )
    return float(value)
