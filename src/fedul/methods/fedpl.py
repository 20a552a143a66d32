"""FedPL: the pseudo label of every row is the most common class of its set.

The baseline of Lu et al., ICLR 2022 (appendix), based on SemiFL (Diao et al., 2021). A row is confident if its largest
predicted probability exceeds `threshold`. Confident rows train on their pseudo label. Each of them is also mixed with a
row that is not confident (mixup of inputs and losses, with a weight from Beta(shape, shape)). A step without rows of
both kinds has no mixed term. A new network is confident about no row and would never start to learn, so a step without
a confident row trains on all of its pseudo labels.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from fedul._utils.settings import option
from fedul.core import TaskSpec, UnlabeledSets, compute_dtype
from fedul.methods.base import Method
from fedul.methods.operations import cross_entropies, prior_shift
from fedul.methods.row_private import row_privacy_refused
from fedul.methods.task import Predict, Step, Targets, Task, take_rows


@dataclass(frozen=True)
class FedPL(Method):
    """Minimise the cross-entropy on pseudo labels, with mixup of confident and other rows.

    With threshold = 0, mix = 0 and one-hot priors it is supervised learning.

    Parameters
    ----------
    threshold : float, default=0.4
        Largest predicted probability above which a row is confident (tau).
    mix : float, default=0.3
        Weight of the mixed term (lambda).
    shape : float, default=0.75
        Mixing weights are drawn from Beta(shape, shape).
    """

    threshold: float = option(0.4, "Largest predicted probability above which a row is confident (tau).", low=0, high=1)
    mix: float = option(0.3, "Weight of the mixed term (lambda).", low=0)
    shape: float = option(0.75, "Mixing weights are drawn from Beta(shape, shape).", low=1e-3)

    vectorized: ClassVar[bool] = True

    def row_private(self) -> tuple[Method, Sequence[str]]:
        raise row_privacy_refused("fedpl", "it mixes pairs of rows")

    def task(self, client: UnlabeledSets, spec: TaskSpec) -> Task:
        device, precision = client.inputs.device, compute_dtype(client.inputs)
        label = torch.from_numpy(client.priors.argmax(axis=1)).to(device)[client.train.sets.to(device)]
        # Without this offset, the classifier would learn the client's shares of pseudo labels.
        shares = np.bincount(label.cpu().numpy(), minlength=len(spec.classes)) / len(label)
        offset = prior_shift(shares, spec.test_prior).to(device, precision)

        def draw(rows: int, generator: torch.Generator) -> Mapping[str, Tensor]:
            return {
                "partner_draw": torch.rand(rows, generator=generator),
                "mixing_weight": self._draw_mixing_weights(rows, generator).to(precision),
            }

        targets = Targets({"label": label}, client={"offset": offset})
        return Task(client.inputs, client.train.index.to(device), targets, spec.scaling, draw)

    def loss(self, predict: Predict, step: Step) -> Tensor:
        label, offset = step.targets["label"], step.shared["offset"]
        logits = predict(step.inputs)
        real = torch.ones_like(label, dtype=torch.bool) if step.weight is None else step.weight > 0  # not padded
        confident = (logits.detach().softmax(-1).amax(-1) > self.threshold) & real
        others = ~confident & real
        row_losses = cross_entropies(logits + offset, label)
        used = confident | ~confident.any(-1, keepdim=True)
        loss = step.mean(torch.where(used, row_losses, torch.zeros_like(row_losses)))
        if not self.mix:
            return loss
        # Every row gets a partner, even if it is not used, so that shapes do not depend on predictions.
        others_first = others.logical_not().to(torch.uint8).argsort(dim=-1, stable=True)
        count = others.sum(-1, keepdim=True)
        drawn = (step.targets["partner_draw"] * count).long().minimum((count - 1).clamp_min(0))
        partner = others_first.gather(-1, drawn)
        weight = step.targets["mixing_weight"]
        factor = weight.reshape(*weight.shape, *[1] * (step.inputs.dim() - weight.dim()))
        mixed = predict(factor * step.inputs + (1 - factor) * take_rows(step.inputs, partner)) + offset
        own_losses = cross_entropies(mixed, label)
        partner_losses = cross_entropies(mixed, label.gather(-1, partner))
        mixed_losses = weight * own_losses + (1 - weight) * partner_losses
        return loss + self.mix * step.mean(
            torch.where(confident & (count > 0), mixed_losses, torch.zeros_like(mixed_losses))
        )

    def _draw_mixing_weights(self, rows: int, generator: torch.Generator) -> Tensor:
        """Draw (rows,) from Beta(shape, shape) with numpy, because torch uses its global generator for it."""
        seed = int(torch.randint(2**62, (), generator=generator))
        return torch.from_numpy(np.random.default_rng(seed).beta(self.shape, self.shape, rows))
