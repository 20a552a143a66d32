"""Clients at once: the clients of a group train as one computation, their weights stacked in a dimension in front.

A small network leaves a processor idle between kernels that are over before the next one is called; stacked, a hundred
clients cost little more calls than one. What is computed is the loop's, client by client: everything random is drawn by
each client's own plan, rows that fill up a step weigh nothing, and a client that has finished its steps stands still.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import torch
from torch import Tensor, nn

from fedul.algorithms.base import Algorithm, Trained, Update, Weights, plain_steps
from fedul.config import TrainConfig
from fedul.engines.cohort import Cohorts
from fedul.engines.layers import Forward
from fedul.engines.local import Broadcast, Job, Result, corrector, joined, parted, walk
from fedul.methods.base import Method, Predict, Step, step_sizes
from fedul.models.weights import load_weights
from fedul.randomness import torch_generator


class Stack:
    """The weights of several clients, (C, ...) each."""

    def __init__(self, forward: Forward, weights: Weights, learning: Sequence[str], clients: int) -> None:
        self._forward = forward
        self.weights = {
            name: (tensor.expand(clients, *tensor.shape)).clone() if name in learning else tensor
            for name, tensor in weights.items()
        }
        self.names = list(learning)
        self.parameters = [self.weights[name] for name in learning]
        self._active: tuple[int, list[Tensor], Predict] | None = None

    def at(self, step: Step) -> tuple[list[Tensor], Predict]:
        active = len(step.inputs)
        if self._active is None or self._active[0] != active:
            leaves = [parameter[:active].detach().requires_grad_() for parameter in self.parameters]
            weights = {**self.weights, **dict(zip(self.names, leaves, strict=True))}
            self._active = active, leaves, partial(self._forward, weights)
        return self._active[1:]


class StackedWorker:
    """Trains groups of clients, each group as one computation."""

    def __init__(
        self,
        module: nn.Module,
        forward: Forward,
        method: Method,
        algorithm: Algorithm,
        config: TrainConfig,
        cohorts: Cohorts,
    ) -> None:
        self._module, self._forward, self._method, self._cohorts = module, forward, method, cohorts
        self._algorithm, self._config = algorithm, config
        self._learning = [name for name, p in module.named_parameters() if p.requires_grad]

    def train(self, jobs: Sequence[Job], broadcast: Broadcast, stopped: Callable[[], bool]) -> list[Result]:
        """Clients with different kinds of things kept (a new one among old ones) are different groups."""
        results: dict[str, Result] = {}
        for group in _alike(jobs):
            # Whoever takes the most steps comes first, so that those who have not finished are always the first ones.
            group.sort(key=lambda job: -len(job.task))
            results |= {update.client: (update, kept) for update, kept in self._trained(group, broadcast, stopped)}
        return [results[job.client] for job in jobs]

    def _trained(self, jobs: Sequence[Job], broadcast: Broadcast, stopped: Callable[[], bool]) -> list[Result]:
        config, algorithm, method = self._config, self._algorithm, self._method
        cohort = self._cohorts.of(jobs)
        for_method, for_algorithm = parted(_stacked([job.kept for job in jobs]))
        targets = cohort.targets
        if method.looks(broadcast.directive):
            load_weights(self._module, broadcast.weights)
            self._module.eval()
            targets, for_method = method.begin_round(
                targets, cohort.predicted(self._module), broadcast.directive, for_method
            )
        start = algorithm.start(broadcast.weights, for_algorithm)
        network = Stack(self._forward, start, self._learning, len(jobs))
        generators = [torch_generator(config.seed, broadcast.round, job.client) for job in jobs]
        plans = [
            [job.task.plan(generator, config.batch_size, config.augment) for _ in range(config.epochs)]
            for job, generator in zip(jobs, generators, strict=True)
        ]
        walked = walk(
            network,
            cohort.steps(plans, targets, config.augment),
            method,
            config,
            corrector(algorithm.correction(broadcast.sent, for_algorithm), start, network),
            sum_gradients=algorithm.wants_mean_gradient,
            stopped=stopped,
        )
        steps = [config.epochs * len(step_sizes(rows, config.batch_size)) for rows in cohort.rows]
        gradient = {
            name: total / total.new_tensor(steps).reshape(-1, *[1] * (total.dim() - 1))
            for name, total in zip(network.names, walked.gradient, strict=False)
        }
        message, for_algorithm = algorithm.finish(Trained(network.weights, gradient), broadcast.sent, for_algorithm)
        kept = joined(for_method, for_algorithm)
        delta = {
            name: (network.weights[name] - broadcast.weights[name]).expand(len(jobs), *broadcast.weights[name].shape)
            for name, _ in self._module.named_parameters()
        }
        losses = walked.loss.tolist()
        effective = [plain_steps(config.optimizer, config.momentum, taken) for taken in steps]
        # What is kept is kept apart, or one client would hold on to what was kept of all.
        keeps = [{name: t.clone() for name, t in one.items()} for one in _unstacked(kept, len(jobs))]
        deltas, messages = (_unstacked(group, len(jobs)) for group in (delta, message))
        return [
            (Update(job.client, deltas[c], cohort.rows[c], effective[c], losses[c], message=messages[c]), keeps[c])
            for c, job in enumerate(jobs)
        ]


def _alike(jobs: Sequence[Job]) -> list[list[Job]]:
    groups: dict[tuple[str, ...], list[Job]] = {}
    for job in jobs:
        groups.setdefault(tuple(sorted(job.kept)), []).append(job)
    return list(groups.values())


def _stacked(every: Sequence[Weights]) -> Weights:
    return {name: torch.stack([one[name] for one in every]) for name in every[0]}


def _unstacked(tensors: Weights, clients: int) -> list[Weights]:
    """The weights of each client: views, so that a thousand clients cost no copy."""
    if not tensors:
        return [{}] * clients
    each = zip(*(tensor.unbind() for tensor in tensors.values()), strict=True)
    return [dict(zip(tensors, values, strict=True)) for values in each]
