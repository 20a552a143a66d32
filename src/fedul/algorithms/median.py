"""Median: robust aggregation by the median of the updates in every coordinate.

Yin et al., Byzantine-Robust Distributed Learning: Towards Optimal Statistical Rates, ICML 2018. For an even number of
clients the median is the mean of the middle two values. All updates of a round are in memory at the same time.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from fedul.algorithms.trimmed_mean import CoordinateWise


@dataclass(frozen=True)
class Median(CoordinateWise):
    """The global model moves by the coordinate-wise median of the updates; all clients count the same.

    With one or two clients it is FedAvg.

    Parameters
    ----------
    step : float, default=1.0
        Global step size.
    """

    def center(self, values: Tensor) -> Tensor:
        ordered, half = values.sort(0).values, len(values) // 2
        return ordered[half] if len(values) % 2 else (ordered[half - 1] + ordered[half]) / 2
