"""The answer of the clients of a round, combined into the next global weights."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from fedul.algorithms.base import Algorithm
from fedul.core import MOST_SITES, RoundSums, SiteMetrics, Update, Weights
from fedul.training.client_protection import ClientProtection
from fedul.training.counted_updates import CountedUpdates


@dataclass(frozen=True, eq=False)
class Combined:
    """Result of combining the updates of a round.

    Parameters
    ----------
    weights, server_state : dict of str to Tensor
        The next global weights and server state.
    loss : float or None
        Mean training loss; None if it is not released.
    clients : int
        Number of updates; the expected number if the exact one is private.
    clipped : int or None
        Values outside the range of secure aggregation; None without it.
    sites : mapping of str to SiteMetrics
        Losses and rows of single clients; empty if there are too many, or they are not known or private.
    """

    weights: Weights
    server_state: Weights
    loss: float | None
    clients: int
    clipped: int | None = None
    sites: Mapping[str, SiteMetrics] = field(default_factory=dict)


def combine(
    answer: Iterator[Update] | RoundSums,
    algorithm: Algorithm,
    protection: ClientProtection | None,
    weights: Weights,
    server_state: Weights,
    names: Sequence[str],
    number: int,
) -> Combined:
    """Combine the updates of a round, or sums over them.

    Parameters
    ----------
    answer : iterator of Update, or RoundSums
        What the engine returned.
    algorithm : Algorithm
        How the mean becomes the next weights.
    protection : ClientProtection or None
        How whole clients are protected; None if they are not.
    weights, server_state : dict of str to Tensor
        Those that clients have received; not changed.
    names : sequence of str
        All clients, whether they took part or not.
    number : int
        Number of the round.
    """
    if protection is not None:
        weights, server_state = protection.advance(algorithm, weights, server_state, answer, names, number)
        return Combined(weights, server_state, None, protection.expected_clients(names))
    if isinstance(answer, RoundSums):
        weights, server_state = algorithm.advance(weights, server_state, answer.mean, len(names))
        return Combined(weights, server_state, answer.loss, answer.clients, answer.clipped)
    updates = CountedUpdates(answer, singly=len(names) <= MOST_SITES)
    weights, server_state = algorithm.aggregate(weights, server_state, updates, len(names))
    return Combined(weights, server_state, updates.mean_loss(), updates.clients, sites=updates.sites)
