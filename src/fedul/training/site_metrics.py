"""Metrics of single clients in a round, as far as the coordinator knows them and may tell.

Under secure aggregation it knows no loss and no row count of a single client. Where it is private who takes part,
nothing is recorded by client.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from fedul.core import MOST_SITES, SiteMetrics
from fedul.engines.base import EngineMetrics
from fedul.privacy.statement import finite
from fedul.training.client_protection import ClientProtection


def trained_sites(
    names: Sequence[str],
    chosen: Sequence[str],
    known: Mapping[str, SiteMetrics],
    errors: Mapping[str, str],
    protection: ClientProtection | None,
) -> dict[str, SiteMetrics]:
    """Return which of the clients of a round trained, with what is known of their updates.

    Parameters
    ----------
    names : sequence of str
        All clients.
    chosen : sequence of str
        Those that were asked to train.
    known : mapping of str to SiteMetrics
        Those whose update the coordinator has seen.
    errors : mapping of str to str
        Those that failed.
    protection : ClientProtection or None
        How whole clients are protected.
    """
    if len(names) > MOST_SITES or (protection is not None and protection.hides_participants):
        return {}
    return {name: known.get(name) or SiteMetrics("failed" if name in errors else "trained") for name in chosen}


def complete_sites(
    sites: Mapping[str, SiteMetrics], metrics: EngineMetrics, epsilon: Mapping[str, float]
) -> dict[str, SiteMetrics]:
    """Return the metrics of the clients of a round with their traffic, and the epsilon of their rows so far."""
    completed = {}
    for name, site in sites.items():
        traffic = metrics.sites.get(name)
        if traffic is not None:
            seconds = None if traffic.seconds is None else round(traffic.seconds, 4)
            site = replace(site, seconds=seconds, bytes_sent=traffic.bytes_sent, bytes_received=traffic.bytes_received)
        completed[name] = replace(site, epsilon=finite(epsilon[name])) if name in epsilon else site
    return completed
