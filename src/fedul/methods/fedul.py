"""FedUL: a client predicts the set of each row, by a fixed transition layer after the shared classifier.

Lu et al., Federated Learning from Only Unlabeled Data with Class-Conditional-Sharing Clients, ICLR 2022. With identity
priors it is supervised learning with the logits z + log(s / pi), where s is the class mix of the client.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from fedul._utils.settings import option
from fedul.config import SCORES
from fedul.core import Rows, TaskSpec, Transition, UnlabeledSets, compute_dtype, set_loss
from fedul.methods.base import Method
from fedul.methods.task import Predict, Step, Targets, Task


@dataclass(frozen=True)
class FedUL(Method):
    """Minimise a loss between the predicted set and the true set of each row.

    With identity priors it is supervised learning, because the set of a row is then its class.

    Parameters
    ----------
    score : {"log", "brier", "authors"}, default="log"
        Score of the predicted set: -log Q, the Brier score, or the loss of the code published with the paper.
    """

    score: str = option("log", "Score of the predicted set; --loss sets it too.", choices=SCORES)

    vectorized: ClassVar[bool] = True
    uses_transition: ClassVar[bool] = True

    def row_private(self) -> tuple[Method, Sequence[str]]:
        return self, ()

    def task(self, client: UnlabeledSets, spec: TaskSpec) -> Task:
        return set_task(client, client.train, spec)

    def loss(self, predict: Predict, step: Step) -> Tensor:
        return self.score_logits(predict(step.inputs), step)

    def score_logits(self, logits: Tensor, step: Step) -> Tensor:
        """Return the loss of a step from its logits (..., n, K)."""
        return step.mean(LOSSES[self.score](logits, step))


def set_task(client: UnlabeledSets, rows: Rows, spec: TaskSpec) -> Task:
    """Return the task of predicting the set of each row.

    With held-out rows, its loss evaluates the model of any method without labels.

    Parameters
    ----------
    client : UnlabeledSets
        The client.
    rows : Rows
        Its training rows or its held-out rows.
    spec : TaskSpec
        What all clients share.
    """
    device = client.inputs.device
    transition = Transition(client.priors, client.set_priors, spec.test_prior)
    transition.to(device, compute_dtype(client.inputs))
    targets = Targets(
        {"set": rows.sets.to(device)},
        {"joint": transition.joint},
        {"marginal": transition.marginal},
        padding={"joint": -math.inf},
    )
    return Task(client.inputs, rows.index.to(device), targets, spec.scaling)


def log_loss(logits: Tensor, step: Step) -> Tensor:
    """Return -log Q of the set of each row (..., n). It is proper: its optimum is the true class posterior."""
    return set_loss(logits, step.targets["joint"], step.shared["marginal"])


def brier_loss(logits: Tensor, step: Step) -> Tensor:
    """Return sum_j Q_j^2 - 2 Q_m (..., n). It is proper and bounded, which limits the influence of a single row."""
    predicted, true_set = set_probabilities(logits, step)
    return predicted.square().sum(-1) - 2 * true_set


def authors_loss(logits: Tensor, step: Step) -> Tensor:
    """Return the cross-entropy with the *probabilities* Q as logits (..., n), as in the code published with the paper.

    Since log sum_j exp Q_j is about |Q|^2 / 2M plus a constant, it is a Brier score whose first term is M times too
    small: bounded, but not proper. The posterior at its optimum is over-confident, and may be wrong even with
    infinitely many rows.
    """
    predicted, true_set = set_probabilities(logits, step)
    padding = step.shared["joint"].isneginf().all(-1).unsqueeze(-2)  # a padded set has no class
    return predicted.masked_fill(padding, -math.inf).logsumexp(-1) - true_set


def set_probabilities(logits: Tensor, step: Step) -> tuple[Tensor, Tensor]:
    """Return Q of all sets (..., n, M), and of the set that each row is in (..., n)."""
    joint, marginal = step.shared["joint"], step.shared["marginal"]
    # Q_m = sum_k p_k P(m | k), where p is the class posterior under the client's class mix.
    # A class that is not at the client gives -inf - -inf = nan.
    given_class = (joint - marginal).exp().nan_to_num(0.0)  # (..., M, K)
    predicted = (logits + marginal).softmax(-1) @ given_class.mT
    return predicted, predicted.gather(-1, step.targets["set"].unsqueeze(-1)).squeeze(-1)


LOSSES = {"log": log_loss, "brier": brier_loss, "authors": authors_loss}
