"""LLPFC: sets in groups of K are noisy labels, and the loss is corrected for the noise.

Zhang, Wang and Scott, Learning from Label Proportions by Learning with Label Noise, NeurIPS 2022. The sets of a client
are dealt at random to groups of K sets, K being the number of classes. Within a group the number of a row's set is a
noisy label of its class. With weights a_j of the sets (the prior of the noisy label), the probability of label j is
(T p)_j, where

    T_jk = Pi_jk a_j / b_k,  b = Pi^T a,

and p is the class posterior. The forward-corrected loss is -log (T p)_j, and the rows of set j have total weight a_j.
All groups have the same weight. p must have the same class mix in all groups. The paper therefore chooses a such that b
is close to the class mix s of all sets (`noisy_prior=approx`: least squares over the simplex), or a_j = 1/K
(`noisy_prior=uniform`, where b only roughly equals s). Predictions are under s: p = softmax(z + log(s/pi)).

Sets that do not fill a group are left out of that grouping. A client with fewer than K sets has one group with all of
them. A class without rows in a group says nothing about the noisy label there (T_jk = a_j). The paper groups again
every 20 epochs; here each local epoch uses one of `groupings` groupings, chosen at random. With at most K sets of
linearly independent priors there is one group, `approx` gives b = s, and the loss is that of `fedul`. With one-hot
priors and one set per class it is supervised learning.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from scipy.optimize import nnls
from torch import Tensor

from fedul._utils.randomness import numpy_generator
from fedul._utils.settings import option
from fedul.core import Matrix, TaskSpec, UnlabeledSets, compute_dtype
from fedul.methods.base import Method
from fedul.methods.operations import log_softmax, prior_shift
from fedul.methods.task import Predict, Step, Targets, Task

SUM_WEIGHT = 1e3
"""Weight of the equation sum(a) = 1 in the least squares for a."""


@dataclass(frozen=True)
class LLPFC(Method):
    """Minimise the forward-corrected cross-entropy of the set of a row within its group of sets.

    With one-hot priors and one set per class it is supervised learning.

    Parameters
    ----------
    noisy_prior : {"approx", "uniform"}, default="approx"
        Weights of the sets of a group: such that its class mix is close to the client's, or equal.
    groupings : int, default=10
        Number of random groupings, of which each local epoch uses one.
    seed : int, default=0
        Seed of the groupings; set by the run.
    """

    noisy_prior: str = option(
        "approx",
        "Weights of the sets of a group: such that its class mix is close to the client's, or equal.",
        choices=("approx", "uniform"),
    )
    groupings: int = option(10, "Number of random groupings, of which each local epoch uses one.", low=1, high=1000)
    seed: int = 0

    vectorized: ClassVar[bool] = True
    uses_transition: ClassVar[bool] = True

    def row_private(self) -> tuple[Method, Sequence[str]]:
        return self, ()

    def task(self, client: UnlabeledSets, spec: TaskSpec) -> Task:
        device, precision = client.inputs.device, compute_dtype(client.inputs)
        generator = numpy_generator(self.seed, "groups", client.name)
        tables = [self._grouping(client, generator) for _ in range(self.groupings)]
        transition, weight = (torch.from_numpy(np.stack(table, axis=1)) for table in zip(*tables, strict=True))
        offset = prior_shift(client.class_mix, spec.test_prior).to(device, precision)

        def draw(rows: int, generator: torch.Generator) -> Mapping[str, Tensor]:
            return {"grouping": torch.randint(self.groupings, (), generator=generator).expand(rows)}

        targets = Targets(
            {"set": client.train.sets.to(device)},
            {"transition": transition.to(device, precision), "set_weight": weight.to(device, precision)},
            client={"offset": offset},
        )
        return Task(client.inputs, client.train.index.to(device), targets, spec.scaling, draw)

    def loss(self, predict: Predict, step: Step) -> Tensor:
        log_posterior = log_softmax(predict(step.inputs) + step.shared["offset"])
        grouping = step.targets["grouping"].unsqueeze(-1)  # (..., n, 1)
        transitions = step.targets["transition"]  # (..., n, groupings, K)
        at = grouping.unsqueeze(-1).expand(*grouping.shape, transitions.shape[-1])
        log_transition = transitions.gather(-2, at).squeeze(-2)
        weight = step.targets["set_weight"].gather(-1, grouping).squeeze(-1)
        return step.mean(-weight * (log_posterior + log_transition).logsumexp(-1))

    def _grouping(self, client: UnlabeledSets, generator: np.random.Generator) -> tuple[Matrix, Matrix]:
        """Return log T of each set in its group (M, K), and the weight of its rows (M,), on average 1 over rows."""
        priors, mix = client.priors, client.class_mix
        sets, size = len(priors), min(priors.shape)
        log_transition, weight = np.zeros_like(priors), np.zeros(sets)
        groups = generator.permutation(sets)[: sets - sets % size].reshape(-1, size)
        for group in groups:
            prior = np.full(size, 1 / size) if self.noisy_prior == "uniform" else closest_mix(priors[group], mix)
            used, prior = group[prior > 0], prior[prior > 0]
            with np.errstate(divide="ignore"):
                log_transition[used] = np.log(transition_matrix(priors[used], prior))
            weight[used] = prior / client.set_priors[used] / len(groups)
        return log_transition, weight


def transition_matrix(priors: Matrix, noisy_prior: Matrix) -> Matrix:
    """Return T (J, K): the probability of noisy label j for class k; columns sum to one.

    Parameters
    ----------
    priors : ndarray of shape (J, K)
        Class priors of the sets of a group.
    noisy_prior : ndarray of shape (J,)
        Weights of the sets, positive and summing to one.

    Examples
    --------
    >>> transition_matrix(np.array([[0.8, 0.2], [0.2, 0.8]]), np.array([0.5, 0.5]))
    array([[0.8, 0.2],
           [0.2, 0.8]])
    """
    joint = priors * noisy_prior[:, None]
    mix = joint.sum(axis=0)
    matrix: Matrix = np.where(mix > 0, joint / np.where(mix > 0, mix, 1), noisy_prior[:, None])
    return matrix


def closest_mix(priors: Matrix, mix: Matrix) -> Matrix:
    """Return weights (J,) on the simplex for which the class mix of sets is closest to another, by least squares.

    Parameters
    ----------
    priors : ndarray of shape (J, K)
        Class priors of the sets.
    mix : ndarray of shape (K,)
        The class mix to approximate.

    Examples
    --------
    >>> closest_mix(np.array([[0.9, 0.1], [0.1, 0.9]]), np.array([0.3, 0.7])).round(6)
    array([0.25, 0.75])
    """
    equations = np.vstack([priors.T, np.full((1, len(priors)), SUM_WEIGHT)])
    weights, _ = nnls(equations, np.append(mix, SUM_WEIGHT))
    closest: Matrix = weights / weights.sum()
    return closest
