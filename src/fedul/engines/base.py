"""The interface of engines: an engine runs clients and yields their updates, which the algorithm aggregates."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import torch

from fedul._utils.randomness import torch_generator
from fedul.config import TrainConfig
from fedul.core import RoundSums, Update, Weights
from fedul.engines.held_out import HeldOutSums, Reference


@dataclass(frozen=True, eq=False)
class Broadcast:
    """What the coordinator sends to every client at the start of a round.

    Parameters
    ----------
    round : int
        Number of the round, from 1.
    weights : dict of str to Tensor
        Global weights.
    received : dict of str to Tensor
        Further tensors of the algorithm (`Algorithm.broadcast`).
    directive : mapping of str to float
        Values of the method for all clients (`Method.directive`).
    evaluate : dict of str to Tensor
        Weights that clients also evaluate on their held-out rows; empty for none.
    reference : Reference or None
        The round that `evaluate` is compared with.
    clips : mapping of str to float
        Largest norm of each group of tensors of an update, where clients are protected (`fedul.privacy.clipping`).
    """

    round: int
    weights: Weights
    received: Weights = field(default_factory=dict)
    directive: Mapping[str, float] = field(default_factory=dict)
    evaluate: Weights = field(default_factory=dict)
    reference: Reference | None = None
    clips: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class SiteTraffic:
    """Messages of one site: seconds until it replied to the last request for an update, and bytes of tensors."""

    seconds: float | None = None
    bytes_sent: int = 0
    bytes_received: int = 0

    def __add__(self, later: SiteTraffic) -> SiteTraffic:
        return SiteTraffic(
            self.seconds if later.seconds is None else later.seconds,
            self.bytes_sent + later.bytes_sent,
            self.bytes_received + later.bytes_received,
        )


@dataclass(frozen=True)
class EngineMetrics:
    """Metrics of an engine since they were last collected.

    Parameters
    ----------
    site_errors : mapping of str to str
        Sites that failed, with the reason.
    evaluated_by : tuple of str
        Sites that evaluated the last round, if not all of them did.
    bytes_sent, bytes_received : int or None
        Traffic; None if the engine sends no messages.
    sites : mapping of str to SiteTraffic
        Traffic by site; empty if the engine sends no messages.
    """

    site_errors: Mapping[str, str] = field(default_factory=dict)
    evaluated_by: tuple[str, ...] = ()
    bytes_sent: int | None = None
    bytes_received: int | None = None
    sites: Mapping[str, SiteTraffic] = field(default_factory=dict)

    def __add__(self, later: EngineMetrics) -> EngineMetrics:
        return EngineMetrics(
            {**self.site_errors, **later.site_errors},
            later.evaluated_by or self.evaluated_by,
            _sum(self.bytes_sent, later.bytes_sent),
            _sum(self.bytes_received, later.bytes_received),
            add_traffic(self.sites, later.sites),
        )


def add_traffic(first: Mapping[str, SiteTraffic], later: Mapping[str, SiteTraffic]) -> dict[str, SiteTraffic]:
    """Return the traffic by site of two periods."""
    names = sorted({*first, *later})
    return {name: first.get(name, SiteTraffic()) + later.get(name, SiteTraffic()) for name in names}


def _sum(first: int | None, second: int | None) -> int | None:
    return second if first is None else first + (second or 0)


class Engine(Protocol):
    """Runs clients: in this process, or at remote sites."""

    @property
    def piggybacks_evaluation(self) -> bool:
        """Whether a round is evaluated by the clients that train the next one, because messages are expensive."""

    @property
    def names(self) -> Sequence[str]:
        """Clients that can take part in the next round, in a fixed order."""

    @property
    def warnings(self) -> Sequence[str]:
        """Warnings about how the clients will run."""

    @property
    def epsilon(self) -> Mapping[str, float]:
        """Epsilon of the rows of each client so far; empty if rows are not protected."""

    def begin_round(self, number: int, clients: Sequence[str]) -> None:
        """Charge these clients for what a round will disclose about their rows, before it does.

        Raises
        ------
        BudgetSpent
            If the privacy budget of a client does not suffice.
        """

    def train(self, broadcast: Broadcast, clients: Sequence[str]) -> Iterator[Update] | RoundSums:
        """Return the updates of these clients, in this order, all from the same weights.

        With ``--secure-aggregation`` it returns sums over them, and no single update.
        """

    def evaluate_held_out(self, weights: Weights, reference: Reference | None = None) -> Mapping[str, HeldOutSums]:
        """Return held-out sums by evaluator, in a fixed order; an engine may evaluate several clients as one.

        Every evaluator compares the weights with the reference, if there is one, on the same rows.
        """

    def collect_metrics(self) -> EngineMetrics:
        """Return engine metrics since the last call."""


def participants(names: Sequence[str], number: int, config: TrainConfig) -> list[str]:
    """Return the clients that participate in a round."""
    count = config.participants(len(names))
    if count == len(names):
        return list(names)
    chosen = torch.randperm(len(names), generator=torch_generator(config.seed, number, "participation"))[:count]
    return [names[i] for i in sorted(chosen.tolist())]
