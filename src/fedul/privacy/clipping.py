"""Clipping of updates: every client can move the sum of all updates by a known distance at most.

McMahan et al., Learning Differentially Private Recurrent Language Models, ICLR 2018. An update is one vector of up to
three groups: the change of the parameters, the change of batch-norm statistics, and the message of the algorithm (that
of SCAFFOLD is as long as the parameters). Each group is scaled to its own clip C_g. In units of the clips the whole
update has at most the norm sqrt(G) for G groups, which is the sensitivity that `fedul.privacy.client_privacy` uses.

For adaptive clipping the update also states of each group whether its norm was at most the clip (Andrew et al.,
Differentially Private Learning with Adaptive Clipping, NeurIPS 2021).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TypeVar

import torch

from fedul.core import TensorSpec, Update, UpdateSpec, Weights
from fedul.errors import InputError
from fedul.privacy.update_chain import UpdateContext, UpdateStep

T = TypeVar("T")

GROUPS = ("delta", "buffers", "message")
"""Groups of tensors of an update, each with a clip of its own."""
WITHIN = "clipping/within/"
"""Prefix of the message tensors that state whether the norm of a group was at most its clip."""
STATISTICS = ("running_mean", "running_var")
"""Buffers that are aggregated. Others are constant, or count batches; with noise they would be neither."""
SLACK = 1 - 2.0**-20
"""Factor of a clip, so that rounding to single precision does not lead above it."""


def clipped_groups(spec: UpdateSpec) -> tuple[str, ...]:
    """Return the groups of a declared update that are not empty."""
    groups = {"delta": spec.delta, "buffers": spec.buffers, "message": split_within(spec.message)[0]}
    return tuple(group for group in GROUPS if groups[group])


def group_norm(tensors: Weights) -> float:
    """Return the Euclidean norm of tensors as one vector."""
    squares = [torch.linalg.vector_norm(tensor, dtype=torch.float64).square() for tensor in tensors.values()]
    return float(torch.stack(squares).sum().sqrt()) if squares else 0.0


def clip_group(tensors: Weights, clip: float) -> tuple[Weights, bool]:
    """Return tensors whose norm is at most the clip, and whether it was before.

    Tensors that are not finite have no norm, and are replaced by zeros.

    Examples
    --------
    >>> clip_group({"a": torch.tensor([3.0]), "b": torch.tensor([4.0])}, 2.5)[0]
    {'a': tensor([1.5000]), 'b': tensor([2.0000])}
    """
    norm = group_norm(tensors)
    if norm <= clip * SLACK:
        return tensors, True
    if not norm < float("inf"):  # also NaN
        return {name: torch.zeros_like(tensor) for name, tensor in tensors.items()}, False
    factor = clip * SLACK / norm
    return {name: tensor * factor for name, tensor in tensors.items()}, norm <= clip


@dataclass(frozen=True)
class ClipUpdates(UpdateStep):
    """Scale each group of an update to at most its clip, which the coordinator sends with the weights.

    Parameters
    ----------
    adaptive : bool, default=False
        Whether an update also states of each group whether its norm was at most the clip.
    """

    adaptive: bool = False

    def declare(self, spec: UpdateSpec) -> UpdateSpec:
        spec = replace(spec, buffers={name: each for name, each in spec.buffers.items() if _is_statistic(name)})
        if not self.adaptive:
            return spec
        within = {WITHIN + group: TensorSpec((1,), torch.float32) for group in clipped_groups(spec)}
        return replace(spec, message={**spec.message, **within})

    def apply(self, update: Update, context: UpdateContext) -> Update:
        statistics = {name: tensor for name, tensor in update.buffers.items() if _is_statistic(name)}
        groups = {"delta": update.delta, "buffers": statistics, "message": update.message}
        within: Weights = {}
        if unclipped := [group for group, tensors in groups.items() if tensors and group not in context.clips]:
            raise InputError(f"the coordinator sends no clip for the {unclipped[0]} of updates, so none is sent.")
        for group, clip in context.clips.items():
            groups[group], inside = clip_group(groups[group], clip)
            within[WITHIN + group] = torch.tensor([float(inside)])
        return replace(
            update,
            delta=groups["delta"],
            buffers=groups["buffers"],
            message={**groups["message"], **within} if self.adaptive else groups["message"],
        )


def split_within(message: Mapping[str, T]) -> tuple[dict[str, T], dict[str, T]]:
    """Return the tensors of a message without those of `ClipUpdates`, and the latter by group."""
    within = {name.removeprefix(WITHIN): each for name, each in message.items() if name.startswith(WITHIN)}
    return {name: each for name, each in message.items() if not name.startswith(WITHIN)}, within


def _is_statistic(name: str) -> bool:
    return name.rpartition(".")[2] in STATISTICS
