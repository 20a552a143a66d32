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

from torch import Tensor

from fedul._utils.settings import option
from fedul.core import RoundMetrics, TaskSpec, UnlabeledSets
from fedul.methods.base import ClientState, Method
from fedul.methods.consistency import consistency_loss, draw_direction
from fedul.methods.fedllp import FedLLP
from fedul.methods.row_private import row_privacy_refused
from fedul.methods.task import Predict, Step, Targets, Task


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

    def row_private(self) -> tuple[Method, Sequence[str]]:
        raise row_privacy_refused("fedllp-vat", "it fits mean predictions over whole sets")

    def task(self, client: UnlabeledSets, spec: TaskSpec) -> Task:
        task = super().task(client, spec)
        return replace(task, draw_step=draw_direction) if self.weight else task

    def patience_start(self, history: Sequence[RoundMetrics]) -> int:
        return self.ramp_rounds

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
            loss = loss + step.mean(step.shared["consistency"] * consistency_loss(predict, step, logits, self.norm))
        return loss
