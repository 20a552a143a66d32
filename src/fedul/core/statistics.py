"""The significance level of all tests, the width of all 95 % intervals, and the paired t-test."""

from __future__ import annotations

from collections.abc import Sequence

SIGNIFICANCE = 0.05
"""A p-value below this is significant: on the command line, in reports, cards, comparisons and tables."""

Z_95 = 1.959964
"""Standard errors on either side of a 95 % interval."""


def paired_p_value(one: Sequence[float], other: Sequence[float]) -> float | None:
    """Return the p-value of the two-sided paired t-test; None for a single pair.

    Examples
    --------
    >>> paired_p_value([0.1, 0.2, 0.3], [0.1, 0.2, 0.3]), paired_p_value([0.1], [0.2])
    (1.0, None)
    """
    if len(one) < 2:
        return None
    differences = [a - b for a, b in zip(one, other, strict=True)]
    if max(differences) == min(differences):  # no spread: the test would divide by zero
        return 1.0 if differences[0] == 0 else 0.0
    from scipy.stats import ttest_rel

    return float(ttest_rel(one, other).pvalue)
