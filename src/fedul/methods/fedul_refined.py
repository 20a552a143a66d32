"""FedUL, refined: once the set likelihood levels off, clients label their rows softly and train on these labels.

Ours; `docs/refinement.md` derives it. At the start of a round a client takes the fresh global model's posterior of each
row *given its set*, f_k Pi_mk / pi_k, and scales the classes of every set until the set's mean posterior is the set's
class priors (Sinkhorn): the priors then speak for the set as a whole, not row by row. It trains on these soft labels r
under its own class mix s,

    loss = phi * CE(r, softmax(z + log(s/pi))) + (1 - phi) * (-log Q).

Without the scaling the first term is the M-step of EM on FedUL's own likelihood, and has its gradient. How far the
priors are trusted, phi, comes from how far they are from what the FedUL model itself sees in the sets, beyond chance.
With no refinement rounds it is FedUL.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from torch import Tensor

from fedul.errors import InputError
from fedul.federation import Agreed, UnlabeledSets, float_type
from fedul.methods.base import Kept, Method, Predict, Step, Targets, Task, rows_at, set_means, set_sizes, set_sums
from fedul.methods.fedul import FedUL, log_loss
from fedul.settings import check, option

SINKHORN_STEPS = 20
DOUBT = 4
"""How quickly trust falls with the error of the priors; priors of a population, with an error of 1, get a fifth."""
WITHOUT_HELD_OUT = 10
"""Rounds of FedUL where no row is held out to tell when it levels off."""


@dataclass(frozen=True)
class FedULRefined(Method):
    """FedUL until it levels off, then soft labels that agree with each set's class priors."""

    level: float = option(
        0.02,
        "FedUL has levelled off when 3 rounds lower the held-out loss by less than this share of all so far.",
        low=0,
    )
    earliest: int = option(6, "Rounds of FedUL at least.", low=1)
    latest: int = option(20, "Rounds of FedUL at most.", low=1)
    trust: float = option(0.75, "Largest weight of the soft labels; at 0 this is fedul.", low=0, high=1)
    score: str = option("log", "Score of the predicted set, as --loss.", choices=("log", "brier", "authors"))

    at_once: ClassVar[bool] = True
    coordinates: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check(self)
        if self.latest < self.earliest:
            raise InputError(f"latest: {self.latest} rounds of FedUL at most, but {self.earliest} at least (earliest).")

    def task(self, client: UnlabeledSets, agreed: Agreed) -> Task:
        task = FedUL().task(client, agreed)
        priors = torch.from_numpy(client.priors).to(client.inputs.device, float_type(client.inputs))
        sets = {**task.targets.sets, "priors": priors}
        return replace(task, targets=replace(task.targets, sets=sets))

    def loss(self, predict: Predict, step: Step) -> Tensor:
        logits = predict(step.inputs)
        if "soft" not in step.targets:
            return FedUL(self.score).scored(logits, step)
        soft, trust = step.targets["soft"], step.shared["trust"]
        log_posterior = (logits + step.shared["marginal"]).log_softmax(-1)
        # A class that the client does not have is at -inf, with soft labels of 0.
        agreement = torch.where(soft > 0, soft * log_posterior, torch.zeros_like(soft)).sum(-1)
        return step.mean((1 - trust) * log_loss(logits, step) - trust * agreement)

    def remarks(self, rounds: int) -> list[str]:
        if rounds > min(max(self.earliest, 4), self.latest):
            return []
        return [f"fedul-refined: in {rounds} rounds refinement does not start, so that this is fedul."]

    def afterwards(self, history: Sequence[Mapping[str, Any]]) -> list[str]:
        rounds = len(history)
        if not self.trust or self.remarks(rounds) or self.coordinate(history[:-1]):
            return []
        return [
            f"fedul-refined: in a run of {rounds} rounds refinement did not start, so that it is fedul; add rounds."
        ]

    def coordinate(self, history: Sequence[Mapping[str, Any]]) -> Mapping[str, float]:
        return {"refine": 1.0} if self.trust and len(history) >= self._start(history) else {}

    def looks(self, directive: Mapping[str, float]) -> bool:
        return bool(directive.get("refine"))

    def begin_round(
        self, targets: Targets, logits: Tensor, directive: Mapping[str, float], kept: Kept
    ) -> tuple[Targets, Kept]:
        if "prior_error" not in kept:
            # Measured once, with the model that FedUL made: later models have learned to agree with the priors.
            error = prior_error((logits + targets.client["marginal"]).softmax(-1), targets)
            kept = {**kept, "prior_error": error}
        soft = agreeing(logits + targets.everywhere("joint"), targets)
        trust = self.trust / (1 + DOUBT * kept["prior_error"])  # (...)
        rows, client = {**targets.rows, "soft": soft}, {**targets.client, "trust": trust.unsqueeze(-1)}
        return replace(targets, rows=rows, client=client), kept

    def _start(self, history: Sequence[Mapping[str, Any]]) -> int:
        """After how many rounds refinement starts, as far as these rounds tell."""
        losses = [line.get("comparable_loss", line["held_out_loss"]) for line in history]  # whoever judged them
        if any(loss is None for loss in losses):
            return WITHOUT_HELD_OUT
        for rounds in range(max(self.earliest, 4), min(len(losses), self.latest) + 1):  # 3 rounds back there is a loss
            before, now = min(losses[: rounds - 3]), min(losses[:rounds])
            if before - now <= self.level * (losses[0] - now):
                return rounds
        return self.latest


def agreeing(logits: Tensor, targets: Targets) -> Tensor:
    """Posteriors (..., n, K), with the classes of each set scaled until its mean posterior is its priors (..., M, K).

    A class with prior zero stays at zero.
    """
    priors, sets = targets.sets["priors"], targets.rows["set"]
    least = torch.finfo(priors.dtype).tiny
    wanted, sizes = priors.clamp_min(least).log(), set_sizes(targets, priors.shape[-2], priors.dtype).clamp_min(1)
    scale = torch.zeros_like(priors)  # log of the scaling of each set's classes
    for _ in range(SINKHORN_STEPS):
        now = set_sums((logits + rows_at(scale, sets)).softmax(-1), targets, priors.shape[-2]) / sizes
        scale = torch.where(priors > 0, scale + wanted - now.clamp_min(least).log(), scale)
    return (logits + rows_at(scale, sets)).softmax(-1)


def prior_error(posterior: Tensor, targets: Targets) -> Tensor:
    """How wrong class priors are, as a multiple of the sampling error of a set's shares (...); 0 or more.

    Posteriors (..., n, K) under the client's mix do not know which set a row is in. Rows of class j have the posterior
    C_j on average, so that a set with exact priors Pi_m shows Pi_m C. What its rows show beyond that and beyond chance
    is laid at the priors' door. About 0 for priors counted on these very rows, about 1 for those of a population that
    they were drawn from.
    """
    priors = targets.sets["priors"]
    count = priors.shape[-2]
    sizes = set_sizes(targets, count, posterior.dtype)  # (..., M, 1)
    weighed = posterior if targets.here is None else posterior * targets.here.unsqueeze(-1)
    # C (..., K, K), without a label.
    confusion = weighed.mT @ posterior / weighed.sum(-2).clamp_min(1e-9).unsqueeze(-1)
    expected, second = priors @ confusion, priors @ confusion.square()  # (..., M, K)
    by_chance = (set_means(posterior.square(), targets, count) - second).clamp_min(0) / sizes.clamp_min(1)
    known = (priors > 0) & (sizes > 0)
    shown = sizes * ((set_means(posterior, targets, count) - expected).square() - by_chance) / expected.clamp_min(1e-9)
    sampled = (second - expected.square()) / expected.clamp_min(1e-9)  # what shares drawn by chance would show
    total = _total(torch.where(known, sampled, torch.zeros_like(priors)))
    # A model that tells no class from another shows nothing of the priors: no division by nothing.
    least = 0.05 * (_total(known) - _total(sizes > 0)).clamp_min(1)
    return (_total(torch.where(known, shown, torch.zeros_like(priors))) / total.maximum(least)).clamp_min(0)


def _total(table: Tensor) -> Tensor:
    """The sum (...) over sets and classes."""
    return table.sum((-2, -1))
