"""The task that all clients share: classes, test prior, and how stored rows become network inputs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from torch import Tensor

from fedul.core.priors import Matrix


@dataclass(frozen=True)
class Scaling:
    """Affine map ``x * scale + shift`` from stored inputs to network inputs.

    Parameters
    ----------
    scale : float, default=1.0
        Factor.
    shift : float, default=0.0
        Constant that is added after scaling.

    Examples
    --------
    >>> Scaling(scale=1 / 255)(torch.tensor([255], dtype=torch.uint8))
    tensor([1.])
    """

    scale: float = 1.0
    shift: float = 0.0

    def __call__(self, inputs: Tensor) -> Tensor:
        scaled = inputs.to(compute_dtype(inputs))
        if self.scale != 1:
            scaled = scaled * self.scale
        return scaled + self.shift if self.shift else scaled


def compute_dtype(inputs: Tensor) -> torch.dtype:
    """Return the dtype to compute in: the dtype of the inputs if it is a floating one, else float32."""
    return inputs.dtype if inputs.is_floating_point() else torch.float32


class Schema(Protocol):
    """How a row of a table, or an image file, becomes an input of the network.

    The schemas are in `fedul.data.files.schema`; a federation and a classifier only carry one.
    """

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one encoded row."""

    def to_dict(self) -> dict[str, Any]:
        """Return the schema as JSON-serializable values."""


@dataclass(frozen=True, eq=False)
class TaskSpec:
    """What all clients agree on before the first round.

    A client's work depends on this and on its own rows, and on nothing else of the federation.

    Parameters
    ----------
    classes : sequence of str
        Names of the K classes.
    test_prior : ndarray of shape (K,)
        Class mix of the population that the classifier is for.
    input_shape : tuple of int
        Shape of one row.
    scaling : Scaling
        Map from stored inputs to network inputs.
    schema : Schema or None
        How tables or files become inputs; None where they are arrays from the start.
    class_mix : ndarray of shape (K,) or None
        Class mix of all rows of the federation; None where it is not known. With it, a client can use how its sets
        differ from those of other clients.

    Examples
    --------
    >>> import fedul
    >>> spec = fedul.load("digits", clients=2, rows=400).federation.spec
    >>> len(spec.classes), spec.input_shape
    (10, (1, 8, 8))
    """

    classes: Sequence[str]
    test_prior: Matrix  # (K,)
    input_shape: tuple[int, ...]
    scaling: Scaling = field(default_factory=Scaling)
    schema: Schema | None = None
    class_mix: Matrix | None = None
