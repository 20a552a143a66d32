"""RCM: the classification risk under the test prior, rewritten for rows of sets by importance weights.

The risk-consistent method of Wei et al., Consistent Multi-Class Classification from Multiple Unlabeled Datasets, ICLR
2024. Since p(x, k) = sum_m p(x, m) p(k | x, m), the risk of a classifier is a mean over rows of sets in which class k
of a row in set m has weight p(k | x, m), which is proportional to Pi_mk f_k / pi_k. The current model f provides the
weights, without a gradient, so that they become purer as it learns. Here the risk is the one under the test prior pi:
with the class mix s of the client, the weight of class k is w_k = (pi_k / s_k) p(k | x, m), and

    loss = -sum_k w_k log softmax(z)_k.

All clients therefore learn under one class mix. The softmax is over the classes that the client has: a class that is
absent there has weight 0, and would be learned as if it did not exist (on digits with non-IID clients, most test rows
of such classes were then misclassified).

This file follows the abstract and the public reviews of the paper; its full text was not available. The factor
pi_k / s_k and the restricted softmax are ours, for clients that differ in class mix. How often the paper updates the
weights is not known to us; here they are updated in every step, and `soft-em` is the variant with weights of the start
of the round. The classifier-consistent method of the same paper (CCM) predicts the set through a transition: that is
the likelihood of `fedul`. Where s = pi, the gradient of `rcm` is also that of `fedul`. With one-hot priors it is
supervised learning with rows weighted by pi_k / s_k.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fedul.core import TaskSpec, UnlabeledSets
from fedul.methods.base import Method
from fedul.methods.fedul import set_task
from fedul.methods.operations import soft_cross_entropies
from fedul.methods.task import Predict, Step, Task


@dataclass(frozen=True)
class RCM(Method):
    """Minimise the cross-entropy over all classes, weighted by the current posterior of the row given its set.

    With one-hot priors it is supervised learning with rows weighted to the test prior.
    """

    vectorized: ClassVar[bool] = True
    uses_transition: ClassVar[bool] = True

    def row_private(self) -> tuple[Method, Sequence[str]]:
        return self, ()

    def task(self, client: UnlabeledSets, spec: TaskSpec) -> Task:
        return set_task(client, client.train, spec)

    def loss(self, predict: Predict, step: Step) -> Tensor:
        logits = predict(step.inputs)
        weights = importance_weights(logits.detach(), step)
        present = logits.masked_fill(step.shared["marginal"].isneginf(), -math.inf)
        return step.mean(soft_cross_entropies(present, weights))


def importance_weights(logits: Tensor, step: Step) -> Tensor:
    """Return the weight of each class for each row (..., n, K), from logits without a gradient.

    Parameters
    ----------
    logits : Tensor
        (..., n, K) logits under the test prior.
    step : Step
        The rows, with ``joint`` of their sets and ``marginal`` of their client as in `fedul`.
    """
    posterior = (logits + step.targets["joint"]).softmax(-1)
    # A class that is not at the client has posterior 0 and factor inf.
    return torch.where(posterior > 0, posterior * (-step.shared["marginal"]).exp(), torch.zeros_like(posterior))
