"""FedLLP: the mean prediction over a set is brought to the set's class priors.

Learning from label proportions as in Dulac-Arnold et al., 2019, the baseline of Lu et al., ICLR 2022 (appendix): the
loss of set m is -sum_k Pi_mk log p_mk, where p_m is the mean prediction over the rows of the set. A mean over the few
rows that a mini-batch has of a set, inside a logarithm, is biased. So a client first takes the mean over all rows with
the fresh global model, and a step adds to it only how far the predictions of its rows have moved since:
p = full + mean(now - then). With one row a set and one-hot priors it is supervised learning. Steps mix rows of all
sets: batch norm never sees one set's rows alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor

from fedul.federation import Agreed, UnlabeledSets, float_type
from fedul.methods.base import Kept, Method, Predict, Step, Targets, Task, prior_shift, set_means
from fedul.settings import check, option

LEAST = 1e-4
"""A corrected mean may leave 0..1; below this share it counts as this, and gives no gradient."""


@dataclass(frozen=True)
class FedLLP(Method):
    """Cross-entropy between a set's class priors and the mean prediction over its rows."""

    mean: str = option(
        "full",
        "Mean prediction: over the whole set, corrected in each step; or over the step's rows.",
        choices=("full", "batch"),
    )

    at_once: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check(self)

    def task(self, client: UnlabeledSets, agreed: Agreed) -> Task:
        device, precision = client.inputs.device, float_type(client.inputs)
        priors = torch.from_numpy(client.priors).to(device, precision)
        offset = prior_shift(client.class_mix, agreed.test_prior).to(device, precision)

        targets = Targets({"set": client.train.sets.to(device)}, {"priors": priors}, client={"offset": offset})
        return Task(client.inputs, client.train.index.to(device), targets, agreed.scaling)

    def looks(self, directive: Mapping[str, float]) -> bool:
        return self.mean == "full"

    def begin_round(
        self, targets: Targets, logits: Tensor, directive: Mapping[str, float], kept: Kept
    ) -> tuple[Targets, Kept]:
        then = (logits + targets.client["offset"]).softmax(-1)  # (..., n, K)
        full = set_means(then, targets, targets.sets["priors"].shape[-2])
        rows, sets = {**targets.rows, "then": then}, {**targets.sets, "full": full}
        return replace(targets, rows=rows, sets=sets), kept

    def loss(self, predict: Predict, step: Step) -> Tensor:
        return self.proportion_loss(predict(step.inputs), step)

    def proportion_loss(self, logits: Tensor, step: Step) -> Tensor:
        """The loss from logits (..., n, K)."""
        now = (logits + step.shared["offset"]).softmax(-1)
        alike = self._alike(step)
        mean = alike @ now
        if self.mean == "full":
            mean = mean + step.targets["full"] - alike @ step.targets["then"]
        # Each row carries its set's loss, so that a set counts by its rows.
        return step.mean(-(step.targets["priors"] * mean.clamp_min(LEAST).log()).sum(-1))

    @staticmethod
    def _alike(step: Step) -> Tensor:
        """(..., n, n): row i averages over the step's rows of the set of row i; padded rows count for nothing."""
        sets, priors = step.targets["set"], step.targets["priors"]
        alike = (sets.unsqueeze(-1) == sets.unsqueeze(-2)).to(priors.dtype)
        if step.weight is not None:
            alike = alike * (step.weight > 0).unsqueeze(-2).to(priors.dtype)
        return alike / alike.sum(-1, keepdim=True).clamp_min(1)
