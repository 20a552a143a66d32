"""FedUL combined with proportion matching, consistency and refinement: efficient and robust, the default method.

A method of this project, derived in `docs/explanation/combined.md`. Its loss is a weighted sum of

    q  -log Q: the predicted set of each row (Lu et al., ICLR 2022), efficient if sets differ in their class mix only;
    p  the cross-entropy between the class priors of a set and the mean prediction over all its rows, which uses sets as
       a whole and is robust where sets differ in other ways too (Dulac-Arnold et al., 2019);
    v  the change of predictions under small adversarial perturbations (Miyato et al., 2018);
    s  the cross-entropy of each row with the class priors of its set, the naive baseline.

q and p are computed under one class mix common to the federation, where it is known. They then also use how the sets of
a client differ from those of other clients, which a softmax over the sets of one client cannot. With weights
(set, proportion, consistency, soft) of (1, 0, 0, 0), no refinement and one client it is FedUL.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import torch
from torch import Tensor

from fedul._utils.settings import option
from fedul.core import RoundMetrics, Rows, TaskSpec, UnlabeledSets, compute_dtype, gather_rows
from fedul.errors import InputError
from fedul.methods.base import Alternative, ClientState, Method
from fedul.methods.consistency import consistency_loss, draw_direction
from fedul.methods.fedllp import FedLLP
from fedul.methods.fedul_refined import FedULRefined
from fedul.methods.operations import log_softmax, prior_shift
from fedul.methods.row_private import row_privacy_refused
from fedul.methods.task import Predict, Step, Targets, Task

WEIGHT_VARIANCE = 2.5**2
"""Prior variance of a weight of the network, for standardized inputs: a weakly informative prior for coefficients of a
logistic regression (Gelman et al., Annals of Applied Statistics 2008). Sets are the independent observations."""
TYPICAL_SETS = 40
"""Number of sets where it is not known, as at sites of a deployment."""
RAREST = -20.0
"""Lower bound of the logarithm of a class share, for classes that are not at a client."""
SMALL_IMAGE = 16
"""Pixels per side of images for which a linear network is used with private rows."""
LENGTH_ROWS = 1000
"""Rows that measure the length of the perturbation."""
_PROPORTIONS = FedLLP()


@dataclass(frozen=True)
class FedULCombined(FedULRefined):
    """Minimise a weighted sum of -log Q, proportion matching, consistency and soft labels.

    Parameters
    ----------
    set_weight : float, default=0.3
        Weight of -log Q.
    proportion_weight : float, default=1.0
        Weight of the cross-entropy between the class priors of a set and its mean prediction.
    consistency_weight : float, default=0.0
        Weight of the consistency under adversarial perturbations.
    soft_weight : float, default=0.0
        Weight of the cross-entropy with the class priors as soft labels of each row.
    norm : float, default=0.2
        Length of the perturbations, relative to the standard deviation of a row (root of the total variance).
    common_mix : bool, default=True
        Whether predictions are compared under the class mix of the federation, where it is known.
    level, earliest, latest, trust, score, reestimate
        See `FedULRefined`; by default there is no refinement (trust = 0).
    """

    trust: float = option(0.0, "Weight of soft labels that match the priors (refinement); 0 for none.", low=0, high=1)
    set_weight: float = option(0.3, "Weight of -log Q.", low=0)
    proportion_weight: float = option(1.0, "Weight of the agreement of mean predictions with the priors.", low=0)
    consistency_weight: float = option(0.0, "Weight of the consistency under adversarial perturbations.", low=0)
    soft_weight: float = option(0.0, "Weight of the class priors as soft labels of rows.", low=0)
    norm: float = option(0.2, "Length of perturbations, in standard deviations of a row.", low=0)
    common_mix: bool = option(True, "Whether predictions are compared under the class mix of the federation.")

    def __post_init__(self) -> None:
        super().__post_init__()
        if not (self.set_weight or self.proportion_weight or self.soft_weight):
            raise InputError("fedul-combined: one of set_weight, proportion_weight and soft_weight must be above 0.")

    def row_private(self) -> tuple[Method, Sequence[str]]:
        if not (self.set_weight or self.soft_weight):
            raise row_privacy_refused("fedul-combined", "without set_weight and soft_weight, nothing of it is left")
        weights = {
            "the agreement of mean predictions with the priors (proportion_weight)": self.proportion_weight,
            "refinement (trust)": self.trust,
            "consistency (consistency_weight), for which the deviation of rows is measured": self.consistency_weight,
        }
        names = ", ".join(name for name, weight in weights.items() if weight)
        values = {f.name: getattr(self, f.name) for f in fields(self)}
        zero = {"proportion_weight": 0.0, "consistency_weight": 0.0, "trust": 0.0}
        # A single term has weight 1, so that the usual limits of the gradient of a row fit.
        weight = {} if self.soft_weight else {"set_weight": 1.0}
        private = RowPrivateCombined(**{**values, **zero, **weight})
        notes = [f"fedul-combined: rows are private, so terms of several rows are left out: {names}."] if names else []
        return private, notes

    def startup_warnings(self, rounds: int) -> list[str]:
        return []  # refinement is a bonus here

    def final_warnings(self, history: Sequence[RoundMetrics]) -> list[str]:
        return []

    @property
    def pools_sets(self) -> bool:
        return self.common_mix and bool(self.set_weight or self.proportion_weight)

    def alternatives(self, shape: tuple[int, ...], sets: int | None) -> Sequence[Alternative]:
        # Local steps of Adam need losses that each client alone has at its best with the same classifier: under its own
        # class mix. Refinement makes the most of sets that differ in their class mix only.
        smooth = {
            "set_weight": 1.0,
            "proportion_weight": 0.3,
            "consistency_weight": 0.3,
            "trust": 0.75,
            "common_mix": False,
        }
        likelihood = {"set_weight": 1.0, "proportion_weight": 0.0, "common_mix": False}
        if len(shape) != 1:  # images that look alike have the same class
            return [Alternative("consistent", smooth)]
        penalty = 1 / (2 * WEIGHT_VARIANCE * (sets or TYPICAL_SETS))
        # Clients whose classes differ pull in different directions. Adam at a client makes steps of the same length
        # whatever the gradient is, so the mean of such steps is biased; that of gradient steps is not. With the penalty
        # later rounds do not overfit, so the last one is delivered.
        training = {"algorithm": "fedadam", "optimizer": "sgd", "learning_rate": 0.1, "rounds": 60, "select": "last"}
        return [
            # The simplest model first: another one must be better by more than a standard error.
            Alternative("linear", training={"model": "linear", "l2": penalty, **training}),
            Alternative("network", training={"model": "small-mlp", "l2": penalty, **training}),
            Alternative("consistent", smooth, {"model": "small-mlp", "l2": 0.1 * penalty}),
            # Set means say little where priors hardly vary or sets are tiny; -log Q alone makes the most of each row.
            # Rows are observations here, not only sets, so the penalty is weaker.
            Alternative("likelihood", likelihood, {"model": "linear", "l2": 0.1 * penalty, **training}, fallback=True),
        ]

    def task(self, client: UnlabeledSets, spec: TaskSpec) -> Task:
        task = super().task(client, spec)
        device, precision = client.inputs.device, compute_dtype(client.inputs)
        mix = spec.class_mix if self.common_mix and spec.class_mix is not None else client.class_mix
        offset = prior_shift(mix, spec.test_prior).to(device, precision)
        values = {**task.targets.client, "marginal": offset, "offset": offset}
        if self.consistency_weight:
            length = self.norm * _row_deviation(client.inputs, client.train, spec)
            values["own"] = prior_shift(client.class_mix, spec.test_prior).clamp_min(RAREST).to(device, precision)
            values["length"] = torch.tensor(length, device=device, dtype=precision)
            task = replace(task, draw_step=draw_direction)
        return replace(task, targets=replace(task.targets, client=values))

    def needs_logits(self, directive: Mapping[str, float]) -> bool:
        return bool(self.proportion_weight) or super().needs_logits(directive)

    def begin_round(
        self, targets: Targets, logits: Tensor, directive: Mapping[str, float], client_state: ClientState
    ) -> tuple[Targets, ClientState]:
        if super().needs_logits(directive):
            targets, client_state = super().begin_round(targets, logits, directive, client_state)
            targets = replace(targets, client={**targets.client, "marginal": targets.client["offset"]})
        if self.proportion_weight:
            targets, client_state = _PROPORTIONS.begin_round(targets, logits, directive, client_state)
        return targets, client_state

    def loss(self, predict: Predict, step: Step) -> Tensor:
        logits = predict(step.inputs)
        terms = []
        if self.set_weight:
            terms.append(self.set_weight * self.set_term(logits, step))
        if self.proportion_weight:
            terms.append(self.proportion_weight * _PROPORTIONS.proportion_loss(logits, step))
        if self.soft_weight:
            log_prediction = log_softmax(logits + step.shared["offset"])
            priors = step.targets["priors"]
            products = torch.where(priors > 0, priors * log_prediction, torch.zeros_like(priors))
            terms.append(-self.soft_weight * step.mean(products.sum(-1)))
        if self.consistency_weight:
            # Under the client's class mix, so that classes which are rare at a client are not smoothed away there.
            # A random half of the rows estimates it well, at half the cost.
            half = step.first_half(logits.dim() - 2)
            of_half = logits[..., : half.inputs.shape[logits.dim() - 2], :]
            change = consistency_loss(predict, half, of_half, step.shared["length"], step.shared["own"])
            terms.append(self.consistency_weight * half.mean(change))
        return sum(terms[1:], terms[0])


@dataclass(frozen=True)
class RowPrivateCombined(FedULCombined):
    """FedUL combined with private rows: -log Q and the class priors as soft labels, which are sums over rows.

    With soft_weight = 0 and the class mix of each client it is FedUL.
    """

    def row_private(self) -> tuple[Method, Sequence[str]]:
        return self, ()

    def alternatives(self, shape: tuple[int, ...], sets: int | None) -> Sequence[Alternative]:
        # Noise grows with the number of weights, and Adam makes steps of noise as long as those of a gradient. The
        # gradients are clipped to 1, so the rate is larger than without (docs/explanation/dp-sgd.md).
        training: dict[str, Any] = {"algorithm": "fedavg", "optimizer": "sgd", "learning_rate": 1.0, "rounds": 30}
        large = len(shape) == 3 and max(shape[1:]) > SMALL_IMAGE
        return [Alternative("private", training=training if large else {"model": "linear", **training})]


def _row_deviation(inputs: Tensor, rows: Rows, spec: TaskSpec) -> float:
    """Return the standard deviation of a client's rows: the root of the sum of the variances of their values."""
    some = rows.index[:: max(1, len(rows) // LENGTH_ROWS)].to(inputs.device)
    values = torch.cat([spec.scaling(block).flatten(1) for block in gather_rows([(inputs, some)], LENGTH_ROWS)])
    return float(values.double().var(0, correction=0).sum().sqrt())
