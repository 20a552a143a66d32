"""FedLLP-VAT: FedLLP with virtual adversarial training, which makes predictions smooth around each row.

Tsai and Lin, Learning from Label Proportions with Consistency Regularization, ACML 2020: virtual adversarial training
(Miyato et al., 2018) with weight 0.05, perturbations of norm 6.0 and a sigmoid ramp-up over the first 0.4 of the
training. These are the defaults here. Lu et al. use ``weight=0.0005 norm=0.01`` on MNIST, which has almost no effect.
With weight = 0 it is FedLLP.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn import functional

from fedul._utils.settings import option
from fedul.core import RoundMetrics, TaskSpec, UnlabeledSets
from fedul.methods.base import ClientState
from fedul.methods.fedllp import FedLLP
from fedul.methods.operations import frozen_batch_norm_statistics
from fedul.methods.task import Predict, Step, Targets, Task

PROBE = 1e-2
"""Length of the step that finds the adversarial direction. The published 1e-6 is below the rounding of float32."""


@dataclass(frozen=True)
class FedLLPVAT(FedLLP):
    """Minimise the loss of FedLLP plus ``weight * KL(f(x) || f(x + r))``, where r is the adversarial perturbation.

    With weight = 0 it is FedLLP.

    Parameters
    ----------
    weight : float, default=0.05
        Weight of the consistency term.
    norm : float, default=6.0
        Length of the perturbation r.
    ramp_rounds : int, default=12
        Rounds over which the weight grows to its full size.
    """

    weight: float = option(0.05, "Weight of the consistency term; with 0 this is fedllp.", low=0)
    norm: float = option(6.0, "Length of the perturbation.", low=0)
    ramp_rounds: int = option(12, "Rounds over which the weight grows to its full size.", low=0)

    def task(self, client: UnlabeledSets, spec: TaskSpec) -> Task:
        task = super().task(client, spec)
        if not self.weight:
            return task

        def draw_direction(inputs: Tensor, generator: torch.Generator) -> Mapping[str, Tensor]:
            direction = torch.randn(inputs.shape, generator=generator, dtype=torch.float32)
            return {"direction": _normalize_rows(direction, 1).to(inputs.device, inputs.dtype)}

        return replace(task, draw_step=draw_direction)

    def directive(self, history: Sequence[RoundMetrics]) -> Mapping[str, float]:
        if not self.weight:
            return {}
        remaining = 1 - min(1.0, len(history) / self.ramp_rounds) if self.ramp_rounds else 0.0
        return {"consistency": self.weight * math.exp(-5 * remaining**2)}

    def needs_logits(self, directive: Mapping[str, float]) -> bool:
        return super().needs_logits(directive) or bool(self.weight)

    def begin_round(
        self, targets: Targets, logits: Tensor, directive: Mapping[str, float], client_state: ClientState
    ) -> tuple[Targets, ClientState]:
        if super().needs_logits(directive):
            targets, client_state = super().begin_round(targets, logits, directive, client_state)
        offset = targets.client["offset"]  # (K,), or (C, 1, K) with vectorized clients
        weight = offset.new_full(offset.shape[:-1], directive.get("consistency", 0.0))
        return replace(targets, client={**targets.client, "consistency": weight}), client_state

    def loss(self, predict: Predict, step: Step) -> Tensor:
        logits = predict(step.inputs)
        loss = self.proportion_loss(logits, step)
        if self.weight:
            loss = loss + step.mean(step.shared["consistency"] * self.consistency(predict, step, logits))
        return loss

    def consistency(self, predict: Predict, step: Step, logits: Tensor) -> Tensor:
        """Return KL (..., n) between the predictions for a row and for its adversarial perturbation."""
        clean = logits.detach().log_softmax(-1)
        leading = logits.dim() - 1  # dimensions before those of a row
        with frozen_batch_norm_statistics(predict):
            probe = (PROBE * step.targets["direction"]).requires_grad_()
            distance = _divergence(clean, predict(step.inputs + probe)).sum()
            (gradient,) = torch.autograd.grad(distance, probe)
            perturbed = predict(step.inputs + self.norm * _normalize_rows(gradient, leading))
        return _divergence(clean, perturbed)


def _divergence(clean: Tensor, logits: Tensor) -> Tensor:
    """Return KL(clean || softmax(logits)) (..., n), where `clean` holds logarithms."""
    return functional.kl_div(logits.log_softmax(-1), clean, reduction="none", log_target=True).sum(-1)


def _normalize_rows(rows: Tensor, leading: int) -> Tensor:
    """Scale each row to length 1, after the leading dimensions; a row of zeros is unchanged."""
    length = rows.flatten(leading).norm(dim=-1).reshape(*rows.shape[:leading], *[1] * (rows.dim() - leading))
    unit: Tensor = rows / length.clamp_min(torch.finfo(rows.dtype).tiny)
    return unit
