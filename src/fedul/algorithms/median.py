"""The median: in every coordinate the model moves by the median of the clients' updates, whatever a minority sends.

Yin et al., Byzantine-Robust Distributed Learning: Towards Optimal Statistical Rates, ICML 2018. Of an even number of
clients it is the mean of the middle two. All updates of a round are in memory at once.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from torch import Tensor

from fedul.algorithms.base import Algorithm, Update, Weights, refuse_rows
from fedul.algorithms.trimmed_mean import by_coordinate


@dataclass(frozen=True)
class Median(Algorithm):
    """The coordinate-wise median; clients count the same."""

    def __post_init__(self) -> None:
        super().__post_init__()
        refuse_rows(self)

    def aggregate(
        self, weights: Weights, state: Weights, updates: Iterable[Update], clients: int
    ) -> tuple[Weights, Weights]:
        return by_coordinate(_middle, weights, updates, self.step), state


def _middle(values: Tensor) -> Tensor:
    ordered, half = values.sort(0).values, len(values) // 2
    return ordered[half] if len(values) % 2 else (ordered[half - 1] + ordered[half]) / 2
