"""Row privacy of all clients of a simulated run: plans, charges before each round, and epsilon so far."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from fedul.config import TrainConfig
from fedul.errors import InputError
from fedul.privacy.ledger import Budget, Charge, Ledger
from fedul.privacy.row_privacy import RowPrivacy, plan_row_privacy

TRAINING = "training"
"""Name of the release of a round in the ledger."""


class RowAccountant:
    """Plans how each client adds noise, and charges every round before it begins.

    Parameters
    ----------
    config : TrainConfig
        The configuration, with a number of rounds.
    ledger : Ledger
        What has been released before, if the run is resumed.
    clients : sequence of str
        Names of the clients.
    rows : callable
        Function from the name of a client to the number of rows that it trains on.
    rounds : mapping of str to int
        Rounds that each client takes part in.

    Examples
    --------
    >>> config = TrainConfig(dp_epsilon=2.0, rounds=10)
    >>> accountant = RowAccountant(config, Ledger(), ["north"], lambda client: 300, {"north": 10})
    >>> for number in range(1, 11):
    ...     accountant.charge_round(number, ["north"])
    >>> 1.998 < accountant.epsilon["north"] <= 2.0
    True
    """

    def __init__(
        self,
        config: TrainConfig,
        ledger: Ledger,
        clients: Sequence[str],
        rows: Callable[[str], int],
        rounds: Mapping[str, int],
    ) -> None:
        self._config, self._ledger, self._clients = config, ledger, clients
        self._rows, self._rounds = rows, rounds
        self._budgets = () if config.dp_epsilon is None else (Budget(config.dp_epsilon, config.dp_delta),)
        self._plans: dict[str, RowPrivacy] = {}
        self._noise: dict[str, float] = {}  # of earlier rounds, if the run is resumed
        self._charged = {0}  # rounds
        for charge, names in ledger.entries():
            if charge.release == TRAINING:
                self._noise.update(dict.fromkeys(names, charge.mechanism.noise))
                self._charged.add(charge.round)

    def plan(self, client: str) -> RowPrivacy:
        """Return how a client trains: with the noise of its earlier rounds, if the run is resumed."""
        if client not in self._plans:
            config = self._config
            if client in self._noise:
                config = replace(config, dp_epsilon=None, dp_noise=self._noise[client])
            rounds = max(self._rounds.get(client, 0), 1)
            self._plans[client] = plan_row_privacy(config, self._rows(client), rounds, client)
        return self._plans[client]

    def charge_round(self, number: int, clients: Iterable[str]) -> None:
        """Charge the clients of a round for it, before it begins.

        Raises
        ------
        BudgetSpent
            If one of them cannot pay; then none does.
        InputError
            If the ledger does not have the round before, so that the privacy that is spent is not known.
        """
        if number - 1 not in self._charged:
            raise InputError(
                f"{self._ledger.file or 'the ledger of privacy'}: does not have round {number - 1}, which the run has, "
                "so the privacy that is spent is not known; restore a copy of it, or start a new run in another --out."
            )
        charges = {name: Charge(TRAINING, self.plan(name).mechanism, number) for name in clients}
        self._ledger.charge(charges, *self._budgets)
        self._charged.add(number)

    @property
    def epsilon(self) -> dict[str, float]:
        """Epsilon of the rows of each client so far."""
        return {client: self._ledger.epsilon(client, self._config.dp_delta) for client in self._clients}
