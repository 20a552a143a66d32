"""A client's local steps: the same code for one client, for several at once, and at a remote site."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from fedul.algorithms.base import Algorithm, Correction, Trained, Update, Weights, plain_steps
from fedul.config import TrainConfig
from fedul.engines.optimizers import Tensors, first_of, laid_out, make_optimizer, with_signs
from fedul.methods.base import Method, Predict, Step, Task, predicted, step_sizes
from fedul.models.weights import weights_of
from fedul.randomness import key_seed, torch_generator

Result = tuple[Update, Weights]
"""A client's update, and what is to be kept there."""


@dataclass(frozen=True, eq=False)
class Broadcast:
    """What the coordinator sends every client at the start of a round."""

    round: int
    weights: Weights
    sent: Weights = field(default_factory=dict)  # from the algorithm
    directive: Mapping[str, float] = field(default_factory=dict)  # from the method
    judged: Weights = field(default_factory=dict)  # what held-out rows are to judge along the way; empty: nothing


@dataclass(frozen=True, eq=False)
class Job:
    """One client's part of a round; `kept` is what was kept there the last time, empty at first."""

    client: str
    task: Task
    kept: Weights


class Network(Protocol):
    """Weights that learn, of one client or of several, and what they predict."""

    names: list[str]
    parameters: list[Tensor]  # (...) each, or (C, ...) of several clients

    def at(self, step: Step) -> tuple[list[Tensor], Predict]:
        """The parameters of those clients that take this step, as leaves of autograd, and their predictions."""
        ...


class Alone:
    """A module as it is, as one client."""

    def __init__(self, module: nn.Module) -> None:
        learning = {name: p for name, p in module.named_parameters() if p.requires_grad}
        self.names, self._module = list(learning), module
        self.parameters: list[Tensor] = list(learning.values())

    def at(self, step: Step) -> tuple[list[Tensor], Predict]:
        return self.parameters, self._module


@dataclass(frozen=True, eq=False)
class Walked:
    """What local steps came to, besides new weights."""

    loss: Tensor  # (C,): mean over the rows
    gradient: list[Tensor]  # sum over the steps, uncorrected; empty if nobody asked for it


def walk(
    network: Network,
    steps: Iterable[Step],
    method: Method,
    config: TrainConfig,
    correct: Corrector,
    *,
    sum_gradients: bool = False,
    stopped: Callable[[], bool] = lambda: False,
) -> Walked:
    """Takes the local steps, in place."""
    optimizer = make_optimizer(config, network.parameters)
    total = [torch.zeros_like(p) for p in network.parameters] if sum_gradients else []
    losses: list[Tensor] = []
    counts: list[Tensor | int] = []
    for step in steps:
        if stopped():
            raise Stopped
        moving, predict = network.at(step)
        loss = method.loss(predict, step)
        found = torch.autograd.grad(loss.sum() if loss.dim() else loss, moving, allow_unused=True)
        with torch.no_grad():
            gradients: Tensors = laid_out(found, moving)
            if config.l1:
                gradients = with_signs(gradients, moving, config.l1)
            if total:
                torch._foreach_add_(first_of(total, moving), gradients)
            optimizer.step(moving, correct(moving, gradients))
        losses.append(loss.detach().reshape(-1))
        counts.append(step.inputs.shape[loss.dim()] if step.weight is None else (step.weight > 0).sum(-1))
    each = pad_sequence(losses).double()  # (C, steps)
    taken = [torch.as_tensor(n, device=each.device).expand(len(one)) for n, one in zip(counts, losses, strict=True)]
    rows = pad_sequence(taken).double()  # (C, steps)
    return Walked((each * rows).sum(1) / rows.sum(1), total)


class Stopped(Exception):
    """Whoever asked for the steps does not want them any more."""


class Corrector:
    """What an algorithm adds to gradients: proximal * (w - start) + offset."""

    def __init__(self, correction: Correction | None, start: Sequence[Tensor], offset: Sequence[Tensor]) -> None:
        self._proximal = correction.proximal if correction is not None else 0.0
        self._start, self._offset = start, offset

    def __call__(self, parameters: list[Tensor], gradients: Tensors) -> Tensors:
        # Not in place: autograd may hand out one tensor as the gradient of two parameters.
        if self._proximal:
            away = torch._foreach_sub(parameters, first_of(self._start, parameters))
            gradients = torch._foreach_add(gradients, away, alpha=self._proximal)
        if self._offset:
            gradients = torch._foreach_add(gradients, first_of(self._offset, parameters))
        return gradients


class Worker:
    """One model that trains as any client, one after another."""

    def __init__(self, module: nn.Module, method: Method, algorithm: Algorithm, config: TrainConfig) -> None:
        self._module, self._method, self._algorithm, self._config = module, method, algorithm, config
        self._network = Alone(module)
        self._weights = weights_of(module)
        self._named = [name for name, _ in module.named_parameters()]
        # Layers that a user has put into eval mode, such as a frozen batch norm, stay in it.
        self._frozen = [layer for layer in module.modules() if not layer.training] if module.training else []

    def train(self, jobs: Sequence[Job], broadcast: Broadcast, stopped: Callable[[], bool]) -> list[Result]:
        return [self._trained(job, broadcast, stopped) for job in jobs]

    def _trained(self, job: Job, broadcast: Broadcast, stopped: Callable[[], bool]) -> Result:
        config, algorithm, method, name = self._config, self._algorithm, self._method, job.client
        for_method, for_algorithm = parted(job.kept)
        # Layers of a user's model may draw from torch's own generator (dropout): keyed like all the rest.
        torch.default_generator.manual_seed(key_seed(config.seed, broadcast.round, name, "layers"))
        task = job.task
        if method.looks(broadcast.directive):
            targets, for_method = method.begin_round(
                task.targets, self._looked(task, broadcast), broadcast.directive, for_method
            )
            task = replace(task, targets=targets)
        start = algorithm.start(broadcast.weights, for_algorithm)
        self._load(start)
        self._train_mode()
        generator = torch_generator(config.seed, broadcast.round, name)
        plans = (task.plan(generator, config.batch_size, config.augment) for _ in range(config.epochs))
        walked = walk(
            self._network,
            (step for plan in plans for step in plan),
            method,
            config,
            corrector(algorithm.correction(broadcast.sent, for_algorithm), start, self._network),
            sum_gradients=algorithm.wants_mean_gradient,
            stopped=stopped,
        )
        steps = config.epochs * len(step_sizes(len(task), config.batch_size))
        gradient = {key: total / steps for key, total in zip(self._network.names, walked.gradient, strict=False)}
        trained = Trained(self._weights, gradient)
        message, for_algorithm = algorithm.finish(trained, broadcast.sent, for_algorithm)
        delta, buffers = self._changes(broadcast.weights)
        effective = plain_steps(config.optimizer, config.momentum, steps)
        update = Update(name, delta, len(task), effective, float(walked.loss), buffers, message)
        return update, joined(for_method, for_algorithm)

    def _looked(self, task: Task, broadcast: Broadcast) -> Tensor:
        """The fresh global model's logits of all rows."""
        self._load(broadcast.weights)
        self._module.eval()
        with torch.no_grad():
            return predicted(self._module, task)

    @torch.no_grad()
    def _load(self, weights: Weights) -> None:
        """As `load_weights`, for a client that would take longer to find its weights than to train."""
        torch._foreach_copy_(list(self._weights.values()), [weights[name] for name in self._weights])

    def _train_mode(self) -> None:
        self._module.train()
        for layer in self._frozen:
            layer.eval()

    @torch.no_grad()
    def _changes(self, weights: Weights) -> tuple[Weights, Weights]:
        """How far parameters and buffers are from the global ones."""
        delta = {name: self._weights[name] - weights[name] for name in self._named}
        buffers: Weights = {}
        for name, buffer in self._weights.items():
            if name in delta:
                continue
            # A constant buffer may hold infinities (a mask), whose difference is not a number.
            if not torch.equal(buffer, weights[name]):
                exact = buffer.dtype if buffer.is_floating_point() else torch.float64
                buffers[name] = buffer.to(exact) - weights[name].to(exact)
        return delta, buffers


def corrector(correction: Correction | None, start: Weights, network: Network) -> Corrector:
    """The algorithm's correction of this network's gradients, which starts from these weights."""
    pairs = list(zip(network.names, network.parameters, strict=True))
    offset: list[Tensor] = []
    if correction is not None and correction.offset:
        offset = [correction.offset.get(name, torch.zeros_like(p)).expand_as(p) for name, p in pairs]
    return Corrector(correction, [start[name].expand_as(p) for name, p in pairs], offset)


def joined(for_method: Weights, for_algorithm: Weights) -> Weights:
    """What the method keeps at a client and what the algorithm does, as one."""
    groups = {"method": for_method, "algorithm": for_algorithm}
    return {f"{owner}/{name}": tensor for owner, group in groups.items() for name, tensor in group.items()}


def parted(kept: Weights) -> tuple[Weights, Weights]:
    """What the method keeps at a client, and what the algorithm does."""
    method, algorithm = (
        {name.removeprefix(owner): tensor for name, tensor in kept.items() if name.startswith(owner)}
        for owner in ("method/", "algorithm/")
    )
    return method, algorithm
