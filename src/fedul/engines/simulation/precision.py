"""The precision in which a network is trained: float32, or 16 bits where the hardware gains from it.

The choice follows a rule and no measurement. A run records it, and keeps it when it is resumed on other hardware.
"""

from __future__ import annotations

import torch
from torch import nn

from fedul._utils import torch_private
from fedul._utils.randomness import keep_layer_random_states
from fedul.config import TrainConfig
from fedul.engines.simulation.vectorized_forward import trial_copy
from fedul.errors import InputError, first_line
from fedul.models.mixed_precision import in_precision
from fedul.models.operations import operations
from fedul.models.weights import precision_of

MIN_OPERATIONS = 5_000_000
"""Operations per row from which on 16 bits pay: below, casting takes a large part of what products save.

Measured on a processor with avx512_bf16: 1.2 times as fast at 1 million operations, 1.6 to 1.8 times from 7 million on.
"""


def run_precision(config: TrainConfig, module: nn.Module, shape: tuple[int, ...]) -> str:
    """Return the precision of a run: float32 if rows are private, because norms of gradients must be exact."""
    if not config.protects_rows:
        return choose_precision(config.precision, module, shape)
    if config.precision not in ("auto", "float32"):
        raise InputError(
            f"precision {config.precision}: is too coarse to limit the gradients of private rows (--dp-epsilon, "
            "--dp-noise); use float32 or auto."
        )
    return "float32"


def choose_precision(name: str, module: nn.Module, shape: tuple[int, ...]) -> str:
    """Return the precision of training by name; "auto" is bfloat16 where the hardware has it and the network gains.

    Parameters
    ----------
    name : {"auto", "float32", "bfloat16", "float16"}
        What the user asks for. "float32" stands for the precision of the weights.
    module : nn.Module
        The network.
    shape : tuple of int
        Shape of one row.

    Raises
    ------
    InputError
        If the network cannot be trained in the precision asked for.
    """
    if name == "float32":
        return name
    device = next(module.parameters()).device
    if name == "auto":
        gains = has_bfloat16(device) and _operations_per_row(module, shape) >= MIN_OPERATIONS
        return "bfloat16" if gains and not _problem("bfloat16", module, shape) else "float32"
    if name == "float16" and device.type == "cpu":
        raise InputError("precision float16: is for GPUs; use bfloat16 or auto on a CPU.")
    if problem := _problem(name, module, shape):
        raise InputError(f"precision {name}: this network cannot be trained in it ({problem}); use float32.")
    return name


def has_bfloat16(device: torch.device) -> bool:
    """Return whether a device multiplies matrices faster in bfloat16 than in float32."""
    if device.type == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    return device.type == "cpu" and torch_private.processor_has_bfloat16()


def _operations_per_row(module: nn.Module, shape: tuple[int, ...]) -> int:
    """Return the operations of one prediction; 0 if they cannot be counted, or weights are not in float32."""
    trial = trial_copy(module)
    if trial is None or precision_of(module) != torch.float32:
        return 0
    try:
        return operations(trial, shape)
    except Exception:  # a user's network may raise anything for a single row
        return 0


def _problem(precision: str, module: nn.Module, shape: tuple[int, ...]) -> str:
    """Return why a network cannot be trained in a precision, from a trial with two rows; empty if it can."""
    trial, first = trial_copy(module), next(module.parameters())
    if precision_of(module) != torch.float32:
        return "its weights are not float32"
    if trial is None:
        return "it cannot be copied for a trial"
    try:
        with keep_layer_random_states(first.device), torch.enable_grad():
            logits = in_precision(trial, precision)(torch.zeros(2, *shape, device=first.device))
            logits.sum().backward()
    except Exception as error:  # a user's network may raise anything
        return f"{type(error).__name__}: {first_line(error)}"
    return ""
