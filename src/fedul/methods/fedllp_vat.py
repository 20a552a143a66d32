"""FedLLP-VAT: FedLLP, and predictions must not change where an input is changed in the direction that matters most.

Tsai and Lin, Learning from Label Proportions with Consistency Regularization, ACML 2020: virtual adversarial training
(Miyato et al., 2018) with weight 0.05, perturbations of norm 6.0 and a sigmoid ramp-up over the first 0.4 of the
training, which are the defaults here. Lu et al. use weight 5e-4 and norm 0.01 on MNIST (`weight=0.0005 norm=0.01`),
which is practically off. At weight 0 it is FedLLP.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from fedul.federation import Agreed, UnlabeledSets
from fedul.methods.base import Kept, Predict, Step, Targets, Task, statistics_kept
from fedul.methods.fedllp import FedLLP
from fedul.settings import option

PROBE = 1e-2
"""Length of the step by which the direction is found. The published 1e-6 is lost in the rounding of float32."""


@dataclass(frozen=True)
class FedLLPVAT(FedLLP):
    """The proportion loss plus weight * KL(f(x) || f(x + r)), r the adversarial direction of a given norm."""

    weight: float = option(0.05, "Weight of the consistency term; at 0 this is fedllp.", low=0)
    norm: float = option(6.0, "Length of the perturbation.", low=0)
    ramp_rounds: int = option(12, "Rounds over which the weight grows to its full size.", low=0)

    def task(self, client: UnlabeledSets, agreed: Agreed) -> Task:
        task = super().task(client, agreed)
        if not self.weight:
            return task

        def noise(inputs: Tensor, generator: torch.Generator) -> Mapping[str, Tensor]:
            direction = torch.randn(inputs.shape, generator=generator, dtype=torch.float32)
            return {"direction": _unit(direction, 1).to(inputs.device, inputs.dtype)}

        return replace(task, noise=noise)

    def coordinate(self, history: Sequence[Mapping[str, Any]]) -> Mapping[str, float]:
        if not self.weight:
            return {}
        missing = 1 - min(1.0, len(history) / self.ramp_rounds) if self.ramp_rounds else 0.0
        return {"consistency": self.weight * math.exp(-5 * missing**2)}

    def looks(self, directive: Mapping[str, float]) -> bool:
        return super().looks(directive) or bool(self.weight)

    def begin_round(
        self, targets: Targets, logits: Tensor, directive: Mapping[str, float], kept: Kept
    ) -> tuple[Targets, Kept]:
        if super().looks(directive):
            targets, kept = super().begin_round(targets, logits, directive, kept)
        offset = targets.client["offset"]  # (K,), or (C, 1, K) of several clients
        weight = offset.new_full(offset.shape[:-1], directive.get("consistency", 0.0))
        return replace(targets, client={**targets.client, "consistency": weight}), kept

    def loss(self, predict: Predict, step: Step) -> Tensor:
        logits = predict(step.inputs)
        loss = self.proportion_loss(logits, step)
        if self.weight:
            loss = loss + step.mean(step.shared["consistency"] * self.consistency(predict, step, logits))
        return loss

    def consistency(self, predict: Predict, step: Step, logits: Tensor) -> Tensor:
        """KL (..., n) between the predictions for a row and for the row changed where it matters most."""
        clean = logits.detach().log_softmax(-1)
        lead = logits.dim() - 1  # dimensions before those of a row
        with statistics_kept(predict):
            changed = (PROBE * step.targets["direction"]).requires_grad_()
            distance = _divergence(clean, predict(step.inputs + changed)).sum()
            (gradient,) = torch.autograd.grad(distance, changed)
            perturbed = predict(step.inputs + self.norm * _unit(gradient, lead))
        return _divergence(clean, perturbed)


def _divergence(clean: Tensor, logits: Tensor) -> Tensor:
    """KL(clean || softmax(logits)) (n,), clean given as logarithms."""
    return functional.kl_div(logits.log_softmax(-1), clean, reduction="none", log_target=True).sum(-1)


def _unit(rows: Tensor, lead: int) -> Tensor:
    """Each row at length 1, a row being what follows the first dimensions; a row of zeros stays."""
    length = rows.flatten(lead).norm(dim=-1).reshape(*rows.shape[:lead], *[1] * (rows.dim() - lead))
    unit: Tensor = rows / length.clamp_min(torch.finfo(rows.dtype).tiny)
    return unit
