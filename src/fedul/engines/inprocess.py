"""The in-process engine: clients train one after another on one worker model.

Data is indexed, not copied; an update is valid until the next one, so memory does not grow with the number of clients.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

import torch
from torch import nn

from fedul.algorithms.base import Algorithm, Update, Weights
from fedul.config import TrainConfig
from fedul.engines.local import Broadcast, Worker
from fedul.engines.store import ClientStore, InMemory
from fedul.federation import Federation
from fedul.methods.base import Method
from fedul.methods.fedul import HeldOut, held_out_losses, set_task
from fedul.models.weights import load_weights


class Engine(Protocol):
    """Where clients run."""

    def train(self, broadcast: Broadcast, clients: Sequence[str]) -> Iterator[Update]:
        """Updates of these clients, in this order, all from the same weights."""
        ...

    def held_out(self, weights: Weights) -> HeldOut:
        """-log Q over all clients' held-out rows."""
        ...


class InProcess:
    """Runs clients in this process."""

    def __init__(
        self,
        federation: Federation,
        method: Method,
        algorithm: Algorithm,
        module: nn.Module,
        config: TrainConfig,
        store: ClientStore | None = None,
    ) -> None:
        self._module = module
        self._worker = Worker(module, method, algorithm, config)
        self._store = store or InMemory()
        self._tasks = {c.name: method.task(c, federation) for c in federation.clients}
        self._held_out = {
            c.name: set_task(c, c.held_out, federation)
            for c in sorted(federation.clients, key=lambda c: c.name)
            if len(c.held_out)
        }

    def train(self, broadcast: Broadcast, clients: Sequence[str]) -> Iterator[Update]:
        generator = torch.random.get_rng_state()
        try:
            for name in clients:
                device = next(self._module.parameters()).device
                before = {key: tensor.to(device) for key, tensor in self._store.read(name).items()}
                update, kept = self._worker.train(name, self._tasks[name], broadcast, before)
                if any(before.get(key) is not tensor for key, tensor in kept.items()):
                    self._store.write(name, broadcast.round, kept)
                yield update
        finally:
            torch.random.set_rng_state(generator)

    @torch.no_grad()
    def held_out(self, weights: Weights) -> HeldOut:
        load_weights(self._module, weights)
        self._module.eval()
        return sum((held_out_losses(self._module, task) for task in self._held_out.values()), HeldOut())
