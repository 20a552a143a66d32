"""Which sets of sites may be summed: two sums over sets that differ in one site would disclose what this site sent.

The protocol reveals the sum of each aggregation over one set of sites. But a coordinator may ask for the same again,
for example after it claimed that a site was lost. From several sums it knows their differences too. Sums over sets S1,
S2, ... are combinations of the sums over the parts into which these sets divide all sites: sites that are in the same
of these sets are in one part. If no part is smaller than the cohort that a site demands, no combination is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence


def smallest_part(sets: Sequence[Collection[str]]) -> int:
    """Return the size of the smallest part into which sets divide their sites.

    Examples
    --------
    >>> smallest_part([["a", "b", "c"], ["a", "b", "c"]])
    3
    >>> smallest_part([["a", "b", "c"], ["a", "b"]])  # the difference is what c sent
    1
    """
    names = {name for each in sets for name in each}
    parts = Counter(tuple(name in each for each in sets) for name in names)
    return min(parts.values(), default=0)
