"""Held-out evaluation under secure aggregation: each participating client evaluates its rows, and sums are added."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from fedul.core import Federation
from fedul.engines.held_out import HeldOutSums
from fedul.engines.held_out_evaluator import HeldOutEvaluator, Predictions
from fedul.engines.simulation.secure_clients import SecureClients
from fedul.methods.fedul import set_task
from fedul.methods.task import Predict


@dataclass(frozen=True, eq=False)
class ClientPredictions:
    """Predictions of one model for the held-out rows of several clients."""

    clients: Mapping[str, Predictions]
    owner: SecureHeldOut

    def fits(self, temperature: float | None) -> bool:
        """Return whether they can be used where predictions at this temperature are asked for."""
        same = tuple(self.clients) == self.owner.participants
        return same and all(each.fits(temperature) for each in self.clients.values())


class SecureHeldOut:
    """Evaluates the held-out rows of the clients that took part in the last round, as `HeldOutEvaluator` does.

    Parameters
    ----------
    federation : Federation
        The clients.
    seed : int
        Seed of samples of the rows.
    secure : SecureClients
        Sums over clients.
    """

    gains_from_threads = False

    def __init__(self, federation: Federation, seed: int, secure: SecureClients) -> None:
        self._federation, self._seed, self._secure = federation, seed, secure
        self._evaluators: dict[str, HeldOutEvaluator] = {}

    @property
    def participants(self) -> tuple[str, ...]:
        """The clients that evaluate."""
        return self._secure.participants

    def predictions(self, predict: Predict, temperature: float | None = None) -> ClientPredictions:
        """Return what `compare` needs of a model."""
        clients = {name: self._evaluator(name).predictions(predict, temperature) for name in self.participants}
        return ClientPredictions(clients, self)

    def compare(
        self, predictions: ClientPredictions, reference: ClientPredictions | None = None, temperature: float = 1.0
    ) -> HeldOutSums:
        """Return the sums over the rows of the participating clients."""
        others = {} if reference is None else reference.clients
        return self._secure.sum_held_out(
            {
                name: self._evaluator(name).compare(each, others.get(name), temperature)
                for name, each in predictions.clients.items()
            }
        )

    def _evaluator(self, name: str) -> HeldOutEvaluator:
        if name not in self._evaluators:
            client = self._federation.columns.named(name)
            task = set_task(client, client.held_out, self._federation.spec)
            self._evaluators[name] = HeldOutEvaluator([task], self._seed)
        return self._evaluators[name]
