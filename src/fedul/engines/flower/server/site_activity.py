"""What the coordinator observes of its sites while a run goes on, for the status of the run (`fedul watch`).

These are times and sizes of messages, which the coordinator sees under every setting; nothing of what a site computes.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from fedul.privacy.statement import finite
from fedul.training.status import SiteState, SiteStatus, SiteTable

if TYPE_CHECKING:
    from fedul.engines.flower.server.site_registry import SiteRegistry

REFRESH_SECONDS = 5.0
"""Time between two looks at which sites are connected, while replies are awaited."""
TRAIN = "train"
"""Kind of the requests whose duration is shown."""
PRIVATE = (
    "Clients are private and take part at random: whether a site took part in a round, and so when it was last seen, "
    "its time and its traffic, must stay at the coordinator."
)


@dataclass
class NodeActivity:
    """Requests to one node and its replies."""

    kind: str = ""
    asked: float = 0.0
    is_awaited: bool = False
    last_seen: float | None = None
    seconds: float | None = None
    sent: int = 0
    received: int = 0
    problem: str = ""


@dataclass(eq=False)
class SiteActivity:
    """Requests to all nodes and their replies.

    Parameters
    ----------
    connected : set of int
        The nodes that were connected when this was last asked.
    on_change : callable
        Called when something has changed.
    """

    connected: set[int] = field(default_factory=set)
    on_change: Callable[[], None] = lambda: None
    _nodes: defaultdict[int, NodeActivity] = field(default_factory=lambda: defaultdict(NodeActivity))
    _refreshed: float = 0.0

    def asked(self, node: int, kind: str, size: int) -> None:
        """Record a request of this many bytes."""
        activity = self._nodes[node]
        activity.kind, activity.asked, activity.is_awaited = kind, time.time(), True
        activity.sent += size

    def replied(self, node: int, size: int, problem: str = "") -> None:
        """Record a reply of this many bytes, with the reason if it cannot be used."""
        activity = self._nodes[node]
        activity.last_seen, activity.is_awaited, activity.problem = time.time(), False, problem
        activity.received += size
        if activity.kind == TRAIN and not problem:
            activity.seconds = activity.last_seen - activity.asked
        self.changed()

    def failed(self, node: int, problem: str) -> None:
        """Record that there is no reply."""
        self._nodes[node].is_awaited, self._nodes[node].problem = False, problem
        self.changed()

    def move(self, old: int, new: int) -> None:
        """Count what another node did for a site that is now at a new one."""
        if old != new:
            earlier, activity = self._nodes.pop(old, NodeActivity()), self._nodes[new]
            activity.sent += earlier.sent
            activity.received += earlier.received

    def is_due(self) -> bool:
        """Return whether it is time to look again at which sites are connected."""
        return time.monotonic() - self._refreshed >= REFRESH_SECONDS

    def changed(self) -> None:
        """Report a change."""
        self._refreshed = time.monotonic()
        self.on_change()

    def site(self, name: str, node: int, *, private: bool) -> SiteStatus:
        """Return the status of the site at a node."""
        activity, is_away = self._nodes[node], node not in self.connected
        if private:
            return SiteStatus(name, "away" if is_away else "private")
        state: SiteState = "away" if is_away else "failed" if activity.problem else "ready"
        if activity.is_awaited and not is_away:
            state = "working"
        return SiteStatus(
            name,
            state,
            _rounded(activity.last_seen),
            _rounded(activity.seconds),
            activity.sent,
            activity.received,
            activity.problem,
        )


def site_table(
    registry: SiteRegistry, *, private: bool = False, epsilon: Callable[[], Mapping[str, float]] = dict
) -> SiteTable:
    """Return what is known of the sites of a run.

    Parameters
    ----------
    registry : SiteRegistry
        The sites.
    private : bool
        Whether to leave out what tells whether a site took part in a round.
    epsilon : callable
        Returns what the rows of each site have paid so far, as the run states it.
    """
    nodes, activity = registry.nodes, registry.transport.activity
    sites = [activity.site(name, node, private=private) for name, node in sorted(nodes.items())]
    sites += [SiteStatus(name, "refused", problem=reason) for name, reason in sorted(registry.refused.items())]
    if not private:
        paid = epsilon()
        sites = [replace(site, epsilon=finite(paid[site.name])) if site.name in paid else site for site in sites]
    return SiteTable(len(nodes), sites, PRIVATE if private else "")


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 3)
