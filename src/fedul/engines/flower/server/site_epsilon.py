"""What the rows of each site have paid in a run, as the coordinator knows it from the replies of the sites.

Sites charge themselves, and state epsilon with every update. A site whose reply was lost has paid for more than it has
stated. It refuses to pay more than `dp-epsilon` of the run, so until it replies again, that is stated for it. The same
holds with secure aggregation, where sites state no numbers of their own.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping

from fedul.config import TrainConfig


class SiteEpsilon:
    """Epsilon of the rows by site.

    Parameters
    ----------
    config : TrainConfig
        The configuration of the run.
    earlier : mapping of str to float
        What sites had paid when the run was stopped; they may have paid more since.

    Examples
    --------
    >>> epsilon = SiteEpsilon(TrainConfig(dp_epsilon=8.0), {})
    >>> epsilon.ask(["north", "south"])
    >>> epsilon.note("north", 0.9)
    >>> epsilon.by_site
    {'north': 0.9, 'south': 8.0}
    """

    def __init__(self, config: TrainConfig, earlier: Mapping[str, float]) -> None:
        self._most = math.inf if config.dp_epsilon is None else config.dp_epsilon
        self._protects = config.protects_rows
        self._paid = dict(earlier)
        self._unknown = set(earlier)

    def ask(self, sites: Collection[str]) -> None:
        """Note that sites are asked for an update."""
        self._unknown.update(sites)

    def note(self, site: str, epsilon: float | None) -> None:
        """Note what a site states; None stands for infinity."""
        paid = math.inf if epsilon is None or not epsilon >= 0 else epsilon
        self._paid[site] = max(self._paid.get(site, 0.0), paid)
        self._unknown.discard(site)

    @property
    def by_site(self) -> dict[str, float]:
        """Epsilon of each site that was asked for an update; empty if rows are not protected."""
        if not self._protects:
            return {}
        sites = sorted({*self._paid, *self._unknown})
        paid = {site: self._paid.get(site, 0.0) for site in sites}
        return {site: max(paid[site], self._most) if site in self._unknown else paid[site] for site in sites}
