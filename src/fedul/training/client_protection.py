"""Differential privacy of clients in a run: what it allows, its noise, and what each round is charged.

Everything that depends on single clients is private or left out: who takes part, their losses, held-out sums, early
stopping and the choice of the round. The last round is delivered, as with private rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import chain

from torch import nn

from fedul.algorithms.base import Algorithm, declared_update
from fedul.algorithms.mean import mean_update
from fedul.config import TrainConfig
from fedul.core import MeanUpdate, RoundSums, Update, UpdateSpec, Weights
from fedul.engines.base import EngineMetrics
from fedul.errors import InputError
from fedul.privacy.accounting import Gaussian, noise_for
from fedul.privacy.client_privacy import ClientPrivacy, PrivateMean, algorithm_state, floor_variances
from fedul.privacy.ledger import Budget, Charge, Ledger
from fedul.privacy.statement import finite
from fedul.privacy.update_chain import build_update_chain

RELEASE = "mean update"
"""Name of the release of a round in the ledger."""
PAYER = "each client"
"""Name in the ledger: all clients pay the same."""


def plan_client_privacy(config: TrainConfig) -> ClientPrivacy:
    """Return the mechanism of a run, with the smallest noise that stays within its epsilon over all rounds.

    Parameters
    ----------
    config : TrainConfig
        The configuration, with a number of rounds, and `client_dp_epsilon` or `client_dp_noise`.

    Examples
    --------
    >>> plan = plan_client_privacy(TrainConfig(client_dp_epsilon=8, participation=0.1, rounds=30))
    >>> round(plan.noise, 2), plan.rate
    (0.69, 0.1)
    """
    noise, rate, rounds = config.client_dp_noise, config.participation, config.rounds
    if noise is None:
        if config.client_dp_epsilon is None:
            raise ValueError("neither client_dp_epsilon nor client_dp_noise is given.")
        noise = noise_for(config.client_dp_epsilon, config.client_dp_delta, lambda z: [Gaussian(z, rate, rounds)])
    seed = config.seed if config.dp_seeded else None
    return ClientPrivacy(noise, config.client_dp_clip, rate, config.client_dp_quantile, seed)


class ClientProtection:
    """The mechanism of a run, and its ledger.

    Parameters
    ----------
    config : TrainConfig
        The configuration, with a number of rounds.
    spec : UpdateSpec
        What an update holds as it leaves a client.
    ledger : Ledger
        What has been released before, if the run is resumed. Its noise is used again.
    """

    def __init__(self, config: TrainConfig, spec: UpdateSpec, ledger: Ledger) -> None:
        self._ledger, self._delta = ledger, config.client_dp_delta
        epsilon = config.client_dp_epsilon
        self._budget = None if epsilon is None else Budget(epsilon, self._delta, "client-dp-epsilon")
        earlier = {charge.round: charge.mechanism.noise for charge, _ in ledger.entries()}
        if earlier:
            config = replace(config, client_dp_epsilon=None, client_dp_noise=earlier[max(earlier)])
        self._charged = {0, *earlier}
        self.mean = PrivateMean(plan_client_privacy(config), spec)

    def begin_round(self, number: int, names: Sequence[str]) -> list[str]:
        """Charge a round before it begins, and return the clients that take part in it.

        Raises
        ------
        BudgetSpent
            If the budget does not suffice.
        InputError
            If the ledger does not have the round before, so that the privacy that is spent is not known.
        """
        if number - 1 not in self._charged:
            raise InputError(
                f"{self._ledger.file or 'the ledger of privacy'}: does not have round {number - 1}, which the run has, "
                "so the privacy that is spent is not known; restore a copy of it, or start a new run in another --out."
            )
        privacy = self.mean.privacy
        charge = Charge(RELEASE, Gaussian(privacy.noise, privacy.rate), number)
        self._ledger.charge({PAYER: charge}, self._budget)
        self._charged.add(number)
        return self.mean.participants(names, number)

    def advance(
        self,
        algorithm: Algorithm,
        weights: Weights,
        server_state: Weights,
        answer: Iterable[Update] | RoundSums,
        names: Sequence[str],
        number: int,
    ) -> tuple[Weights, Weights]:
        """Return the next global weights and server state, from the noisy mean of the updates of a round.

        Parameters
        ----------
        algorithm : Algorithm
            How the mean becomes the next weights.
        weights, server_state
            Those that clients have received.
        answer : iterable of Update, or RoundSums
            The updates of the participants, none if nobody takes part; or their mean, under secure aggregation.
        names : sequence of str
            All clients, whether they took part or not.
        number : int
            Number of the round.
        """
        if isinstance(answer, RoundSums):
            mean: MeanUpdate | None = answer.mean
        else:
            updates = iter(answer)
            first = next(updates, None)
            mean = None if first is None else mean_update(chain([first], updates), "uniform")
        released, clips = self.mean.release(mean, self.mean.clips(server_state), len(names), number)
        weights, server_state = algorithm.advance(weights, algorithm_state(server_state), released, len(names))
        return floor_variances(weights), {**server_state, **clips}

    @property
    def epsilon(self) -> float | None:
        """Epsilon of every client so far; None if it is not finite."""
        return finite(self._ledger.epsilon(PAYER, self._delta))

    def expected_clients(self, names: Sequence[str]) -> int:
        """Return the expected number of participants: the exact one is private."""
        return round(self.mean.privacy.rate * len(names))

    def publishable(self, metrics: EngineMetrics) -> EngineMetrics:
        """Return engine metrics without those that tell who took part, or how many did, if that is private."""
        return EngineMetrics() if self.hides_participants else metrics

    @property
    def hides_participants(self) -> bool:
        """Whether it is private which clients take part in a round."""
        return self.mean.privacy.rate < 1

    def warnings(self, clients: int) -> list[str]:
        """Return a warning if there are too few clients to learn anything beside the noise."""
        relative = self.mean.relative_noise(clients)
        if relative <= 1:
            return []
        return [
            f"with {clients} clients the noise that protects them is about {relative:.2g} times as long as the longest "
            f"mean update of a round; the classifier will hardly learn. The two are as long with about "
            f"{clients * relative:,.0f} clients."
        ]


def protect_clients(
    config: TrainConfig, algorithm: Algorithm, module: nn.Module, ledger: Ledger | None = None
) -> ClientProtection | None:
    """Return how a run protects clients; None if it does not. The ledger is in memory by default."""
    if not config.protects_clients:
        return None
    spec = build_update_chain(config).declare(declared_update(algorithm, module))
    return ClientProtection(config, spec, ledger or Ledger())


def check_client_protection(config: TrainConfig, algorithm: Algorithm, clients: int) -> None:
    """Refuse what cannot be private for whole clients.

    Parameters
    ----------
    config : TrainConfig
        The configuration.
    algorithm : Algorithm
        How updates become a model.
    clients : int
        Number of clients.

    Raises
    ------
    InputError
        With the reason.
    """
    if not config.protects_clients:
        return
    name = config.algorithm_name
    problems: Sequence[tuple[bool, str]] = (
        (
            bool(algorithm.single_updates_reason),
            f"algorithm {name}: {algorithm.single_updates_reason}, and noise protects a sum only; use fedavg",
        ),
        (
            algorithm.weighting != "uniform",
            f"algorithm {name}: weighting by rows lets a large client move the mean by more than its clip, and "
            "discloses how many rows it has; use weighting=uniform",
        ),
        (
            algorithm.personalizes,
            f"algorithm {name}: delivers a classifier of every client, which nothing protects; use fedavg",
        ),
        (
            type(algorithm).prepare is not Algorithm.prepare,
            f"algorithm {name}: changes updates after they are clipped, by numbers that depend on single clients; use "
            "fedavg",
        ),
        (
            config.secure_aggregation and config.participation < 1,
            "participation: with secure-aggregation all clients must take part, because a random number of them may be "
            "too few to hide one; use participation 1",
        ),
        (
            config.protects_rows and config.participation < 1,
            "participation: with private rows too, all clients must take part, because their rows pay for a number of "
            "rounds that is known before; use participation 1",
        ),
        (
            config.client_dp_delta * clients >= 1,
            f"client-dp-delta: {config.client_dp_delta:g} is not below 1 / clients, of which there are {clients:,}; "
            f"use at most {0.1 / clients:.0e}",
        ),
    )
    for applies, text in problems:
        if applies:
            raise InputError(f"differential privacy of clients: {text}.")
