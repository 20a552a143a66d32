"""Copies and comparisons of weights, updates, runs and folders."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from torch import Tensor, nn

from fedul.core import RoundMetrics, Update, Weights
from fedul.models.weights import weights_of


def copy_weights(source: nn.Module | Weights) -> Weights:
    """Return a copy of weights, or of those of a network."""
    weights = weights_of(source) if isinstance(source, nn.Module) else source
    return {name: tensor.clone() for name, tensor in weights.items()}


def copy_update(update: Update) -> Update:
    """Return an update with its own tensors: one from an engine is valid only until the next one is requested."""
    groups = {name: copy_weights(getattr(update, name)) for name in ("delta", "buffers", "message")}
    return replace(update, **groups)


def largest_difference(one: Mapping[str, Tensor], other: Mapping[str, Tensor]) -> float:
    """Return the largest absolute difference between two sets of weights."""
    return max(float((one[name] - other[name]).abs().max()) for name in one)


def without_seconds(history: Sequence[RoundMetrics]) -> list[RoundMetrics]:
    """Return the rounds without the time that they took."""
    return [replace(metrics, seconds=0.0) for metrics in history]


def contents(folder: Path) -> dict[str, bytes | None]:
    """Return the bytes of every file below a folder, and None for every folder below it."""
    return {
        str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None
        for path in sorted(folder.rglob("*"))
    }
