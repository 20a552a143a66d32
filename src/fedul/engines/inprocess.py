"""The in-process engine: clients train one after another on one worker model whose weights are overwritten in place.

Data is indexed, not copied; an update is valid until the next one, so memory does not grow with the number of clients.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

import torch
from torch import Tensor, nn

from fedul.algorithms.base import Update, Weights
from fedul.config import TrainConfig
from fedul.federation import Federation
from fedul.methods.base import Method, Task
from fedul.methods.fedul import TEMPERATURES, held_out_losses, set_task
from fedul.models.weights import load_weights
from fedul.randomness import key_seed, torch_generator


class Engine(Protocol):
    """Where clients run."""

    def train(self, weights: Weights, round_number: int, clients: Sequence[str]) -> Iterator[Update]:
        """Updates of these clients, in this order, all from the same weights."""
        ...

    def held_out(self, weights: Weights) -> tuple[list[float], int]:
        """The sum of -log Q over all clients' held-out rows at each of the temperatures, and the number of rows."""
        ...


class InProcess:
    """Runs clients in this process."""

    def __init__(self, federation: Federation, method: Method, module: nn.Module, config: TrainConfig) -> None:
        self._config = config
        self._method = method
        self._module = module
        self._trained = {name: p.data for name, p in module.named_parameters()}
        self._buffers = dict(module.named_buffers())
        # Layers that a user has put into eval mode, such as a frozen batch norm, stay in it.
        self._frozen = [layer for layer in module.modules() if not layer.training] if module.training else []
        self._parameters = [p for p in module.parameters() if p.requires_grad]
        self._tasks = {c.name: method.task(c, federation) for c in federation.clients}
        self._held_out = {
            c.name: set_task(c, c.held_out, federation)
            for c in sorted(federation.clients, key=lambda c: c.name)
            if len(c.held_out)
        }

    def train(self, weights: Weights, round_number: int, clients: Sequence[str]) -> Iterator[Update]:
        self._module.train()
        for layer in self._frozen:
            layer.eval()
        seed = self._config.seed
        before = torch.random.get_rng_state()
        try:
            for name in clients:
                # Layers of a user's model may draw from torch's own generator (dropout): keyed like all the rest.
                torch.default_generator.manual_seed(key_seed(seed, round_number, name, "layers"))
                load_weights(self._module, weights)
                task = self._tasks[name]
                loss, steps = self._local_steps(task, torch_generator(seed, round_number, name))
                yield Update(name, self._delta(weights), len(task), steps, loss)
        finally:
            torch.random.set_rng_state(before)

    @torch.no_grad()
    def held_out(self, weights: Weights) -> tuple[list[float], int]:
        load_weights(self._module, weights)
        self._module.eval()
        totals = [0.0] * len(TEMPERATURES)
        for task in self._held_out.values():
            totals = [a + b for a, b in zip(totals, held_out_losses(self._module, task), strict=True)]
        return totals, sum(len(task) for task in self._held_out.values())

    def _local_steps(self, task: Task, generator: torch.Generator) -> tuple[float, int]:
        config, module, loss_of = self._config, self._module, self._method.loss
        optimizer = self._optimizer()
        losses: list[Tensor] = []
        rows: list[int] = []
        for _ in range(config.epochs):
            for step in task.plan(generator, config.batch_size, config.augment):
                optimizer.zero_grad()
                loss = loss_of(module, step)
                loss.backward()  # type: ignore[no-untyped-call]
                if config.l1:
                    self._add_l1(config.l1)
                optimizer.step()
                losses.append(loss.detach())
                rows.append(len(step.inputs))
        mean = (
            torch.stack(losses).double() @ torch.tensor(rows, dtype=torch.float64, device=losses[0].device) / sum(rows)
        )
        return float(mean), len(losses)

    def _optimizer(self) -> torch.optim.Optimizer:
        config = self._config
        if config.optimizer == "adam":
            return torch.optim.Adam(self._parameters, lr=config.learning_rate, fused=True)
        return torch.optim.SGD(self._parameters, lr=config.learning_rate, momentum=config.momentum, fused=True)

    @torch.no_grad()
    def _add_l1(self, weight: float) -> None:
        for parameter in self._parameters:
            if parameter.grad is not None:
                parameter.grad.add_(parameter.sign(), alpha=weight)

    @torch.no_grad()
    def _delta(self, weights: Weights) -> Weights:
        delta = {name: tensor - weights[name] for name, tensor in self._trained.items()}
        for name, buffer in self._buffers.items():
            # A constant buffer may hold infinities (a mask), whose difference is not a number.
            if not torch.equal(buffer, weights[name]):
                exact = buffer.dtype if buffer.is_floating_point() else torch.float64
                delta[name] = buffer.to(exact) - weights[name].to(exact)
        return delta
