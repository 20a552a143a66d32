"""Which sites share masks and secrets with which: all with all, and from twenty sites on a neighbour graph.

Bell et al., Secure Single-Server Aggregation with (Poly)Logarithmic Overhead, CCS 2020 (SecAgg+): sites stand in a
random order on a circle, and each is a neighbour of the k / 2 next ones on either side (a Harary graph). Here the order
follows from the digest of all signed keys, which neither the coordinator nor a site controls.

k and t are the smallest for which, with the stated shares of colluding and of lost sites chosen before the order is
known,

- any k given places have at most c colluding sites, but for a probability of 2^-SECURITY_BITS over all pairs of runs
  of k / 2 places (the neighbours of a site are such a pair),
- t > (k + 1 + c) / 2: the coordinator cannot collect t shares of both secrets of a site, even if it tells sites
  different lists of survivors (the semi-malicious setting of the paper),
- any k given places have at least t sites that stay, but for a probability of 2^-AVAILABILITY_BITS.

The sums over parts of the graph that are not connected could be told apart. Without the sites that are lost or collude
the graph falls apart only if two runs of k / 2 neighbouring places on the circle are without any other site. A site
therefore reveals shares only if every two runs have more than c survivors between them (`is_safe`). So the coordinator,
who chooses whom it leaves out after it knows the order, cannot split the sum.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np

FEWEST_FOR_GRAPH = 20
"""Sites from which on a neighbour graph is used."""
COLLUDING = 0.2
"""Share of the sites that may collude with the coordinator, in a neighbour graph."""
LOST = 0.2
"""Share of the sites that may drop out at random without loss of the round, in a neighbour graph."""
SECURITY_BITS = 80
"""40 bits of statistical security, and 40 for a coordinator that tries 2^40 lists of keys to get a better order."""
AVAILABILITY_BITS = 20


@dataclass(frozen=True)
class GraphSize:
    """Size of a neighbour graph.

    Parameters
    ----------
    neighbours : int
        Neighbours of every site (k).
    threshold : int
        Shares that determine a secret (t), of the k + 1 that a site makes: one for each neighbour and one for itself.
    colluding : int
        Largest number of colluding sites in any k given places (c).
    """

    neighbours: int
    threshold: int
    colluding: int


@lru_cache
def graph_size(sites: int, threshold: int) -> GraphSize:
    """Return the size of the graph.

    Parameters
    ----------
    sites : int
        Number of sites with keys (n).
    threshold : int
        Sites that must stay to the end (T).

    Examples
    --------
    >>> graph_size(5, 4)
    GraphSize(neighbours=4, threshold=4, colluding=2)
    >>> graph_size(200, 140)
    GraphSize(neighbours=122, threshold=82, colluding=40)
    """
    complete = GraphSize(sites - 1, threshold, 2 * threshold - sites - 1)
    if sites < FEWEST_FOR_GRAPH:
        return complete
    from scipy.stats import hypergeom

    pairs = sites**2 / 2  # of runs of k / 2 places, more than of sites
    colluding, lost = int(COLLUDING * sites), int(LOST * sites)
    for k in range(2, sites - 1, 2):
        counts = np.arange(k + 1)
        unlikely = pairs * hypergeom.sf(counts, sites, colluding, k) <= 2.0**-SECURITY_BITS
        c = int(counts[unlikely][0])
        t = (k + 1 + c) // 2 + 1
        if pairs * hypergeom.cdf(t - 1, sites, sites - lost, k) <= 2.0**-AVAILABILITY_BITS:
            return GraphSize(k, t, c)
    return complete


@dataclass(frozen=True)
class Neighbourhoods:
    """The neighbour graph of an aggregation.

    Parameters
    ----------
    sites : tuple of str
        Names of the sites with keys, in ascending order.
    order : tuple of int
        Their numbers, from 0, in the order on the circle.
    size : GraphSize
        Size of the graph.
    """

    sites: tuple[str, ...]
    order: tuple[int, ...]
    size: GraphSize

    @classmethod
    def of(cls, sites: tuple[str, ...], threshold: int, digest: bytes) -> Neighbourhoods:
        """Return the graph that the digest of the list of keys decides.

        Parameters
        ----------
        sites : tuple of str
            Names of the sites with keys, in ascending order.
        threshold : int
            Sites that must stay to the end.
        digest : bytes
            `KeyList.digest`.
        """
        ranks = [hashlib.sha256(digest + name.encode()).digest() for name in sites]
        order = tuple(sorted(range(len(sites)), key=ranks.__getitem__))
        return cls(sites, order, graph_size(len(sites), threshold))

    def neighbours(self, site: str) -> tuple[str, ...]:
        """Return the names of the neighbours of a site, in ascending order."""
        if self.size.neighbours >= len(self.sites) - 1:
            return tuple(name for name in self.sites if name != site)
        place, half = self._places[site], self.size.neighbours // 2
        steps = [*range(-half, 0), *range(1, half + 1)]
        return tuple(sorted(self.sites[self.order[(place + step) % len(self.order)]] for step in steps))

    def holder(self, site: str) -> int:
        """Return the number of a site as a holder of shares, from 1."""
        return self._numbers[site] + 1

    @cached_property
    def _numbers(self) -> dict[str, int]:
        return {name: number for number, name in enumerate(self.sites)}

    @cached_property
    def _places(self) -> dict[str, int]:
        return {self.sites[number]: place for place, number in enumerate(self.order)}

    def is_safe(self, survivors: Collection[str]) -> bool:
        """Return whether the sum over these sites cannot be split, whichever of them collude."""
        if self.size.neighbours >= len(self.sites) - 1:
            return True
        half = self.size.neighbours // 2
        present = [self.sites[number] in survivors for number in self.order]
        return _fewest_in_two_runs(present, half) > self.size.colluding


def _fewest_in_two_runs(present: Sequence[bool], half: int) -> int:
    """Return the lowest number of sites that are present in two disjoint runs of `half` places on the circle."""
    n = len(present)
    sums = np.concatenate([[0], np.cumsum([*present, *present])])
    runs = sums[half : half + n] - sums[:n]  # (n,) sites in the run that starts at each place
    others = [int(runs[(start + np.arange(half, n - half + 1)) % n].min()) for start in range(n)]
    return int((runs + np.array(others)).min())
