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
from typing import Any

import torch
from torch import Tensor

from fedul.config import check, option
from fedul.errors import InputError
from fedul.federation import Federation, UnlabeledSets, float_type
from fedul.methods.base import Kept, Method, Predict, Step, Task, predicted, set_means
from fedul.methods.fedul import FedUL, log_loss

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

    def __post_init__(self) -> None:
        check(self)
        if self.latest < self.earliest:
            raise InputError(f"latest: {self.latest} rounds of FedUL at most, but {self.earliest} at least (earliest).")

    def task(self, client: UnlabeledSets, federation: Federation) -> Task:
        task = FedUL().task(client, federation)
        priors = torch.from_numpy(client.priors).to(client.inputs.device, float_type(client.inputs))
        return replace(task, shared={**task.shared, "priors": priors})

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

    def coordinate(self, history: Sequence[Mapping[str, Any]]) -> Mapping[str, float]:
        return {"refine": 1.0} if self.trust and len(history) >= self._start(history) else {}

    def looks(self, directive: Mapping[str, float]) -> bool:
        return bool(directive.get("refine"))

    def begin_round(
        self, task: Task, predict: Predict, directive: Mapping[str, float], kept: Kept
    ) -> tuple[Task, Kept]:
        logits = predicted(predict, task)
        everything = task.targets(torch.arange(len(task), device=logits.device))
        sets, priors = everything["set"], task.shared["priors"]
        if "prior_error" not in kept:
            # Measured once, with the model that FedUL made: later models have learned to agree with the priors.
            error = prior_error((logits + task.shared["marginal"]).softmax(-1), sets, priors)
            kept = {**kept, "prior_error": error}
        soft = agreeing(logits + everything["joint"], sets, priors)

        def targets(at: Tensor) -> Mapping[str, Tensor]:
            return {**task.targets(at), "soft": soft[at]}

        trust = self.trust / (1 + DOUBT * kept["prior_error"])
        return replace(task, targets=targets, shared={**task.shared, "trust": trust}), kept

    def _start(self, history: Sequence[Mapping[str, Any]]) -> int:
        """After how many rounds refinement starts, as far as these rounds tell."""
        losses = [line["held_out_loss"] for line in history]
        if any(loss is None for loss in losses):
            return WITHOUT_HELD_OUT
        for rounds in range(max(self.earliest, 4), min(len(losses), self.latest) + 1):  # 3 rounds back there is a loss
            before, now = min(losses[: rounds - 3]), min(losses[:rounds])
            if before - now <= self.level * (losses[0] - now):
                return rounds
        return self.latest


def agreeing(logits: Tensor, sets: Tensor, priors: Tensor) -> Tensor:
    """Posteriors (n, K), with the classes of each set scaled until its mean posterior is its priors (M, K).

    A class with prior zero stays at zero.
    """
    scale = torch.zeros_like(priors)  # log of the scaling of each set's classes
    for _ in range(SINKHORN_STEPS):
        now = set_means((logits + scale[sets]).softmax(-1), sets, len(priors))
        least = torch.finfo(now.dtype).tiny
        step = priors.clamp_min(least).log() - now.clamp_min(least).log()
        scale = torch.where(priors > 0, scale + step, scale)
    return (logits + scale[sets]).softmax(-1)


def prior_error(posterior: Tensor, sets: Tensor, priors: Tensor) -> Tensor:
    """How wrong class priors are, as a multiple of the sampling error of a set's shares; a scalar, 0 or more.

    Posteriors (n, K) under the client's mix do not know which set a row is in. Rows of class j have the posterior C_j
    on average, so that a set with exact priors Pi_m shows Pi_m C. What its rows show beyond that and beyond chance is
    laid at the priors' door. About 0 for priors counted on these very rows, about 1 for those of a population that they
    were drawn from.
    """
    count = len(priors)
    sizes = torch.bincount(sets, minlength=count)[:, None].to(posterior.dtype)  # (M, 1)
    confusion = posterior.T @ posterior / posterior.sum(0).clamp_min(1e-9)[:, None]  # C (K, K), without a label
    expected, second = priors @ confusion, priors @ confusion.square()  # (M, K)
    by_chance = (set_means(posterior.square(), sets, count) - second).clamp_min(0) / sizes.clamp_min(1)
    known = (priors > 0) & (sizes > 0)
    shown = sizes * ((set_means(posterior, sets, count) - expected).square() - by_chance) / expected.clamp_min(1e-9)
    sampled = (second - expected.square()) / expected.clamp_min(1e-9)  # what shares drawn by chance would show
    total = torch.where(known, sampled, torch.zeros_like(priors)).sum()
    # A model that tells no class from another shows nothing of the priors: no division by nothing.
    least = 0.05 * (known.sum() - (sizes > 0).sum()).clamp_min(1)
    return (torch.where(known, shown, torch.zeros_like(priors)).sum() / total.maximum(least)).clamp_min(0)
