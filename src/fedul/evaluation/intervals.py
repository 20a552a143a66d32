"""Intervals of shares, computed on the log-odds so that they stay within 0..1."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from fedul.core import Z_95


@dataclass(frozen=True)
class IntervalEstimate:
    """An estimate with its 95 % interval and standard error."""

    value: float
    low: float
    high: float
    standard_error: float = math.nan

    @property
    def width(self) -> float:
        """Width of the interval."""
        return self.high - self.low

    def at_least(self, low: float) -> IntervalEstimate:
        """Return the estimate with a lower bound known from elsewhere; its value stays in its interval."""
        return replace(self, low=max(self.low, min(low, self.value)))

    def at_most(self, high: float) -> IntervalEstimate:
        """Return the estimate with an upper bound known from elsewhere; its value stays in its interval."""
        return replace(self, high=min(self.high, max(high, self.value)))

    def lowered(self, shift: float) -> IntervalEstimate:
        """Return the estimate with its lower end moved down."""
        return replace(self, low=max(0.0, self.low - shift))

    def raised(self, shift: float) -> IntervalEstimate:
        """Return the estimate with its upper end moved up."""
        return replace(self, high=min(1.0, self.high + shift))


def share_estimate(value: float, variance: float, rows: float, quantile: float = Z_95) -> IntervalEstimate:
    """Return the estimate of a share.

    Parameters
    ----------
    value : float
        The estimate; values outside of 0..1 are moved to the nearest end.
    variance : float
        Its variance.
    rows : float
        Number of rows that it is based on.
    quantile : float
        Quantile of the distribution of the estimate, in standard errors.

    Examples
    --------
    >>> estimate = share_estimate(0.9, 0.0004, 1000)
    >>> round(estimate.low, 3), round(estimate.high, 3)
    (0.853, 0.933)
    >>> estimate = share_estimate(1.0, 0.0001, 1000)
    >>> round(estimate.low, 3), round(estimate.high, 3)
    (0.932, 1.0)
    """
    value = float(np.clip(value, 0, 1))
    # Log-odds of 0 and 1 are infinite, and near these a standard error means little on their scale.
    least = min(max(0.5 / max(rows, 1.0), math.sqrt(variance)), 0.5)
    inside = float(np.clip(value, least, 1 - least))
    middle, reach = np.log(inside / (1 - inside)), quantile * math.sqrt(variance) / (inside * (1 - inside))
    low, high = 1 / (1 + np.exp(-np.clip([middle - reach, middle + reach], -50, 50)))
    return IntervalEstimate(value, min(float(low), value), max(float(high), value), math.sqrt(variance))
