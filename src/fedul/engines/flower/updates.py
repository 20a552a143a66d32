"""Updates as they come from sites that may be broken or worse: what does not fit is refused, with the reason."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import torch
from torch import Tensor

from fedul.algorithms.base import Update, Weights
from fedul.engines.flower.letters import Letter

WILD = 100.0
"""How many times the usual length an update may have. Sites with a hundred times the steps of others go further too."""


LARGEST_LOSS = 1e6


class Refused(ValueError):
    """An update that is not taken, and why."""


@dataclass(frozen=True, eq=False)
class Expected:
    """What an update must look like."""

    weights: Weights  # of the global model
    parameters: frozenset[str]  # those of them that learn

    @property
    def most_bytes(self) -> int:
        """No letter of a site can be larger: a change of everything, and as much again for the algorithm."""
        return 3 * sum(max(t.nbytes, 8 * t.numel()) for t in self.weights.values()) + 2**20

    def update(self, site: str, answer: Letter, rows: int, steps: float) -> Update:
        """The update that an answer holds, of a site that has so many rows and so takes so many steps."""
        delta, buffers, message = (answer.group(name) for name in ("delta", "buffers", "message"))
        if delta.keys() != self.parameters:
            raise Refused("its tensors are not those of the model")
        for name, tensor in delta.items():
            _check(name, tensor, self.weights[name], self.weights[name].dtype)
        for name, tensor in buffers.items():
            if name in self.parameters or name not in self.weights:
                raise Refused(f"'{name[:80]}' is no buffer of the model")
            value = self.weights[name]
            _check(name, tensor, value, value.dtype if value.is_floating_point() else torch.float64)
            if name.endswith("running_var") and bool((value + tensor < 0).any()):
                raise Refused(f"'{name}' would be negative, and is a variance")
        for name, tensor in message.items():
            if name not in self.parameters:
                raise Refused(f"'{name[:80]}' is no parameter of the model")
            _check(name, tensor, self.weights[name], self.weights[name].dtype)
        claimed, taken, loss = (_number(answer.notes, name) for name in ("rows", "steps", "loss"))
        if abs(loss) > LARGEST_LOSS:
            raise Refused(f"its loss is {loss:g}")
        if claimed != rows or taken != steps:
            raise Refused(f"it claims {claimed:g} rows and {taken:g} steps, where {rows} and {steps:g} are expected")
        return Update(site, delta, rows, steps, loss, buffers, message)


def wild(updates: Sequence[Update], usual: float | None) -> dict[str, str]:
    """The sites whose updates are out of all proportion, and why.

    Measured by the median of the others; where there are fewer than three, by what was usual so far, if anything was.
    """
    found = {}
    for group in ("delta", "message", "buffers"):
        lengths = {update.client: length(getattr(update, group)) for update in updates}
        for site, own in lengths.items():
            others = [each for name, each in lengths.items() if name != site]
            measure = median(others) if len(others) >= 2 else usual if group == "delta" else None
            if measure and own > WILD * measure:
                found[site] = f"its update is {own / measure:.0f} times as long as usual"
    return found


def length(tensors: Weights) -> float:
    """The norm of all tensors together."""
    return math.sqrt(sum(float(tensor.double().square().sum()) for tensor in tensors.values()))


def _check(name: str, tensor: Tensor, like: Tensor, kind: torch.dtype) -> None:
    if tensor.shape != like.shape:
        raise Refused(f"'{name}' has shape {tuple(tensor.shape)}, not {tuple(like.shape)}")
    if tensor.dtype != kind:
        raise Refused(
            f"'{name}' holds {str(tensor.dtype).removeprefix('torch.')}, not {str(kind).removeprefix('torch.')}"
        )
    if not bool(tensor.isfinite().all()):
        raise Refused(f"'{name}' holds values that are not finite")


def _number(notes: Mapping[str, Any], name: str) -> float:
    value = notes.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise Refused(f"its '{name}' is no number")
    return float(value)
