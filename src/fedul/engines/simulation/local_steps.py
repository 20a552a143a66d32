"""Local steps of clients: the same code for a single client, for vectorized clients and at a remote site."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from fedul._utils import torch_private
from fedul._utils.randomness import key_seed, seed_layers, torch_generator
from fedul._utils.torch_private import Tensors
from fedul.algorithms.base import Algorithm, Correction, TrainedClient, effective_steps
from fedul.config import TrainConfig
from fedul.core import Update, Weights
from fedul.engines.base import Broadcast
from fedul.engines.simulation.client_state import join_client_state, split_client_state
from fedul.engines.simulation.optimizers import SGD, active_part, add_l1, add_l2, make_optimizer, match_layout
from fedul.engines.simulation.private_client import PrivateClients, count_local_steps
from fedul.engines.simulation.trainable_network import Loss, SingleClient, TrainableNetwork
from fedul.errors import FedulError
from fedul.methods.base import Method
from fedul.methods.checked import checked_loss
from fedul.methods.task import Step, Task, predict_task
from fedul.models.weights import weights_of
from fedul.privacy.row_privacy import RowPrivacy

ClientOutcome = tuple[Update, Weights]
"""The update of a client and its new state."""


@dataclass(frozen=True, eq=False)
class ClientJob:
    """The work of one client in a round.

    Parameters
    ----------
    client : str
        Name of the client.
    task : Task
        Its rows and targets.
    client_state : dict of str to Tensor
        State after the last round in which it took part; empty at first.
    broadcast : Broadcast, optional
        What its own run sends, where clients of several runs train together; by default what the worker is given.
    privacy : RowPrivacy, optional
        How its rows are protected; by default not at all.
    """

    client: str
    task: Task
    client_state: Weights
    broadcast: Broadcast | None = None
    privacy: RowPrivacy | None = None


@dataclass(frozen=True, eq=False)
class LocalResult:
    """Result of local steps, besides the new weights.

    Parameters
    ----------
    loss : Tensor or None
        (C,) mean loss over the rows; None where nobody may know it.
    gradient_sum : list of Tensor
        Sum over the steps of the uncorrected gradient; empty if not requested.
    """

    loss: Tensor | None
    gradient_sum: list[Tensor]


def run_local_steps(
    network: TrainableNetwork,
    steps: Iterable[Step],
    method: Method,
    config: TrainConfig,
    correction: GradientCorrection,
    *,
    number: int = 1,
    sum_gradients: bool = False,
    stopped: Callable[[], bool] = lambda: False,
) -> LocalResult:
    """Run local steps, which change the parameters of the network in place.

    Parameters
    ----------
    network : TrainableNetwork
        One client or several.
    steps : iterable of Step
        The steps.
    method, config, number
        The loss, the local optimizer, and the round, on which its learning rate may depend.
    correction : GradientCorrection
        Term that the algorithm adds to gradients.
    sum_gradients : bool, default=False
        Whether the result holds the sum of the uncorrected gradients.
    stopped : callable
        Checked before every step; if it returns True, `Cancelled` is raised.
    """
    optimizer = make_optimizer(config, network.parameters, number)
    total = [torch.zeros_like(p) for p in network.parameters] if sum_gradients else []
    losses: list[Tensor] = []
    counts: list[Tensor | int] = []
    changed = bool(total or config.l1 or config.l2 or correction)
    uncorrected = optimizer if isinstance(optimizer, SGD) and not changed else None
    loss_of: Loss = partial(checked_loss, method, network.leading)
    for step in steps:
        if stopped():
            raise Cancelled
        parameters, raw, loss = network.differentiate(loss_of, step)
        if step.inputs.shape[network.leading]:  # a private step may be empty
            loss_of = method.loss  # what holds for the first step holds for the others
        with torch.no_grad():
            if uncorrected is not None:
                uncorrected.step_with_products(parameters, raw)
            else:
                gradients: Tensors = match_layout(raw, parameters)
                if config.l1:
                    gradients = add_l1(gradients, parameters, config.l1)
                if config.l2:
                    gradients = add_l2(gradients, parameters, config.l2, network.leading)
                if total:
                    torch_private.add_(active_part(total, parameters), gradients)
                optimizer.step(parameters, correction.apply(parameters, gradients))
        if loss is None:
            continue
        losses.append(loss.reshape(-1))
        counts.append(step.inputs.shape[loss.dim()] if step.weight is None else (step.weight > 0).sum(-1))
    if not losses:
        return LocalResult(None, total)
    step_losses = pad_sequence(losses).double()  # (C, steps)
    if len({len(one) for one in losses}) == 1 and all(isinstance(n, int) for n in counts):
        rows = step_losses.new_tensor([counts])
    else:
        device = step_losses.device
        step_rows = [torch.as_tensor(n, device=device).expand(len(one)) for n, one in zip(counts, losses, strict=True)]
        rows = pad_sequence(step_rows).double()  # (C, steps)
    return LocalResult((step_losses * rows).sum(1) / rows.sum(1), total)


class Cancelled(Exception):
    """Local steps were stopped, because their result is not needed any more."""


class GradientCorrection:
    """The term ``proximal * (w - start) + offset`` of an algorithm, for the parameters of a network.

    Parameters
    ----------
    correction : Correction or None
        What `Algorithm.correction` returned.
    start : dict of str to Tensor
        Weights before the local steps.
    network : TrainableNetwork
        The network.
    """

    def __init__(self, correction: Correction | None, start: Weights, network: TrainableNetwork) -> None:
        correction = correction or Correction()
        pairs = list(zip(network.names, network.parameters, strict=True))
        self._proximal, self._start = correction.proximal, [start[name].expand_as(p) for name, p in pairs]
        self._offset: list[Tensor] = []
        if offset := correction.offset:
            self._offset = [offset.get(name, torch.zeros_like(p)).expand_as(p) for name, p in pairs]

    def __bool__(self) -> bool:
        """Return whether gradients are corrected at all."""
        return bool(self._proximal or self._offset)

    def apply(self, parameters: list[Tensor], gradients: Tensors) -> Tensors:
        """Return the corrected gradients of the clients that take a step."""
        # Not in place: autograd may return one tensor as the gradient of two parameters.
        if self._proximal:
            difference = torch_private.subtract(parameters, active_part(self._start, parameters))
            gradients = torch_private.add(gradients, difference, alpha=self._proximal)
        if self._offset:
            gradients = torch_private.add(gradients, active_part(self._offset, parameters))
        return gradients


class LoopWorker:
    """Trains clients one after another, with one module.

    Parameters
    ----------
    module : nn.Module
        The network; its weights are overwritten.
    method, algorithm, config
        How clients train.
    precision : str
        What `choose_precision` returned.
    """

    def __init__(
        self, module: nn.Module, method: Method, algorithm: Algorithm, config: TrainConfig, precision: str = "float32"
    ) -> None:
        self._module, self._method, self._algorithm, self._config = module, method, algorithm, config
        self._network = SingleClient(module, precision)
        self._private = PrivateClients(module, config.seed) if config.protects_rows else None
        self._weights, self._device = weights_of(module), next(module.parameters()).device
        self._parameter_names = [name for name, _ in module.named_parameters()]
        # Layers that a user has put into eval mode, such as a frozen batch norm, stay in it.
        self._eval_layers = [layer for layer in module.modules() if not layer.training] if module.training else []

    def prepare(self, jobs: Sequence[ClientJob], broadcast: Broadcast) -> Sequence[ClientJob]:
        """Return the jobs: everything is drawn when a client trains."""
        return jobs

    def train(
        self, jobs: Sequence[ClientJob], broadcast: Broadcast, stopped: Callable[[], bool]
    ) -> list[ClientOutcome]:
        """Return the update and the new state of each client."""
        return [self._train_client(job, broadcast, stopped) for job in jobs]

    def _train_client(self, job: ClientJob, broadcast: Broadcast, stopped: Callable[[], bool]) -> ClientOutcome:
        config, algorithm, method, name = self._config, self._algorithm, self._method, job.client
        method_state, algorithm_state = split_client_state(job.client_state)
        seed_layers(self._device, key_seed(config.seed, broadcast.round, name, "layers"))  # such as dropout
        task = job.task
        if method.needs_logits(broadcast.directive):
            logits = self._predict(task, broadcast.weights)
            targets, method_state = method.begin_round(task.targets, logits, broadcast.directive, method_state)
            task = replace(task, targets=targets)
        start = algorithm.start(broadcast.weights, algorithm_state)
        self._load(start)
        self._module.train()
        for layer in self._eval_layers:
            layer.eval()
        network, rows_of_steps, steps = self._local_steps(job, task, broadcast.round)
        result = run_local_steps(
            network,
            rows_of_steps,
            method,
            config,
            GradientCorrection(algorithm.correction(broadcast.received, algorithm_state), start, network),
            number=broadcast.round,
            sum_gradients=algorithm.needs_mean_gradient,
            stopped=stopped,
        )
        gradient = {key: total / steps for key, total in zip(network.names, result.gradient_sum, strict=False)}
        trained = TrainedClient(self._weights, gradient)
        message, algorithm_state = algorithm.finish(trained, broadcast.received, algorithm_state)
        delta, buffers = self._changes(broadcast.weights)
        if buffers and config.protects_rows:  # `check_network` refuses such networks, from a trial
            raise FedulError(f"buffers of the model changed at client '{name}', which would disclose private rows.")
        effective = effective_steps(config.optimizer_name, config.momentum, steps, config.nesterov)
        loss = None if result.loss is None else float(result.loss)
        update = Update(name, delta, len(task), effective, loss, buffers, message)
        return update, join_client_state(method_state, algorithm_state)

    def _local_steps(self, job: ClientJob, task: Task, number: int) -> tuple[TrainableNetwork, Iterator[Step], int]:
        """Return the network of a client, its steps in a round, and their number."""
        config = self._config
        if config.protects_rows:
            if self._private is None or job.privacy is None:
                raise FedulError(f"client '{job.client}' would train without the protection of its rows.")
            private = self._private.client(job.client, number, task, job.privacy)
            return private, private.steps(config.augment), job.privacy.steps
        generator = torch_generator(config.seed, number, job.client)
        plans = (task.plan(generator, config.batch_size, config.augment) for _ in range(config.epochs))
        return self._network, (step for plan in plans for step in plan), count_local_steps(config, len(task))

    def _predict(self, task: Task, weights: Weights) -> Tensor:
        """Return the logits of the global model for all rows."""
        self._load(weights)
        self._module.eval()
        with torch.no_grad():
            return predict_task(self._network.predict, task)

    @torch.no_grad()
    def _load(self, weights: Weights) -> None:
        """Load weights as `load_weights` does, but fast enough for very small clients."""
        torch_private.copy_(list(self._weights.values()), [weights[name] for name in self._weights])

    @torch.no_grad()
    def _changes(self, weights: Weights) -> tuple[Weights, Weights]:
        """Return the differences of parameters and buffers from the global ones."""
        delta = {name: self._weights[name] - weights[name] for name in self._parameter_names}
        buffers: Weights = {}
        for name, buffer in self._weights.items():
            if name in delta:
                continue
            # A constant buffer may hold infinities (a mask), whose difference is NaN.
            if not torch.equal(buffer, weights[name]):
                exact = buffer.dtype if buffer.is_floating_point() else torch.float64
                buffers[name] = buffer.to(exact) - weights[name].to(exact)
        return delta, buffers
