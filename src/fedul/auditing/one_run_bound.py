"""Lower bound on epsilon from guesses about canaries in one training run.

Steinke, Nasr, Jagielski, Privacy Auditing with One (1) Training Run, NeurIPS 2023. Each of m canaries is included with
probability 1/2, independently of the others. After the run, the attacker guesses for r of them whether they were
included. If training is (epsilon, 0)-differentially private, the number of right guesses is stochastically dominated by
Binomial(r, 1 / (1 + exp(-epsilon))). With delta, the probability of v or more right guesses is larger by at most
2 m delta max_i P[v > Binomial >= v - i] / i (Theorem 5.2; the code of appendix D computes the same).
"""

from __future__ import annotations

import math

import numpy as np
from scipy import stats

HIGHEST_EPSILON = 64.0
"""Bounds above this are reported as this."""
TOLERANCE = 1e-6


def p_value(canaries: int, guesses: int, correct: int, epsilon: float, delta: float = 0.0) -> float:
    """Return the largest probability of this number of right guesses, or more, under (epsilon, delta)-privacy.

    Parameters
    ----------
    canaries : int
        Canaries, each included with probability 1/2.
    guesses : int
        Canaries that the attacker guesses; the number must not depend on the run.
    correct : int
        Right guesses.
    epsilon, delta : float
        The guarantee.

    Examples
    --------
    >>> p_value(10, 10, 10, epsilon=0.0)  # ten coins
    0.0009765625
    >>> p_value(1000, 100, 90, epsilon=1.0) < 0.001
    True
    """
    if not 0 <= correct <= guesses <= canaries:
        raise ValueError("expected 0 <= correct <= guesses <= canaries.")
    success = 1 / (1 + math.exp(-epsilon))
    tail = float(stats.binom.sf(correct - 1, guesses, success))
    if not delta or not correct:
        return tail
    steps = np.arange(1, correct + 1)
    below = np.cumsum(stats.binom.pmf(correct - steps, guesses, success))  # P[v > Binomial >= v - i]
    return min(1.0, tail + 2 * canaries * delta * float((below / steps).max()))


def epsilon_bound(canaries: int, guesses: int, correct: int, delta: float = 0.0, confidence: float = 0.95) -> float:
    """Return the largest epsilon that the guesses exclude at this confidence; 0 if they exclude none.

    Examples
    --------
    >>> round(epsilon_bound(100, 100, 100), 2), epsilon_bound(100, 100, 50)
    (3.49, 0.0)
    """
    if p_value(canaries, guesses, correct, 0.0, delta) >= 1 - confidence:
        return 0.0
    low, high = 0.0, HIGHEST_EPSILON
    while high - low > TOLERANCE:
        middle = (low + high) / 2
        if p_value(canaries, guesses, correct, middle, delta) < 1 - confidence:
            low = middle
        else:
            high = middle
    return low


def best_bound(
    canaries: int, outcomes: list[tuple[int, int]], delta: float = 0.0, confidence: float = 0.95
) -> tuple[float, int, int]:
    """Return the largest bound over several numbers of guesses, with its guesses and right guesses.

    The confidence holds for all of them at once (Bonferroni), so the largest may be used.

    Parameters
    ----------
    canaries : int
        Canaries.
    outcomes : list of tuple of int
        Guesses, and right ones among them; the numbers of guesses must not depend on the run.
    delta, confidence : float
        As in `epsilon_bound`.
    """
    each = 1 - (1 - confidence) / len(outcomes)
    return max((epsilon_bound(canaries, r, v, delta, each), r, v) for r, v in outcomes)
