"""FedPL: every row of a set is taken to be of the set's most common class, and what looks wrong is mixed with the rest.

The baseline of Lu et al., ICLR 2022 (appendix), after SemiFL (Diao et al., 2021). Rows whose largest predicted
probability exceeds `threshold` train on their pseudo label; each of them is also mixed with a row below it, inputs and
losses alike, by a weight from Beta(shape, shape). A batch without one of the two kinds has no mixed term. A fresh
network is sure of nothing and would never start, so a batch without a sure row trains on all of its pseudo labels.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from fedul.federation import Agreed, UnlabeledSets, float_type
from fedul.methods.base import Method, Predict, Step, Targets, Task, cross_entropies, prior_shift, rows_at
from fedul.settings import check, option


@dataclass(frozen=True)
class FedPL(Method):
    """Cross-entropy on pseudo labels, with mixup of sure and unsure rows."""

    threshold: float = option(0.4, "Largest predicted probability above which a row is sure (tau).", low=0, high=1)
    mix: float = option(0.3, "Weight of the mixed term (lambda).", low=0)
    shape: float = option(0.75, "Mixing weights are drawn from Beta(shape, shape).", low=1e-3)

    at_once: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check(self)

    def task(self, client: UnlabeledSets, agreed: Agreed) -> Task:
        device, precision = client.inputs.device, float_type(client.inputs)
        label = torch.from_numpy(client.priors.argmax(axis=1)).to(device)[client.train.sets.to(device)]
        # As for true labels: plain cross-entropy would learn how common each pseudo label is at the client.
        shares = np.bincount(label.cpu().numpy(), minlength=len(agreed.classes)) / len(label)
        offset = prior_shift(shares, agreed.test_prior).to(device, precision)

        def draw(rows: int, generator: torch.Generator) -> Mapping[str, Tensor]:
            return {
                "partner": torch.rand(rows, generator=generator),
                "share": self._shares(rows, generator).to(precision),
            }

        targets = Targets({"label": label}, client={"offset": offset})
        return Task(client.inputs, client.train.index.to(device), targets, agreed.scaling, draw)

    def loss(self, predict: Predict, step: Step) -> Tensor:
        label, offset = step.targets["label"], step.shared["offset"]
        logits = predict(step.inputs)
        here = torch.ones_like(label, dtype=torch.bool) if step.weight is None else step.weight > 0
        sure = (logits.detach().softmax(-1).amax(-1) > self.threshold) & here
        unsure = ~sure & here
        direct = cross_entropies(logits + offset, label)
        loss = step.mean(torch.where(sure | ~sure.any(-1, keepdim=True), direct, torch.zeros_like(direct)))
        if not self.mix:
            return loss
        # Every row gets a partner, whether it needs one or not: so no shape depends on what the model predicts.
        unsure_first = unsure.logical_not().to(torch.uint8).argsort(dim=-1, stable=True)
        count = unsure.sum(-1, keepdim=True)
        drawn = (step.targets["partner"] * count).long().minimum((count - 1).clamp_min(0))
        partner = unsure_first.gather(-1, drawn)
        share = step.targets["share"]
        across = share.reshape(*share.shape, *[1] * (step.inputs.dim() - share.dim()))
        mixed = predict(across * step.inputs + (1 - across) * rows_at(step.inputs, partner)) + offset
        own = cross_entropies(mixed, label)
        other = cross_entropies(mixed, label.gather(-1, partner))
        both = torch.where(sure & (count > 0), share * own + (1 - share) * other, torch.zeros_like(own))
        return loss + self.mix * step.mean(both)

    def _shares(self, rows: int, generator: torch.Generator) -> Tensor:
        """Draws (rows,) from Beta(shape, shape), which torch can only do with its global generator."""
        seed = int(torch.randint(2**62, (), generator=generator))
        return torch.from_numpy(np.random.default_rng(seed).beta(self.shape, self.shape, rows))
