"""Vectorized clients: a group of clients trains as one computation, with a leading dimension of clients.

For a small network, most of the time is spent on calling kernels, so a hundred vectorized clients cost little more than
one. The result is the same as that of the loop: everything random is drawn by the plan of each client, padded rows have
no weight, and a client that has finished its steps does not change.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn

from fedul._utils.randomness import torch_generator
from fedul.algorithms.base import Algorithm, TrainedClient, effective_steps
from fedul.config import TrainConfig
from fedul.core import Update, Weights
from fedul.engines.base import Broadcast
from fedul.engines.simulation.client_batch import BatchPlan, ClientBatch
from fedul.engines.simulation.client_state import join_client_state, split_client_state
from fedul.engines.simulation.dense_chain import DenseChain, DensePass
from fedul.engines.simulation.local_steps import (
    ClientJob,
    ClientOutcome,
    GradientCorrection,
    run_local_steps,
)
from fedul.engines.simulation.trainable_network import Loss, StepGradients
from fedul.engines.simulation.vectorized_forward import Forward
from fedul.methods.base import Method
from fedul.methods.task import Predict, Step, step_sizes
from fedul.models.weights import load_weights


class VectorizedNetwork:
    """The network of several clients.

    Parameters
    ----------
    forward : callable
        Prediction with the weights of all clients.
    weights : dict of str to Tensor
        Start weights, the same for all clients or (C, ...).
    trainable : mapping of str to Size
        Names of the trainable parameters, which become (C, ...), and their shapes (...).
    clients : int
        Number of clients C.
    """

    leading = 1

    def __init__(self, forward: Forward, weights: Weights, trainable: Mapping[str, torch.Size], clients: int) -> None:
        self._forward = forward
        self.weights = {
            name: (tensor.expand(clients, *trainable[name])).clone() if name in trainable else tensor
            for name, tensor in weights.items()
        }
        self.names = list(trainable)
        self.parameters = [self.weights[name] for name in trainable]
        self._active: tuple[int, list[Tensor], DensePass | GraphPass] | None = None

    def differentiate(self, loss_of: Loss, step: Step) -> StepGradients:
        parameters, passing = self._at(step)
        loss = loss_of(passing.predict, step)
        return StepGradients(parameters, passing.gradients(loss.sum() if loss.dim() else loss), loss.detach())

    def _at(self, step: Step) -> tuple[list[Tensor], DensePass | GraphPass]:
        """Return the parameters of the clients that are active in a step, and the predictions that use them."""
        active = step.inputs.shape[0]
        if self._active is None or self._active[0] != active:
            leaves = [parameter[:active].detach().requires_grad_() for parameter in self.parameters]
            weights = {**self.weights, **dict(zip(self.names, leaves, strict=True))}
            self._active = active, leaves, self._differentiate(weights, active)
        return self._active[1], self._active[2]

    def _differentiate(self, weights: Weights, clients: int) -> DensePass | GraphPass:
        if isinstance(self._forward, DenseChain):
            return DensePass(self._forward, weights, self.names, clients)
        return GraphPass(self._forward, weights, self.names)


class GraphPass:
    """Predictions of a step by any network, and the gradients of a loss of them, by autograd; see `DensePass`."""

    def __init__(self, forward: Forward, weights: Weights, trainable: Sequence[str]) -> None:
        self._leaves = [weights[name] for name in trainable]
        self.predict: Predict = partial(forward, weights)

    def gradients(self, loss: Tensor) -> Sequence[Tensor | None]:
        """Return the gradients of a loss; None for weights that it ignores."""
        return torch.autograd.grad(loss, self._leaves, allow_unused=True)


@dataclass(frozen=True, eq=False)
class PreparedGroup:
    """Clients that train as one computation, and the plan of their steps; `places` are those among all jobs."""

    places: Sequence[int]
    jobs: Sequence[ClientJob]
    batch: ClientBatch
    plan: BatchPlan


class VectorizedWorker:
    """Trains groups of clients, each group as one computation.

    Parameters
    ----------
    module : nn.Module
        The network, for predictions at the start of a round.
    forward : callable
        The same network for several clients.
    method, algorithm, config
        How clients train.
    batches : dict
        Client batches by the identity of their tasks, shared by all workers. They are kept only if all clients train
        in every round.
    """

    def __init__(
        self,
        module: nn.Module,
        forward: Forward,
        method: Method,
        algorithm: Algorithm,
        config: TrainConfig,
        batches: dict[tuple[int, ...], ClientBatch],
    ) -> None:
        self._module, self._forward, self._method, self._batches = module, forward, method, batches
        self._algorithm, self._config = algorithm, config
        self._shapes = {name: p.shape for name, p in module.named_parameters()}
        self._trainable = {name: p.shape for name, p in module.named_parameters() if p.requires_grad}

    def prepare(self, jobs: Sequence[ClientJob], broadcast: Broadcast) -> list[PreparedGroup]:
        """Draw what is random in the steps of these clients.

        This is Python for each client. Two threads that run Python at the same time hand the interpreter lock to and
        fro, which takes three times as long, so the caller of the workers does it for all of them.
        """
        config = self._config
        prepared = []
        for places in _group_by_state(jobs):
            places.sort(key=lambda place: -len(jobs[place].task))  # most steps first, as `ClientBatch.plan` needs
            group = [jobs[place] for place in places]
            key = tuple(id(job.task) for job in group)
            batch = self._batches.get(key) or ClientBatch([job.task for job in group])
            if config.participation == 1:
                self._batches[key] = batch
            rounds = [(job.broadcast or broadcast).round for job in group]
            generators = [torch_generator(config.seed, n, job.client) for n, job in zip(rounds, group, strict=True)]
            plans = [
                [job.task.plan(generator, config.batch_size, config.augment) for _ in range(config.epochs)]
                for job, generator in zip(group, generators, strict=True)
            ]
            prepared.append(PreparedGroup(places, group, batch, batch.plan(plans, config.augment)))
        return prepared

    def train(
        self, prepared: Sequence[PreparedGroup], broadcast: Broadcast, stopped: Callable[[], bool]
    ) -> list[ClientOutcome]:
        """Return the update and the new state of each client, in the order of the jobs that were prepared."""
        results: dict[int, ClientOutcome] = {}
        for group in prepared:
            outcomes = self._train_group(group, self.join_broadcasts(group.jobs, broadcast), stopped)
            results |= zip(group.places, outcomes, strict=True)
        return [results[place] for place in range(len(results))]

    def join_broadcasts(self, jobs: Sequence[ClientJob], broadcast: Broadcast) -> Broadcast:
        """Return what these jobs start from; tensors may be (C, ...), where clients of several runs train together."""
        return broadcast

    def predict(self, batch: ClientBatch, broadcast: Broadcast) -> Tensor:
        """Return the logits (C, R, K) of all rows at the start of a round."""
        load_weights(self._module, broadcast.weights)
        self._module.eval()
        return batch.predict(self._module)

    def _train_group(
        self, group: PreparedGroup, broadcast: Broadcast, stopped: Callable[[], bool]
    ) -> list[ClientOutcome]:
        config, algorithm, method = self._config, self._algorithm, self._method
        jobs, batch = group.jobs, group.batch
        method_state, algorithm_state = split_client_state(_stack([job.client_state for job in jobs]))
        targets = batch.targets
        if method.needs_logits(broadcast.directive):
            logits = self.predict(batch, broadcast)
            targets, method_state = method.begin_round(targets, logits, broadcast.directive, method_state)
        start = algorithm.start(broadcast.weights, algorithm_state)
        network = VectorizedNetwork(self._forward, start, self._trainable, len(jobs))
        result = run_local_steps(
            network,
            batch.steps(group.plan, targets),
            method,
            config,
            GradientCorrection(algorithm.correction(broadcast.received, algorithm_state), start, network),
            number=broadcast.round,
            sum_gradients=algorithm.needs_mean_gradient,
            stopped=stopped,
        )
        steps = [config.epochs * len(step_sizes(rows, config.batch_size)) for rows in batch.rows]
        gradient = {
            name: total / total.new_tensor(steps).reshape(-1, *[1] * (total.dim() - 1))
            for name, total in zip(network.names, result.gradient_sum, strict=False)
        }
        trained = TrainedClient(network.weights, gradient)
        message, algorithm_state = algorithm.finish(trained, broadcast.received, algorithm_state)
        client_state = join_client_state(method_state, algorithm_state)
        delta = {
            name: (network.weights[name] - broadcast.weights[name]).expand(len(jobs), *shape)
            for name, shape in self._shapes.items()
        }
        assert result.loss is not None
        losses = result.loss.tolist()
        effective = [effective_steps(config.optimizer_name, config.momentum, taken, config.nesterov) for taken in steps]
        # Copied, because a view of one client would keep the memory of all.
        states = [{name: t.clone() for name, t in one.items()} for one in _unstack(client_state, len(jobs))]
        deltas, messages = (_unstack(group, len(jobs)) for group in (delta, message))
        return [
            (Update(job.client, deltas[c], batch.rows[c], effective[c], losses[c], message=messages[c]), states[c])
            for c, job in enumerate(jobs)
        ]


def _group_by_state(jobs: Sequence[ClientJob]) -> list[list[int]]:
    """Group the places of clients whose states have the same tensors: new clients have none."""
    groups: dict[tuple[str, ...], list[int]] = {}
    for place, job in enumerate(jobs):
        groups.setdefault(tuple(sorted(job.client_state)), []).append(place)
    return list(groups.values())


def _stack(states: Sequence[Weights]) -> Weights:
    return {name: torch.stack([state[name] for state in states]) for name in states[0]}


def _unstack(tensors: Weights, clients: int) -> list[Weights]:
    """Return the tensors of each client, as views."""
    if not tensors:
        return [{}] * clients
    rows = zip(*(tensor.unbind() for tensor in tensors.values()), strict=True)
    return [dict(zip(tensors, values, strict=True)) for values in rows]
