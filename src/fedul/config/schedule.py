"""Learning rate over the rounds of a run, as a share of the rate that is set.

The rate of a round follows from the configuration and the number of the round, so a resumed run and a remote site
compute the same. It is constant within a round.
"""

from __future__ import annotations

import math

SCHEDULES = ("constant", "triangular", "cosine")
WARM_UP = 0.2
"""Share of the rounds in which the triangular rate rises."""


def rate_share(schedule: str, number: int, rounds: int) -> float:
    """Return the learning rate of a round as a share of the largest one.

    Parameters
    ----------
    schedule : {"constant", "triangular", "cosine"}
        "triangular" rises in equal steps to 1 in the first fifth of the rounds, then falls in equal steps; "cosine"
        falls from 1 along half a cosine. Neither reaches 0, so that every round learns.
    number : int
        Number of the round, from 1.
    rounds : int
        Number of rounds of the run.

    Returns
    -------
    float
        Above 0, at most 1.

    Examples
    --------
    >>> [rate_share("triangular", number, 5) for number in range(1, 6)]
    [1.0, 0.8, 0.6, 0.4, 0.2]
    >>> [round(rate_share("triangular", number, 10), 2) for number in (1, 2, 3, 10)]
    [0.5, 1.0, 0.89, 0.11]
    >>> [round(rate_share("cosine", number, 4), 2) for number in range(1, 5)]
    [1.0, 0.85, 0.5, 0.15]
    """
    if schedule == "constant":
        return 1.0
    if schedule == "cosine":
        return (1 + math.cos(math.pi * (number - 1) / rounds)) / 2
    peak = max(1, round(WARM_UP * rounds))
    return number / peak if number <= peak else (rounds + 1 - number) / (rounds + 1 - peak)
