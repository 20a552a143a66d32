"""Intervals of shares: for the population that a classifier is for, and for rows just like those of the clients."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from fedul.core import Z_95

# Chosen on digits federations of seeds 100 to 199; docs/results/label-free.md reports on 200 to 299.
POPULATION = 0.03
"""Standard error of the difference between the population and the clients' rows, in units of sqrt(p (1 - p)).

On digits, the error on other writers is 1 to 1.5 points higher. The clients' rows cannot reveal that.
"""

POPULATION_CLASS = 0.14
"""The same for the error on a single class: classes vary more than their mean."""


@dataclass(frozen=True)
class IntervalEstimate:
    """An estimate with a 95 % interval for the population, and one for rows just like those of the clients."""

    value: float
    low: float
    high: float
    clients_low: float
    clients_high: float
    standard_error: float = math.nan  # of the value, for rows like those of the clients

    def at_least(self, low: float, clients_low: float) -> IntervalEstimate:
        """Return the estimate with lower bounds known from elsewhere; its value stays in its interval."""
        low, clients_low = min(low, self.value), min(clients_low, self.value)
        return replace(self, low=max(self.low, low), clients_low=max(self.clients_low, clients_low))

    def at_most(self, high: float, clients_high: float) -> IntervalEstimate:
        """Return the estimate with upper bounds known from elsewhere."""
        high, clients_high = max(high, self.value), max(clients_high, self.value)
        return replace(self, high=min(self.high, high), clients_high=min(self.clients_high, clients_high))


def interval_estimate(accuracy: float, variance: float, rows: int) -> IntervalEstimate:
    """Return an accuracy that was estimated from `rows` rows, with its intervals."""
    return share_estimate(accuracy, variance, POPULATION, 0.5 / rows)


def share_estimate(value: float, variance: float, population: float, least: float) -> IntervalEstimate:
    """Estimate of a share; its intervals are computed on the log-odds, so that they stay within 0..1."""
    value = float(np.clip(value, 0, 1))
    inside = float(np.clip(value, min(least, 0.5), max(1 - least, 0.5)))  # log-odds of 0 and 1 are infinite
    clients_low, clients_high = interval(inside, variance)
    low, high = interval(inside, variance + population**2 * inside * (1 - inside))
    ends = min(low, value), max(high, value), min(clients_low, value), max(clients_high, value)
    return IntervalEstimate(value, *ends, standard_error=math.sqrt(variance))


def interval(value: float, variance: float) -> tuple[float, float]:
    """Return the 95 % interval of a share, computed on the log-odds."""
    middle = np.log(value / (1 - value))
    reach = Z_95 * np.sqrt(variance) / (value * (1 - value))
    low, high = 1 / (1 + np.exp(-np.clip([middle - reach, middle + reach], -50, 50)))
    return float(low), float(high)
