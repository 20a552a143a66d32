"""Adaptive clipping: the clip of updates follows a quantile of their norms, which is estimated with noise of its own.

Andrew, Thakkar, McMahan and Ramaswamy, Differentially Private Learning with Adaptive Clipping, NeurIPS 2021. Client i
states b_i = 1 if its norm is at most the clip C, else 0. With b the share of ones, estimated with noise, and gamma the
quantile, the next clip is C exp(-eta (b - gamma)). As b_i - 1/2 is in {-1/2, 1/2}, one client moves the sum of these by
1/2. A sum with noise z_u times its sensitivity, released with a sum of such statements with noise sigma, is as private
as one sum with noise z if 1 / z^2 = 1 / z_u^2 + 1 / (2 sigma)^2 (their theorem 1). With a clip for each of G groups,
the statements are a vector, which one client moves by sqrt(G) / 2.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

RATE = 0.2
"""Learning rate eta of the logarithm of the clip, as in the paper."""
DEVIATION = 0.05
"""Standard deviation of the noise of the share of small norms that the paper recommends."""
LARGEST_PART = 0.05
"""Part of 1 / z^2 that the statements take at most. With few clients their noise is above `DEVIATION` then."""


@dataclass(frozen=True)
class NoiseSplit:
    """Noise of a round with adaptive clipping.

    Parameters
    ----------
    updates : float
        Standard deviation of the noise of the sum of updates, as a multiple of its sensitivity (z_u).
    statements : float
        Standard deviation of the noise of each sum of the statements (sigma).
    """

    updates: float
    statements: float


def split_noise(noise: float, clients: float, groups: int = 1) -> NoiseSplit:
    """Return the noise of updates and of statements that is as private as updates alone with `noise`.

    Parameters
    ----------
    noise : float
        Noise multiplier z of the whole round.
    clients : float
        Expected number of clients in a round.
    groups : int, default=1
        Number of groups with a clip, G.

    Examples
    --------
    >>> split = split_noise(1.0, 1000)
    >>> split.statements, round(split.updates, 4)  # 1 / z^2 = 1 / 1.00005^2 + 1 / 100^2
    (50.0, 1.0001)
    """
    if not noise:
        return NoiseSplit(0.0, 0.0)
    statements = max(DEVIATION * clients, noise * math.sqrt(groups / LARGEST_PART) / 2)
    return NoiseSplit((noise**-2 - groups / (2 * statements) ** 2) ** -0.5, statements)


def next_clips(clips: Mapping[str, float], within: Mapping[str, float], quantile: float) -> dict[str, float]:
    """Return the clips of the next round.

    Parameters
    ----------
    clips : mapping of str to float
        Clips of this round, by group.
    within : mapping of str to float
        Estimated share of the clients whose norm was at most the clip; one outside 0..1 is moved to the border.
    quantile : float
        Share that is wanted (gamma).

    Examples
    --------
    >>> next_clips({"delta": 1.0}, {"delta": 1.2}, 0.5)  # exp(-0.2 * 0.5)
    {'delta': 0.9048374180359595}
    """
    return {
        group: clip * math.exp(-RATE * (min(max(within[group], 0.0), 1.0) - quantile)) for group, clip in clips.items()
    }
