"""Soft labels: every row is trained on the class priors of its set.

The naive baseline of learning from label proportions ("soft-set logistic regression" with a linear model); it has no
paper of its own. The loss of a row in set m is -sum_k Pi_mk log softmax(z)_k. The logits are used as they are, so all
clients learn under one class mix, and differences in class mix between clients carry information too. The optimum is
E[Pi_set | x], the expected prior of the set that a row x is from. This is a mean of priors over the sets: it is biased
towards the overall class mix, the more so the more alike the sets are, and its probabilities are not calibrated. Where
clients differ much in class mix, the optimum tells the clients apart rather than the classes, and local training drifts
towards the class mix of each client. With one-hot priors it is supervised learning by plain cross-entropy, under the
class mix of all rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fedul.core import TaskSpec, UnlabeledSets, compute_dtype
from fedul.methods.base import Method
from fedul.methods.operations import soft_cross_entropies
from fedul.methods.task import Predict, Step, Targets, Task


@dataclass(frozen=True)
class SoftLabels(Method):
    """Minimise the cross-entropy between the class priors of a set and the prediction for each of its rows.

    With one-hot priors it is supervised learning without a correction for the class mix.
    """

    vectorized: ClassVar[bool] = True

    def row_private(self) -> tuple[Method, Sequence[str]]:
        return self, ()

    def task(self, client: UnlabeledSets, spec: TaskSpec) -> Task:
        device = client.inputs.device
        priors = torch.from_numpy(client.priors).to(device, compute_dtype(client.inputs))
        targets = Targets({"set": client.train.sets.to(device)}, {"priors": priors})
        return Task(client.inputs, client.train.index.to(device), targets, spec.scaling)

    def loss(self, predict: Predict, step: Step) -> Tensor:
        return step.mean(soft_cross_entropies(predict(step.inputs), step.targets["priors"]))
