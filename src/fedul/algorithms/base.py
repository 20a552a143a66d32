"""Base class of algorithms: how client updates become the next global model.

An algorithm works in two places. At a client it may choose the start weights, correct local gradients, send further
tensors, keep state for the next round, and prepare its update for the mean. At the coordinator it advances the global
model by the mean of the prepared updates. Updates are averaged one by one, in a fixed order of clients, so that memory
does not grow with their number and the result does not depend on which client finished first. The mean is all that the
coordinator needs, so it can also be computed without showing it any single update (secure aggregation).
All tensors are treated elementwise: a loop over clients, vectorized clients and a remote site compute the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from torch import nn

from fedul._utils.settings import option, validate_fields
from fedul.algorithms.mean import apply_update, mean_update
from fedul.core import MeanUpdate, TensorSpec, Update, UpdateSpec, Weights
from fedul.errors import InputError
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

    Examples
    --------
    >>> import torch
    >>> TrainedClient({"weight": torch.ones(2)}, mean_gradient={}).weights["weight"]
    tensor([1., 1.])
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

    Examples
    --------
    >>> Correction(proximal=0.01)
    Correction(proximal=0.01, offset={})
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
    ...     def advance(self, weights, server_state, mean, clients):
    ...         moved, server_state = super().advance(weights, server_state, mean, clients)
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

    # At the coordinator. `server_state` is what `advance` returned last, empty at first.

    def broadcast(self, server_state: Weights) -> Weights:
        """Return the tensors that clients receive besides the weights."""
        return {}

    def advance(
        self, weights: Weights, server_state: Weights, mean: MeanUpdate, clients: int
    ) -> tuple[Weights, Weights]:
        """Return the next global weights.

        Parameters
        ----------
        weights : dict of str to Tensor
            Current global weights; not changed.
        server_state : dict of str to Tensor
            What the previous call returned as second value, empty at first; not changed.
        mean : MeanUpdate
            Mean of what `prepare` returned at the participating clients.
        clients : int
            Number of clients in the federation.

        Returns
        -------
        weights, server_state : tuple of dict
            The next global weights and the next server state.
        """
        return apply_update(weights, mean.delta, self.step, mean.buffers), server_state

    def aggregate(
        self, weights: Weights, server_state: Weights, updates: Iterable[Update], clients: int
    ) -> tuple[Weights, Weights]:
        """Combine the updates of a round: `advance` by the mean of the prepared updates.

        Override it only if the algorithm needs more than the mean. It is then not available where the coordinator
        sees sums only (`single_updates_reason`).

        Parameters
        ----------
        weights, server_state, clients
            As of `advance`.
        updates : iterable of Update
            The updates of the participating clients, one at a time.

        Returns
        -------
        weights, server_state : tuple of dict
            The next global weights and the next server state.
        """
        mean = mean_update((self.prepare(weights, update) for update in updates), self.weighting)
        return self.advance(weights, server_state, mean, clients)

    @property
    def single_updates_reason(self) -> str:
        """Why the coordinator must see every single update; empty if their mean is enough."""
        overridden = type(self).aggregate is not Algorithm.aggregate
        return "it combines single updates (its class overrides aggregate)" if overridden else ""

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

    def prepare(self, weights: Weights, update: Update) -> Update:
        """Return an update as it enters the mean.

        Parameters
        ----------
        weights : dict of str to Tensor
            The global weights that the client received.
        update : Update
            The update of one client; copy what is changed.
        """
        return update


def declared_update(algorithm: Algorithm, module: nn.Module) -> UpdateSpec:
    """Return the declaration of the updates that clients send under this algorithm with this model."""
    parameters = dict(module.named_parameters())
    trainable = {name: TensorSpec.of(p) for name, p in parameters.items() if p.requires_grad}
    return UpdateSpec.of(weights_of(module), parameters, algorithm.message_spec(trainable))


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
