"""Updates of clients, their mean, and their declaration: the tensors that may leave a client."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Weights = dict[str, Tensor]
"""Parameters and buffers by name."""


@dataclass(frozen=True, eq=False)
class Update:
    """What a client sends back after its local steps. Valid until the next update is requested.

    Parameters
    ----------
    client : str
        Name of the client.
    delta : dict of str to Tensor
        Local minus global parameters.
    rows : int
        Rows that the client trained on.
    steps : float
        Effective number of plain gradient steps (larger than the steps taken, with momentum).
    loss : float or None
        Mean local loss; None if rows are private, because nothing protects it.
    buffers : dict of str to Tensor
        Change of the buffers that changed, in floating point.
    message : dict of str to Tensor
        Further tensors of the algorithm, as declared by `Algorithm.message_spec`.

    Examples
    --------
    >>> update = Update("north", {"weight": torch.zeros(2)}, rows=10, steps=4, loss=0.7)
    >>> update.message
    {}
    """

    client: str
    delta: Weights
    rows: int
    steps: float
    loss: float | None
    buffers: Weights = field(default_factory=dict)
    message: Weights = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class MeanUpdate:
    """Mean of the updates of a round.

    Parameters
    ----------
    delta, buffers, message : dict of str to Tensor
        Means of the tensors of the updates.
    steps : float
        Mean of their effective steps.
    clients : float
        Number of updates, or the expected number where the exact one is private.

    Examples
    --------
    >>> mean = MeanUpdate({"weight": torch.ones(2)}, {}, {}, steps=4, clients=3)
    >>> mean.delta["weight"]
    tensor([1., 1.])
    """

    delta: Weights
    buffers: Weights
    message: Weights
    steps: float
    clients: float


@dataclass(frozen=True, eq=False)
class RoundSums:
    """What the coordinator learns of the updates of a round under secure aggregation.

    Parameters
    ----------
    mean : MeanUpdate
        Mean of the prepared updates.
    clients, rows : int
        Sites in the sums, and their rows.
    loss : float or None
        Mean loss over these rows; None if rows are private.
    clipped : int
        Values that were outside the declared range at their site.
    extra : mapping of str to ndarray
        Sums of the further fields.
    """

    mean: MeanUpdate
    clients: int
    rows: int
    loss: float | None
    clipped: int
    extra: Mapping[str, NDArray[np.float64]]


@dataclass(frozen=True)
class TensorSpec:
    """Shape and dtype of a tensor that is sent.

    Examples
    --------
    >>> TensorSpec.of(torch.zeros(2, 3)).problem(torch.zeros(3, 2))
    'has shape (3, 2), not (2, 3)'
    """

    shape: tuple[int, ...]
    dtype: torch.dtype

    @classmethod
    def of(cls, tensor: Tensor, dtype: torch.dtype | None = None) -> TensorSpec:
        """Return the spec of a tensor, optionally with another dtype."""
        return cls(tuple(tensor.shape), dtype or tensor.dtype)

    @property
    def nbytes(self) -> int:
        """Size in bytes."""
        return torch.Size(self.shape).numel() * self.dtype.itemsize

    def problem(self, tensor: Tensor) -> str:
        """Return what is wrong with a tensor; empty if nothing is."""
        if tensor.shape != self.shape:
            return f"has shape {tuple(tensor.shape)}, not {self.shape}"
        if tensor.dtype != self.dtype:
            return f"holds {_dtype_name(tensor.dtype)}, not {_dtype_name(self.dtype)}"
        return ""


TensorSpecs = Mapping[str, TensorSpec]


@dataclass(frozen=True)
class UpdateSpec:
    """Declaration of an update: every tensor that it may hold, by name.

    All tensors of `delta` and `message` must be present. A buffer may be absent, which means that it did not change.
    """

    delta: TensorSpecs
    buffers: TensorSpecs = field(default_factory=dict)
    message: TensorSpecs = field(default_factory=dict)

    @classmethod
    def of(cls, weights: Weights, parameters: Iterable[str], message: TensorSpecs | None = None) -> UpdateSpec:
        """Return the declaration for a model, given the names of its parameters; its other tensors are buffers.

        Changes of integer buffers are sent as float64.
        """
        names = set(parameters)
        delta = {name: TensorSpec.of(tensor) for name, tensor in weights.items() if name in names}
        buffers = {
            name: TensorSpec.of(tensor, None if tensor.is_floating_point() else torch.float64)
            for name, tensor in weights.items()
            if name not in names
        }
        return cls(delta, buffers, message or {})

    @property
    def nbytes(self) -> int:
        """Size in bytes of an update that holds everything."""
        return sum(spec.nbytes for group in (self.delta, self.buffers, self.message) for spec in group.values())

    def problem(self, update: Update) -> str:
        """Return in what an update differs from its declaration; empty if it does not."""
        for label, sent, declared, must_be_complete in (
            ("parameter", update.delta, self.delta, True),
            ("buffer", update.buffers, self.buffers, False),
            ("message tensor", update.message, self.message, True),
        ):
            for name, tensor in sent.items():
                if name not in declared:
                    return f"'{name[:80]}' is not a declared {label}"
                if problem := declared[name].problem(tensor):
                    return f"'{name}' {problem}"
            if must_be_complete and len(sent) < len(declared):
                return f"the {label} '{min(declared.keys() - sent.keys())}' is missing"
        return ""


def _dtype_name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
