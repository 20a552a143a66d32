"""What the coordinator knows of a site."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from fedul.data.files.signature import DataSignature
from fedul.engines.flower.protocol.documents import JoinReply


@dataclass(frozen=True)
class Site(JoinReply):
    """A site that takes part; with secure aggregation its numbers are not known, and are 0.

    Parameters
    ----------
    name : str
        Name of the site.
    node : int
        Flower's node ID of the process that last used this name.
    """

    name: str
    node: int


@dataclass(frozen=True, eq=False)
class PendingSite:
    """A site that has sent its name and the form of its data, and has not joined yet."""

    node: int
    signature: DataSignature


def count_sites(sites: Iterable[Site]) -> dict[str, int]:
    """Return numbers of sites, rows and sets by name, as `SiteTotals.counts` has them with secure aggregation."""
    known = list(sites)
    names = ("rows", "held_out_rows", "sets", "labelled_rows")
    totals = {name: sum(getattr(site, name) for site in known) for name in names}
    return {**totals, "sites": len(known), "identifying_sites": sum(site.identifies_classes for site in known)}
