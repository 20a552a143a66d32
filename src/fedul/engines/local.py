"""A client's local steps, on a worker model whose weights are overwritten in place: the same code on every engine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from fedul.algorithms.base import Algorithm, Trained, Update, Weights, plain_steps
from fedul.config import TrainConfig
from fedul.methods.base import Method, Task
from fedul.models.weights import load_weights, weights_of
from fedul.randomness import key_seed, torch_generator


@dataclass(frozen=True, eq=False)
class Broadcast:
    """What the coordinator sends every client at the start of a round."""

    round: int
    weights: Weights
    sent: Weights = field(default_factory=dict)  # from the algorithm
    directive: Mapping[str, float] = field(default_factory=dict)  # from the method


class Worker:
    """One model that trains as any client."""

    def __init__(self, module: nn.Module, method: Method, algorithm: Algorithm, config: TrainConfig) -> None:
        self._module, self._method, self._algorithm, self._config = module, method, algorithm, config
        self._named = {name: p.data for name, p in module.named_parameters()}
        self._buffers = dict(module.named_buffers())
        # Layers that a user has put into eval mode, such as a frozen batch norm, stay in it.
        self._frozen = [layer for layer in module.modules() if not layer.training] if module.training else []
        self._learning = {name: p for name, p in module.named_parameters() if p.requires_grad}
        self._parameters = list(self._learning.values())

    def train(self, name: str, task: Task, broadcast: Broadcast, kept: Weights) -> tuple[Update, Weights]:
        """A client's update, and what is to be kept there. `kept` is what was kept the last time, empty at first."""
        config, algorithm = self._config, self._algorithm
        for_method, for_algorithm = _parted(kept)
        # Layers of a user's model may draw from torch's own generator (dropout): keyed like all the rest.
        torch.default_generator.manual_seed(key_seed(config.seed, broadcast.round, name, "layers"))
        task, for_method = self._looked_at(task, broadcast, for_method)
        load_weights(self._module, algorithm.start(broadcast.weights, for_algorithm))
        self._train_mode()
        loss, steps, gradient = self._local_steps(
            task, torch_generator(config.seed, broadcast.round, name), broadcast, for_algorithm
        )
        trained = Trained(weights_of(self._module), gradient)
        message, for_algorithm = algorithm.finish(trained, broadcast.sent, for_algorithm)
        delta, buffers = self._changes(broadcast.weights)
        effective = plain_steps(config.optimizer, config.momentum, steps)
        return Update(name, delta, len(task), effective, loss, buffers, message), _joined(for_method, for_algorithm)

    def _looked_at(self, task: Task, broadcast: Broadcast, kept: Weights) -> tuple[Task, Weights]:
        """The round's task, after the method has looked at the client's rows with the fresh global model."""
        if not self._method.looks(broadcast.directive):
            return task, kept
        load_weights(self._module, broadcast.weights)
        self._module.eval()
        with torch.no_grad():
            return self._method.begin_round(task, self._module, broadcast.directive, kept)

    def _train_mode(self) -> None:
        self._module.train()
        for layer in self._frozen:
            layer.eval()

    def _local_steps(
        self, task: Task, generator: torch.Generator, broadcast: Broadcast, kept: Weights
    ) -> tuple[float, int, Weights]:
        """The mean loss over rows, the number of steps, and the mean gradient if the algorithm wants it."""
        config, module, loss_of = self._config, self._module, self._method.loss
        optimizer = self._optimizer()
        correct = self._correction(broadcast, kept)
        total: Weights = {}
        if self._algorithm.wants_mean_gradient:
            total = {name: torch.zeros_like(p) for name, p in self._learning.items()}
        losses: list[Tensor] = []
        rows: list[int] = []
        for _ in range(config.epochs):
            for step in task.plan(generator, config.batch_size, config.augment):
                optimizer.zero_grad()
                loss = loss_of(module, step)
                loss.backward()  # type: ignore[no-untyped-call]
                if config.l1:
                    self._add_l1(config.l1)
                for name, sum_so_far in total.items():
                    if (gradient := self._learning[name].grad) is not None:
                        sum_so_far.add_(gradient)
                for parameter, proximal, start, offset in correct:
                    _correct(parameter, proximal, start, offset)
                optimizer.step()
                losses.append(loss.detach())
                rows.append(len(step.inputs))
        weight = torch.tensor(rows, dtype=torch.float64, device=losses[0].device)
        mean = float(torch.stack(losses).double() @ weight / weight.sum())
        return mean, len(losses), {name: tensor / len(losses) for name, tensor in total.items()}

    def _correction(
        self, broadcast: Broadcast, kept: Weights
    ) -> list[tuple[nn.Parameter, float, Tensor, Tensor | None]]:
        """The parameters whose gradients the algorithm corrects, with what it takes to do so."""
        correction = self._algorithm.correction(broadcast.sent, kept)
        if correction is None:
            return []
        start = self._algorithm.start(broadcast.weights, kept)
        return [
            (parameter, correction.proximal, start[name], correction.offset.get(name))
            for name, parameter in self._learning.items()
        ]

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
    def _changes(self, weights: Weights) -> tuple[Weights, Weights]:
        """How far parameters and buffers are from the global ones."""
        delta = {name: tensor - weights[name] for name, tensor in self._named.items()}
        buffers: Weights = {}
        for name, buffer in self._buffers.items():
            # A constant buffer may hold infinities (a mask), whose difference is not a number.
            if not torch.equal(buffer, weights[name]):
                exact = buffer.dtype if buffer.is_floating_point() else torch.float64
                buffers[name] = buffer.to(exact) - weights[name].to(exact)
        return delta, buffers


def _joined(for_method: Weights, for_algorithm: Weights) -> Weights:
    groups = {"method": for_method, "algorithm": for_algorithm}
    return {f"{owner}/{name}": tensor for owner, group in groups.items() for name, tensor in group.items()}


def _parted(kept: Weights) -> tuple[Weights, Weights]:
    """What the method keeps at a client, and what the algorithm does."""
    method, algorithm = (
        {name.removeprefix(owner): tensor for name, tensor in kept.items() if name.startswith(owner)}
        for owner in ("method/", "algorithm/")
    )
    return method, algorithm


@torch.no_grad()
def _correct(parameter: nn.Parameter, proximal: float, start: Tensor, offset: Tensor | None) -> None:
    if parameter.grad is None:  # the loss does not use it, but its correction holds
        parameter.grad = torch.zeros_like(parameter)
    if proximal:
        parameter.grad.add_(parameter - start, alpha=proximal)
    if offset is not None:
        parameter.grad.add_(offset)
