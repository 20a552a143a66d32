"""EasyLLP: an unbiased estimate of the loss of each row from the class proportions of its set.

Busa-Fekete, Choi, Dick, Gentile and Munoz Medina, Easy Learning from Label Proportions, NeurIPS 2023. The paper
assumes *bags*: n rows drawn at random from one population with class mix s, of which a share alpha_k turned out to be
of class k. Then E[n alpha_k | x] = p(k | x) + (n - 1) s_k for each row x of the bag, so w_k = n (alpha_k - s_k) + s_k
has the expectation p(k | x), and sum_k w_k loss(x, k) is an unbiased estimate of the loss of the row. With two classes
these are the weights of the paper; the argument holds for each of K classes.

The weights are negative for half of the classes, and a weighted log-loss is not bounded from below. The paper allows
any loss: here it is the Brier score, for which the weighted sum is |p - w|^2 - |w|^2, since the weights sum to one. It
is bounded in p and convex, so nothing is clipped and the estimate stays unbiased. Predictions are under the class mix s
of the client, whose posterior is softmax(z + log(s/pi)).

The sets of a federation are usually not random bags: their class mixes differ more than by chance. There E[w | x] is
n (E[Pi_set | x] - s) + s, which is not the posterior. The class whose expected prior most exceeds its share in the mix
is predicted with a probability of almost one, so that probabilities are over-confident. The variance grows with n. With
one row per set and one-hot priors it is supervised learning by the Brier score.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from fedul.core import Matrix, TaskSpec, UnlabeledSets, compute_dtype
from fedul.methods.base import Method
from fedul.methods.operations import prior_shift, softmax
from fedul.methods.task import Predict, Step, Targets, Task


@dataclass(frozen=True)
class EasyLLP(Method):
    """Minimise the Brier score between the prediction for a row and its debiased label.

    With one row per set and one-hot priors it is supervised learning by the Brier score.
    """

    vectorized: ClassVar[bool] = True

    def row_private(self) -> tuple[Method, Sequence[str]]:
        return self, ()

    def task(self, client: UnlabeledSets, spec: TaskSpec) -> Task:
        device, precision = client.inputs.device, compute_dtype(client.inputs)
        sets = client.train.sets.to(device)
        sizes = np.bincount(client.train.sets.numpy(), minlength=len(client.priors))
        labels = torch.from_numpy(debiased_labels(client.priors, sizes, client.class_mix)).to(device, precision)
        offset = prior_shift(client.class_mix, spec.test_prior).to(device, precision)
        targets = Targets({"set": sets}, {"debiased": labels}, client={"offset": offset})
        return Task(client.inputs, client.train.index.to(device), targets, spec.scaling)

    def loss(self, predict: Predict, step: Step) -> Tensor:
        posterior = softmax(predict(step.inputs) + step.shared["offset"])
        # |p - w|^2 - |w|^2, without the difference of large numbers
        return step.mean((posterior * (posterior - 2 * step.targets["debiased"])).sum(-1))


def debiased_labels(proportions: Matrix, sizes: ArrayLike, mix: Matrix) -> Matrix:
    """Return the weights of the classes for the rows of each set, (M, K); they sum to one and may be negative.

    Parameters
    ----------
    proportions : ndarray of shape (M, K)
        Class proportions of the sets.
    sizes : array-like of shape (M,)
        Number of rows of the sets.
    mix : ndarray of shape (K,)
        Class mix of the population.

    Examples
    --------
    >>> debiased_labels(np.array([[0.75, 0.25]]), np.array([4]), np.array([0.5, 0.5]))
    array([[ 1.5, -0.5]])
    """
    weights: Matrix = np.asarray(sizes)[:, None] * (proportions - mix) + mix
    return weights
