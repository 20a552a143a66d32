"""Base class of algorithms: how client updates become the next global model.

An algorithm works in two places. At a client it may choose the start weights, correct local gradients, send further
tensors and keep state for the next round. At the coordinator it aggregates updates one by one, in a fixed order of
clients, so that memory does not grow with their number and the result does not depend on which client finished first.
All tensors are treated elementwise: a loop over clients, vectorized clients and a remote site compute the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import ClassVar

import torch
from torch import nn

from fedul._utils import torch_private
from fedul._utils.settings import option, validate_fields
from fedul.core import TensorSpec, Update, UpdateSpec, Weights
from fedul.errors import EnvironmentFailure, InputError
from fedul.models.weights import weights_of


@dataclass(frozen=True, eq=False)
class TrainedClient:
    """A client after its local steps.

    Parameters
    ----------
    weights : dict of str to Tensor
        Parameters and buffers. These are live tensors: copy what is to be kept.
    mean_gradient : dict of str to Tensor
        Mean over the local steps of the uncorrected local gradient; empty unless `Algorithm.needs_mean_gradient`.
    """

    weights: Weights
    mean_gradient: Weights


@dataclass(frozen=True, eq=False)
class Correction:
    """Term that is added to every local gradient: ``proximal * (w - start) + offset``.

    Parameters
    ----------
    proximal : float, default=0.0
        Strength of the pull towards the start weights.
    offset : dict of str to Tensor
        Constant term, by parameter name.
    """

    proximal: float = 0.0
    offset: Weights = field(default_factory=dict)


@dataclass(frozen=True)
class Algorithm:
    """Base class of algorithms; as it stands, the mean of the updates (FedAvg).

    Subclass it as a frozen dataclass and override what differs. Fields made with `fedul.option` become
    ``--algorithm-option NAME=VALUE`` on the command line.

    Parameters
    ----------
    weighting : {"uniform", "rows"}, default="uniform"
        Whether all clients count the same or by their rows.
    step : float, default=1.0
        Global step size (alpha_g in the paper).

    Examples
    --------
    >>> from dataclasses import dataclass
    >>> import fedul
    >>> @dataclass(frozen=True)
    ... class Cautious(fedul.Algorithm):
    ...     '''FedAvg that takes a share of the mean update.'''
    ...
    ...     share: float = fedul.option(0.5, "Share of the mean update.", above=0, high=1)
    ...
    ...     def aggregate(self, weights, server_state, updates, clients):
    ...         moved, server_state = super().aggregate(weights, server_state, updates, clients)
    ...         return {name: w + self.share * (moved[name] - w) for name, w in weights.items()}, server_state
    >>> Cautious(share=0.25)
    Cautious(weighting='uniform', step=1.0, share=0.25)
    """

    weighting: str = option("uniform", "Whether clients count the same or by their rows.", choices=("uniform", "rows"))
    step: float = option(1.0, "Global step size (alpha_g).", low=0)

    needs_mean_gradient: ClassVar[bool] = False
    """Whether `finish` needs the mean of the local gradients, which costs one addition per step."""

    personalizes: ClassVar[bool] = False  # whether `start` gives every client its own model, which is delivered too
    uniform_only: ClassVar[bool] = False
    """Whether all clients count the same, so that `weighting` must be "uniform"."""

    def __post_init__(self) -> None:
        validate_fields(self)
        if self.uniform_only and self.weighting != "uniform":
            raise InputError(f"weighting: '{self.weighting}' is not possible, because all clients count the same.")

    def startup_warnings(self, weights: Weights, clients: int) -> list[str]:
        """Return warnings about this algorithm, for the weights of the model and the number of clients per round."""
        return []

    def message_spec(self, parameters: Mapping[str, TensorSpec]) -> Mapping[str, TensorSpec]:
        """Declare the tensors that `finish` sends, by name.

        Parameters
        ----------
        parameters : mapping of str to TensorSpec
            The trainable parameters of the model.

        Returns
        -------
        mapping of str to TensorSpec
            Names, shapes and dtypes. An update that does not match is rejected.
        """
        return {}

    # At the coordinator. `server_state` is what `aggregate` returned last, empty at first.

    def broadcast(self, server_state: Weights) -> Weights:
        """Return the tensors that clients receive besides the weights."""
        return {}

    def aggregate(
        self, weights: Weights, server_state: Weights, updates: Iterable[Update], clients: int
    ) -> tuple[Weights, Weights]:
        """Combine the updates of a round.

        Parameters
        ----------
        weights : dict of str to Tensor
            Current global weights; not changed.
        server_state : dict of str to Tensor
            What the previous call returned as second value, empty at first; not changed.
        updates : iterable of Update
            The updates of the participating clients, one at a time.
        clients : int
            Number of clients in the federation.

        Returns
        -------
        weights, server_state : tuple of dict
            The next global weights and the next server state.
        """
        mean = mean_update(updates, self.weighting)
        return apply_update(weights, mean.delta, self.step, mean.buffers), server_state

    # At a client. `client_state` is what `finish` returned there last, empty at first.

    def start(self, weights: Weights, client_state: Weights) -> Weights:
        """Return the weights that local training starts from."""
        return weights

    def correction(self, received: Weights, client_state: Weights) -> Correction | None:
        """Return what is added to local gradients, or None; `received` is what `broadcast` returned."""
        return None

    def finish(self, trained: TrainedClient, received: Weights, client_state: Weights) -> tuple[Weights, Weights]:
        """Return the message to the coordinator and the new client state.

        Parameters
        ----------
        trained : TrainedClient
            The client after its local steps. Copy the tensors that are returned.
        received : dict of str to Tensor
            What `broadcast` returned at the coordinator.
        client_state : dict of str to Tensor
            State that this method returned at this client last; empty at first.

        Returns
        -------
        message, client_state : tuple of dict
            Tensors as declared by `message_spec`, and the state for the next round.
        """
        return {}, {}


def declared_update(algorithm: Algorithm, module: nn.Module) -> UpdateSpec:
    """Return the declaration of the updates that clients send under this algorithm with this model."""
    parameters = dict(module.named_parameters())
    trainable = {name: TensorSpec.of(p) for name, p in parameters.items() if p.requires_grad}
    return UpdateSpec.of(weights_of(module), parameters, algorithm.message_spec(trainable))


@dataclass(frozen=True, eq=False)
class MeanUpdate:
    """Mean of the updates of a round.

    Parameters
    ----------
    delta, buffers, message : dict of str to Tensor
        Means of the tensors of the updates.
    steps : float
        Mean of their effective steps.
    clients : int
        Number of updates.
    """

    delta: Weights
    buffers: Weights
    message: Weights
    steps: float
    clients: int


def mean_update(
    updates: Iterable[Update], weighting: str, factor: Callable[[Update], float] = lambda _: 1.0
) -> MeanUpdate:
    """Average updates one by one, so that memory does not grow with their number.

    Parameters
    ----------
    updates : iterable of Update
        The updates of a round.
    weighting : {"uniform", "rows"}
        Whether all clients count the same or by their rows.
    factor : callable, optional
        Factor of the parameters of an update, e.g. the inverse of its steps.

    Raises
    ------
    EnvironmentFailure
        If there is no update.
    """
    delta, buffers, message = Weights(), Weights(), Weights()
    total, steps, clients = 0.0, 0.0, 0
    for update in updates:
        weight = float(update.rows) if weighting == "rows" else 1.0
        _add(delta, update.delta, weight * factor(update))
        _add(buffers, update.buffers, weight)
        _add(message, update.message, weight)
        total += weight
        steps += weight * update.steps
        clients += 1
    if total == 0:
        raise no_updates_error()
    delta, buffers, message = ({name: t / total for name, t in sums.items()} for sums in (delta, buffers, message))
    return MeanUpdate(delta, buffers, message, steps / total, clients)


def _add(sums: Weights, tensors: Weights, weight: float) -> None:
    """Add weighted tensors to the sums, in place."""
    sums |= {name: torch.zeros_like(tensor) for name, tensor in tensors.items() if name not in sums}
    if tensors:  # one call for all tensors, because there may be hundreds of small clients
        torch_private.add_([sums[name] for name in tensors], list(tensors.values()), alpha=weight)


def no_updates_error() -> EnvironmentFailure:
    """Return the error for a round without updates."""
    return EnvironmentFailure("no client sent an update in this round; the model did not change.")


def apply_update(weights: Weights, delta: Weights, step: float, buffers: Weights) -> Weights:
    """Return the weights after an update.

    Parameters
    ----------
    weights : dict of str to Tensor
        Current weights; not changed.
    delta : dict of str to Tensor
        Direction of the parameters.
    step : float
        Step size of the parameters.
    buffers : dict of str to Tensor
        Change of the buffers, which have no step size.

    Returns
    -------
    dict of str to Tensor
        The new weights, with the dtypes of the current ones; integers are rounded.
    """
    result = dict(weights)
    for changes, factor in ((delta, step), (buffers, 1.0)):
        for name, change in changes.items():
            value = weights[name]
            if value.is_floating_point():
                result[name] = (value + factor * change).to(value.dtype)
            else:
                result[name] = (value.double() + factor * change).round().to(value.dtype)
    return result


def effective_steps(optimizer: str, momentum: float, steps: int, nesterov: bool = False) -> float:
    """Return the number of plain gradient steps that local steps are worth: |a|_1 of FedNova.

    With momentum rho, gradient k of tau counts (1 - rho^n) / (1 - rho) times, where n = tau-k+1, or tau-k+2 if it is
    Nesterov's. Steps of Adam are not a fixed combination of gradients: their number is used, which is a heuristic.

    Examples
    --------
    >>> effective_steps("sgd", 0.0, 3), effective_steps("sgd", 0.5, 2), effective_steps("adam", 0.0, 3)
    (3.0, 2.5, 3.0)
    """
    if optimizer != "sgd" or momentum == 0:
        return float(steps)
    return (steps - momentum ** (1 + nesterov) * (1 - momentum**steps) / (1 - momentum)) / (1 - momentum)
