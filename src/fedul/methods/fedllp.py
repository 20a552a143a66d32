"""FedLLP: the mean prediction over a set is fitted to the class priors of the set.

Learning from label proportions as in Dulac-Arnold et al., 2019, the baseline of Lu et al., ICLR 2022 (appendix). The
loss of set m is -sum_k Pi_mk log p_mk, where p_m is the mean prediction over the rows of the set. The logarithm of a
mean over the few rows of a set in a mini-batch is biased. Therefore a client computes the mean over all rows that the
priors speak of, held-out ones included, with the global model at the start of a round, and a step adds how far the
predictions of its rows have moved since: p = full + mean(now - start). With one row per set and one-hot priors it is
supervised learning. Steps mix rows of all sets, so that the statistics of batch norm are not those of a single set.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor

from fedul._utils.settings import option
from fedul.core import TaskSpec, UnlabeledSets, compute_dtype
from fedul.methods.base import ClientState, Method
from fedul.methods.operations import prior_shift, set_means, softmax
from fedul.methods.row_private import row_privacy_refused
from fedul.methods.task import Predict, Step, Targets, Task

MIN_SHARE = 1e-4
"""Lower bound of a corrected mean, which may leave 0..1; below it there is no gradient."""


@dataclass(frozen=True)
class FedLLP(Method):
    """Minimise the cross-entropy between the class priors of a set and the mean prediction over its rows.

    With one row per set and one-hot priors it is supervised learning.

    Parameters
    ----------
    mean : {"full", "batch"}, default="full"
        Mean prediction over all rows of the set, corrected in each step, or over the rows of the step.
    """

    mean: str = option(
        "full",
        "Mean prediction over all rows of the set, corrected in each step, or over the rows of the step.",
        choices=("full", "batch"),
    )

    vectorized: ClassVar[bool] = True

    def row_private(self) -> tuple[Method, Sequence[str]]:
        raise row_privacy_refused("fedllp", "it fits mean predictions over whole sets")

    def task(self, client: UnlabeledSets, spec: TaskSpec) -> Task:
        device, precision = client.inputs.device, compute_dtype(client.inputs)
        priors = torch.from_numpy(client.priors).to(device, precision)
        offset = prior_shift(client.class_mix, spec.test_prior).to(device, precision)

        rows = client.prior_rows if self.mean == "full" else client.train
        targets = Targets({"set": rows.sets.to(device)}, {"priors": priors}, client={"offset": offset})
        return Task(client.inputs, rows.index.to(device), targets, spec.scaling, trained=len(client.train))

    def needs_logits(self, directive: Mapping[str, float]) -> bool:
        return self.mean == "full"

    def begin_round(
        self, targets: Targets, logits: Tensor, directive: Mapping[str, float], client_state: ClientState
    ) -> tuple[Targets, ClientState]:
        start = softmax(logits + targets.client["offset"])  # (..., n, K)
        full = set_means(start, targets, targets.sets["priors"].shape[-2])
        rows, sets = {**targets.rows, "start": start}, {**targets.sets, "full": full}
        return replace(targets, rows=rows, sets=sets), client_state

    def loss(self, predict: Predict, step: Step) -> Tensor:
        return self.proportion_loss(predict(step.inputs), step)

    def proportion_loss(self, logits: Tensor, step: Step) -> Tensor:
        """Return the loss of a step from its logits (..., n, K)."""
        now = softmax(logits + step.shared["offset"])
        averaging = _averaging_matrix(step)
        mean = averaging @ now
        if self.mean == "full":
            mean = mean + step.targets["full"] - averaging @ step.targets["start"]
        # Each row has the loss of its set, so that sets are weighted by their rows.
        return step.mean(-(step.targets["priors"] * mean.clamp_min(MIN_SHARE).log()).sum(-1))


def _averaging_matrix(step: Step) -> Tensor:
    """Return the matrix (..., n, n) whose row i averages over the rows of the step in the same set as row i."""
    sets, priors = step.targets["set"], step.targets["priors"]
    same_set = (sets.unsqueeze(-1) == sets.unsqueeze(-2)).to(priors.dtype)
    if step.weight is not None:
        same_set = same_set * (step.weight > 0).unsqueeze(-2).to(priors.dtype)  # without padded rows
    return same_set / same_set.sum(-1, keepdim=True).clamp_min(1)
