"""FedUL: a client predicts which of its sets a row is in, by a fixed transition layer behind the shared classifier.

Lu et al., Federated Learning from Only Unlabeled Data with Class-Conditional-Sharing Clients, ICLR 2022. With identity
priors it is supervised learning on z + log(pibar / pi).
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fedul.federation import Agreed, Rows, Scaling, UnlabeledSets, float_type
from fedul.inputs import AT_ONCE, gathered
from fedul.methods.base import Method, Predict, Step, Targets, Task
from fedul.settings import check, option
from fedul.transition import Transition, set_loss


@dataclass(frozen=True)
class FedUL(Method):
    """Minimise a score of the predicted set; -log Q unless another is asked for."""

    score: str = option("log", "Score of the predicted set, as --loss.", choices=("log", "brier", "authors"))

    at_once: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check(self)

    def task(self, client: UnlabeledSets, agreed: Agreed) -> Task:
        return set_task(client, client.train, agreed)

    def loss(self, predict: Predict, step: Step) -> Tensor:
        return self.scored(predict(step.inputs), step)

    def scored(self, logits: Tensor, step: Step) -> Tensor:
        """The loss from logits (n, K)."""
        return step.mean(LOSSES[self.score](logits, step))


def set_task(client: UnlabeledSets, rows: Rows, agreed: Agreed) -> Task:
    """Some rows of a client with their set as the target; the held-out ones measure any method without a label."""
    device = client.inputs.device
    transition = Transition(client.priors, client.set_priors, agreed.test_prior)
    transition.to(device, float_type(client.inputs))
    targets = Targets(
        {"set": rows.sets.to(device)},
        {"joint": transition.joint},
        {"marginal": transition.marginal},
        empty={"joint": -math.inf},
    )
    return Task(client.inputs, rows.index.to(device), targets, agreed.scaling)


def log_loss(logits: Tensor, step: Step) -> Tensor:
    """-log Q of each row's set (..., n): proper, so at its optimum the class posterior is the true one."""
    return set_loss(logits, step.targets["joint"], step.shared["marginal"])


def brier_loss(logits: Tensor, step: Step) -> Tensor:
    """sum_j Q_j^2 - 2 Q_m (..., n): proper as well, and bounded, so that no row can pull hard."""
    predicted, own = _sets(logits, step)
    return predicted.square().sum(-1) - 2 * own


def authors_loss(logits: Tensor, step: Step) -> Tensor:
    """Cross-entropy with the *probabilities* Q as logits (..., n), as in the code published with the paper.

    Since log sum_j exp Q_j is about |Q|^2 / 2M and a constant, it is a Brier score whose first term is M times too
    small: bounded, but not proper. What it recovers is over-confident, and may be wrong even with infinitely many rows.
    """
    predicted, own = _sets(logits, step)
    # A set that is there for padding only has no class at all.
    absent = step.shared["joint"].isneginf().all(-1).unsqueeze(-2)
    return predicted.masked_fill(absent, -math.inf).logsumexp(-1) - own


def _sets(logits: Tensor, step: Step) -> tuple[Tensor, Tensor]:
    """Q of all sets (..., n, M), and of each row's own (..., n)."""
    joint, marginal = step.shared["joint"], step.shared["marginal"]
    # Q_m = sum_k p_k P(m | k), with p the class posterior under the client's mix: one product, whatever M is.
    given_class = (joint - marginal).exp().nan_to_num(0.0)  # (..., M, K); -inf less -inf: a class the client has not
    predicted = (logits + marginal).softmax(-1) @ given_class.mT
    return predicted, predicted.gather(-1, step.targets["set"].unsqueeze(-1)).squeeze(-1)


LOSSES = {"log": log_loss, "brier": brier_loss, "authors": authors_loss}


TEMPERATURES = tuple(2 ** (j / 4) for j in range(-4, 17))
"""Temperatures 0.5..16 at which held-out rows are judged. One grid for all, so that clients' sums can be added."""


@dataclass(frozen=True)
class HeldOut:
    """Sums over held-out rows, at each of the temperatures; clients' sums can be added."""

    losses: tuple[float, ...] = (0.0,) * len(TEMPERATURES)  # -log Q
    squares: tuple[float, ...] = (0.0,) * len(TEMPERATURES)  # (-log Q)^2
    changes: tuple[float, ...] = (0.0,) * len(TEMPERATURES)  # (-log Q less -log Q at temperature 1)^2
    rows: int = 0

    def __add__(self, other: HeldOut) -> HeldOut:
        pairs = ((self.losses, other.losses), (self.squares, other.squares), (self.changes, other.changes))
        losses, squares, changes = (tuple(a + b for a, b in zip(*pair, strict=True)) for pair in pairs)
        return HeldOut(losses, squares, changes, self.rows + other.rows)

    def tensor(self) -> Tensor:
        """The sums (3, T) without the rows, as they are kept: to the bit, infinite or not."""
        return torch.tensor([self.losses, self.squares, self.changes], dtype=torch.float64)

    @classmethod
    def from_tensor(cls, sums: Tensor, rows: int) -> HeldOut:
        """What `tensor` gave."""
        losses, squares, changes = (tuple(each) for each in sums.tolist())
        return cls(losses, squares, changes, rows)

    @property
    def loss(self) -> float | None:
        """The mean loss at the best temperature."""
        return min(self.losses) / self.rows if self.rows else None

    @property
    def standard_error(self) -> float:
        """Of that mean, over rows drawn by chance."""
        best = self.losses.index(min(self.losses))
        return _standard_error(self.losses[best], self.squares[best], self.rows)

    @property
    def temperature(self) -> float:
        """Of all temperatures that the rows cannot tell from the best, the one nearest to 1.

        The loss is nearly flat there, and what is best on a few rows in sets may be far from it elsewhere. The margin
        is the standard error of what the best gains over temperature 1.
        """
        if not self.rows:
            return 1.0
        best, unchanged = self.losses.index(min(self.losses)), TEMPERATURES.index(1.0)
        margin = _standard_error(self.losses[best] - self.losses[unchanged], self.changes[best], self.rows) * self.rows
        good = [t for t, loss in zip(TEMPERATURES, self.losses, strict=True) if loss <= self.losses[best] + margin]
        return min(good, key=lambda t: abs(math.log(t)), default=1.0)  # none is good where losses are not numbers


def together(parts: Iterable[HeldOut]) -> HeldOut:
    """The sums over all rows of these."""
    return sum(parts, HeldOut())


def _standard_error(total: float, squares: float, rows: int) -> float:
    """Of a mean over rows, from the sums of the values and of their squares; 0 for a single row."""
    if rows < 2:
        return 0.0
    return math.sqrt(max(squares / rows - (total / rows) ** 2, 0.0) / (rows - 1))


class HeldOutRows:
    """The held-out rows of all clients as one table: with many small clients, each call costs more than its sums."""

    def __init__(self, tasks: Iterable[Task]) -> None:
        self._parts: list[tuple[Tensor, Tensor]] = []  # where each client's rows are; tasks themselves are not kept
        sets, joints, marginals = [], [], []
        self._scaling, first = Scaling(), 0
        for task in tasks:
            joint = task.targets.sets["joint"]
            self._parts.append((task.inputs, task.index))
            self._scaling = task.scaling
            sets.append(task.targets.rows["set"] + first)
            joints.append(joint)
            marginals.append(task.targets.client["marginal"].expand_as(joint))
            first += len(joint)
        self._set, self._joint, self._marginal = _joined(sets), _joined(joints), _joined(marginals)

    def judged(self, predict: Predict, batch_size: int = AT_ONCE) -> HeldOut:
        """-log Q over all rows, with logits divided by each of the temperatures.

        A network becomes too sure of itself long before it stops learning to tell classes apart. Judged at its best
        temperature, a round is chosen for what it knows; and since -log Q is proper, that temperature calibrates it.
        """
        totals = torch.zeros(3, len(TEMPERATURES), dtype=torch.float64)
        first = 0
        for rows in gathered(self._parts, batch_size):
            inputs = self._scaling(rows)
            sets = self._set[first : (first := first + len(inputs))]
            logits = predict(inputs)
            # (T, n, K): all temperatures at once.
            scaled = logits / logits.new_tensor(TEMPERATURES)[:, None, None]
            losses = set_loss(scaled, self._joint[sets], self._marginal[sets]).double()  # (T, n)
            changes = losses - losses[TEMPERATURES.index(1.0)]
            totals += torch.stack([losses.sum(-1), losses.square().sum(-1), changes.square().sum(-1)]).cpu()
        sums, squares, differences = (tuple(total) for total in totals.tolist())
        return HeldOut(sums, squares, differences, first)


def _joined(parts: list[Tensor]) -> Tensor:
    return torch.cat(parts) if parts else torch.empty(0)
