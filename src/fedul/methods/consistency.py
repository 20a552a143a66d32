"""Virtual adversarial training: predictions change little under a small perturbation of the inputs.

Miyato et al., Virtual Adversarial Training, TPAMI 2018. The perturbation points in the direction in which the
prediction changes most, found by one step of the power method. It needs no labels.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor
from torch.nn import functional

from fedul.methods.operations import frozen_batch_norm_statistics, log_softmax
from fedul.methods.task import Predict, Step
from fedul.models.mixed_precision import full_precision

PROBE = 1e-2
"""Length of the step that finds the adversarial direction. The published 1e-6 is below the rounding of float32."""


class DrawDirection:
    """Draws a random direction of length 1 for each row, as the target ``direction``; see `Task.draw_step`."""

    def __call__(self, inputs: Tensor, generator: torch.Generator) -> Mapping[str, Tensor]:
        direction = torch.randn(inputs.shape, generator=generator, dtype=torch.float32)
        return {"direction": _normalize_rows(direction, 1).to(inputs.device, inputs.dtype)}

    def of_clients(
        self, inputs: Tensor, sizes: Sequence[int], generators: Sequence[torch.Generator]
    ) -> Mapping[str, Tensor]:
        """Return the same for several clients with inputs (C, n, ...), of which `sizes` rows are not padded."""
        directions = torch.zeros(inputs.shape)
        for rows, size, generator in zip(directions.unbind(), sizes, generators, strict=True):
            rows[:size].normal_(generator=generator)
        return {"direction": _normalize_rows(directions, 2).to(inputs.device, inputs.dtype)}


draw_direction = DrawDirection()


def consistency_loss(
    predict: Predict, step: Step, logits: Tensor, norm: float | Tensor, shift: float | Tensor = 0.0
) -> Tensor:
    """Return KL (..., n) between the predictions for a row and for its adversarial perturbation.

    Parameters
    ----------
    predict : callable
        The network.
    step : Step
        Rows with the target ``direction`` of `draw_direction`.
    logits : Tensor
        (..., n, K) predictions for the rows.
    norm : float or Tensor
        Length of the perturbation, one for all rows or (..., n).
    shift : float or Tensor, default=0.0
        Added to the logits (..., n, K): predictions are compared under another class mix.
    """
    clean = log_softmax(logits.detach() + shift)
    leading = logits.dim() - 1  # dimensions before those of a row
    trailing = step.inputs.dim() - leading
    with frozen_batch_norm_statistics(predict):
        with full_precision(predict) as was_mixed:  # the effect of the probe is smaller than the rounding of 16 bits
            unperturbed = clean
            if was_mixed:
                with torch.no_grad():
                    unperturbed = log_softmax(predict(step.inputs) + shift)
            probe = (PROBE * step.targets["direction"]).requires_grad_()
            distance = _divergence(unperturbed, predict(step.inputs + probe) + shift).sum()
            (gradient,) = torch.autograd.grad(distance, probe)
        if isinstance(norm, Tensor):
            norm = norm.reshape(*norm.shape, *[1] * trailing)
        perturbed = predict(step.inputs + norm * _normalize_rows(gradient, leading)) + shift
    return _divergence(clean, perturbed)


def _divergence(clean: Tensor, logits: Tensor) -> Tensor:
    """Return KL(clean || softmax(logits)) (..., n), where `clean` holds logarithms."""
    return functional.kl_div(log_softmax(logits), clean, reduction="none", log_target=True).sum(-1)


def _normalize_rows(rows: Tensor, leading: int) -> Tensor:
    """Scale each row to length 1, after the leading dimensions; a row of zeros is unchanged."""
    length = rows.flatten(leading).norm(dim=-1).reshape(*rows.shape[:leading], *[1] * (rows.dim() - leading))
    unit: Tensor = rows / length.clamp_min(torch.finfo(rows.dtype).tiny)
    return unit
