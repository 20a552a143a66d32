"""What a round sums: the prepared update of every site, its rows, steps and loss, and further fields of the engine.

Parameters use 32 bits each if that is precise enough for the number of sites, else 64. Everything else uses 64 bits:
buffers and messages, because their range is not known in advance, and numbers of the round, because they are few.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from fedul.core import MeanUpdate, RoundSums, Update, UpdateSpec, Weights
from fedul.core.update import TensorSpecs
from fedul.errors import EnvironmentFailure
from fedul.privacy.secure_aggregation.layout import CLIPPED, EncodedVector, Field, Values, VectorLayout
from fedul.privacy.secure_aggregation.masks import Words

PRECISION = 2.0**-20
"""Largest error of the mean change of a parameter for which 32 bits are used."""
OTHER_RANGE = 2.0**20
"""Largest absolute value in buffers and messages; larger ones are clipped."""
LOSS_RANGE = 1000.0
"""Largest mean loss of a site; a larger one is clipped. The loss is for display only."""
COUNT_RANGE = 2.0**40
"""Largest number of rows, steps and clipped values of a site."""


@dataclass(frozen=True)
class UpdateLayout:
    """How updates become vectors, and their sum becomes a mean. Sites and coordinator build the same one.

    Parameters
    ----------
    spec : UpdateSpec
        Declaration of the updates.
    sites : int
        Most sites that take part.
    weighting : {"uniform", "rows"}
        Whether sites count the same or by their rows (`Algorithm.weighting`).
    limit : float
        Largest absolute change of a parameter (`aggregation_range`).
    share : float
        Share of the sites that stay to the end at least (`aggregation_threshold`).
    total_rows : int
        Upper bound of the rows of all sites; used with weighting "rows" only.
    has_loss : bool, default=True
        Whether sites report their loss; not if rows are private.
    extra : tuple of Field
        Further fields.
    """

    spec: UpdateSpec
    sites: int
    weighting: str
    limit: float
    share: float
    total_rows: int = 0
    has_loss: bool = True
    extra: tuple[Field, ...] = field(default=())

    @cached_property
    def vector(self) -> VectorLayout:
        """The fields of the vector."""
        weight = float(self.total_rows if self.weighting == "rows" else self.sites)

        def counted(name: str) -> Field:
            return Field(name, 1, COUNT_RANGE, self.sites * COUNT_RANGE)

        def weighted(name: str, size: int, limit: float, bits: int = 64) -> Field:
            return Field(name, size, limit, limit * weight, bits, weighted=True)

        narrow = weighted("delta", _size(self.spec.delta), self.limit, 32)
        error = VectorLayout((narrow,), self.sites).step(narrow) * self.sites / 2 / (self.share * weight)
        fields = (
            weighted("delta", _size(self.spec.delta), self.limit, 32 if error <= PRECISION else 64),
            weighted("buffers", _size(self.spec.buffers), OTHER_RANGE),
            weighted("message", _size(self.spec.message), OTHER_RANGE),
            weighted("steps", 1, COUNT_RANGE),
            counted("rows"),
            *((counted("loss"),) if self.has_loss else ()),
            counted(CLIPPED),
        )
        return VectorLayout((*fields, *self.extra), self.sites)

    @property
    def step(self) -> float:
        """Distance between two values of a parameter that can be told apart, for a site of weight 1."""
        return self.vector.step(self.vector.fields[0])

    def encode(self, update: Update, extra: Mapping[str, Values] | None = None) -> EncodedVector:
        """Return the vector of one site.

        Parameters
        ----------
        update : Update
            What `Algorithm.prepare` returned.
        extra : mapping of str to ndarray, optional
            Values of the further fields.

        Raises
        ------
        NotFinite
            If a value is not a finite number.
        """
        values: dict[str, Values] = {
            "delta": _flatten(update.delta, self.spec.delta),
            "buffers": _flatten(update.buffers, self.spec.buffers),
            "message": _flatten(update.message, self.spec.message),
            "steps": np.array([float(update.steps)]),
            "rows": np.array([float(update.rows)]),
            **(extra or {}),
        }
        if update.loss is not None:
            values["loss"] = np.array([np.clip(update.loss, -LOSS_RANGE, LOSS_RANGE) * update.rows])
        return self.vector.encode(values, weight=float(update.rows) if self.weighting == "rows" else 1.0)

    def decode(self, sums: Words, clients: int, device: torch.device | str = "cpu") -> RoundSums:
        """Return the means of the sites that are in a sum.

        Parameters
        ----------
        sums : Words
            The sum of their vectors.
        clients : int
            Their number.
        device : torch.device or str, default="cpu"
            Device of the mean.
        """
        values = self.vector.decode(sums)
        rows = float(values["rows"][0])
        weight = rows if self.weighting == "rows" else float(clients)
        if weight <= 0:
            raise EnvironmentFailure("no client trained on any row in this round; the model did not change.")
        delta, buffers, message = (
            {name: tensor.to(device) for name, tensor in _unflatten(values[label] / weight, specs, dtype).items()}
            for label, specs, dtype in (
                ("delta", self.spec.delta, None),
                ("buffers", self.spec.buffers, torch.float64),  # the mean of integers is none
                ("message", self.spec.message, None),
            )
        )
        mean = MeanUpdate(
            delta,
            buffers,
            message,
            float(values["steps"][0]) / weight,
            clients,
        )
        extra = {each.name: values[each.name] for each in self.extra}
        loss = float(values["loss"][0]) / max(rows, 1) if self.has_loss else None
        return RoundSums(mean, clients, round(rows), loss, round(values[CLIPPED][0]), extra)


def _size(specs: TensorSpecs) -> int:
    return sum(torch.Size(spec.shape).numel() for spec in specs.values())


def _flatten(tensors: Weights, specs: TensorSpecs) -> Values:
    """Return the tensors as one vector, in the order of their names; absent ones are zero."""
    parts = [
        tensors[name].detach().cpu().double().reshape(-1)
        if name in tensors
        else torch.zeros(torch.Size(specs[name].shape).numel(), dtype=torch.float64)
        for name in sorted(specs)
    ]
    vector: Values = torch.cat(parts).numpy() if parts else np.zeros(0)
    return vector


def _unflatten(vector: Values, specs: TensorSpecs, dtype: torch.dtype | None = None) -> Weights:
    """Return the vector as tensors by name."""
    tensors, start = dict[str, Tensor](), 0
    for name in sorted(specs):
        spec = specs[name]
        end = start + torch.Size(spec.shape).numel()
        tensors[name] = torch.from_numpy(vector[start:end]).reshape(spec.shape).to(dtype or spec.dtype)
        start = end
    return tensors
