"""FedUL, refined: when the held-out loss levels off, clients train on soft labels that match the class priors.

A method of this project, derived in `docs/refinement.md`. At the start of a round a client computes the posterior of
each row *given its set* with the global model, proportional to f_k Pi_mk / pi_k, where f is the predicted posterior
under the test prior pi, and Pi_m are the class priors of set m. It scales the classes of every set until the mean
posterior of the set equals its class priors (Sinkhorn). The priors then constrain the set as a whole, not single rows.
The client trains on these soft labels r under its class mix s, with logits z and the probability Q of the row's set:

    loss = phi * CE(r, softmax(z + log(s/pi))) + (1 - phi) * (-log Q).

Without the scaling, the first term is the M-step of EM on the likelihood of FedUL and has the same gradient. The trust
in the priors, phi, decreases with the difference between the priors and what the FedUL model predicts for the sets,
beyond sampling error. Without refinement rounds, or with trust = 0, it is FedUL.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor

from fedul._utils.settings import option
from fedul.config import SCORES
from fedul.core import RoundMetrics, TaskSpec, UnlabeledSets, compute_dtype
from fedul.errors import InputError
from fedul.methods.base import ClientState, Method
from fedul.methods.fedul import FedUL, log_loss
from fedul.methods.operations import set_means, set_sizes, set_sums
from fedul.methods.task import Predict, Step, Targets, Task, take_rows

SINKHORN_STEPS = 20
TRUST_DECAY = 4
"""Rate at which trust decreases with `prior_error`: an error of 1 (population priors) divides it by 5."""
ROUNDS_WITHOUT_HELD_OUT = 10
"""Rounds of FedUL before refinement, if no rows are held out."""


@dataclass(frozen=True)
class FedULRefined(Method):
    """Minimise the loss of FedUL until it levels off, then the cross-entropy on soft labels that match the priors.

    With trust = 0 it is FedUL.

    Parameters
    ----------
    level : float, default=0.02
        FedUL has levelled off when 3 rounds lower the held-out loss by less than this share of the whole decrease.
    earliest, latest : int, default=6 and 20
        Minimum and maximum number of FedUL rounds before refinement.
    trust : float, default=0.75
        Largest weight of the soft labels (phi).
    score : {"log", "brier", "authors"}, default="log"
        Score of the predicted set in the rounds of FedUL.
    """

    level: float = option(
        0.02,
        "FedUL has levelled off when 3 rounds lower the held-out loss by less than this share of the whole decrease.",
        low=0,
    )
    earliest: int = option(6, "Minimum number of FedUL rounds before refinement.", low=1)
    latest: int = option(20, "Maximum number of FedUL rounds before refinement.", low=1)
    trust: float = option(0.75, "Largest weight of the soft labels; with 0 this is fedul.", low=0, high=1)
    score: str = option("log", "Score of the predicted set; --loss sets it too.", choices=SCORES)

    vectorized: ClassVar[bool] = True
    uses_transition: ClassVar[bool] = True
    needs_evaluation: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.latest < self.earliest:
            raise InputError(f"latest: {self.latest} rounds of FedUL at most, but {self.earliest} at least (earliest).")

    def task(self, client: UnlabeledSets, spec: TaskSpec) -> Task:
        task = FedUL().task(client, spec)
        priors = torch.from_numpy(client.priors).to(client.inputs.device, compute_dtype(client.inputs))
        sets = {**task.targets.sets, "priors": priors}
        return replace(task, targets=replace(task.targets, sets=sets))

    def loss(self, predict: Predict, step: Step) -> Tensor:
        logits = predict(step.inputs)
        if "soft" not in step.targets:
            return FedUL(self.score).score_logits(logits, step)
        soft, trust = step.targets["soft"], step.shared["trust"]
        log_posterior = (logits + step.shared["marginal"]).log_softmax(-1)
        # A class that is not at the client has log-posterior -inf and soft label 0.
        log_likelihood = torch.where(soft > 0, soft * log_posterior, torch.zeros_like(soft)).sum(-1)
        return step.mean((1 - trust) * log_loss(logits, step) - trust * log_likelihood)

    def startup_warnings(self, rounds: int) -> list[str]:
        if rounds > min(max(self.earliest, 4), self.latest):
            return []
        return [f"fedul-refined: in {rounds} rounds refinement does not start, so this is fedul; add rounds."]

    def final_warnings(self, history: Sequence[RoundMetrics]) -> list[str]:
        rounds = len(history)
        if not self.trust or self.startup_warnings(rounds) or self.directive(history[:-1]):
            return []
        return [f"fedul-refined: in a run of {rounds} rounds refinement did not start, so this was fedul; add rounds."]

    def directive(self, history: Sequence[RoundMetrics]) -> Mapping[str, float]:
        return {"refine": 1.0} if self.trust and len(history) >= self._refinement_start(history) else {}

    def needs_logits(self, directive: Mapping[str, float]) -> bool:
        return bool(directive.get("refine"))

    def begin_round(
        self, targets: Targets, logits: Tensor, directive: Mapping[str, float], client_state: ClientState
    ) -> tuple[Targets, ClientState]:
        if "prior_error" not in client_state:
            # Measured once, with the FedUL model: later models have been fitted to the priors.
            error = prior_error((logits + targets.client["marginal"]).softmax(-1), targets)
            client_state = {**client_state, "prior_error": error}
        soft = match_priors(logits + take_rows(targets.sets["joint"], targets.rows["set"]), targets)
        trust = self.trust / (1 + TRUST_DECAY * client_state["prior_error"])  # one value per client
        rows, client = {**targets.rows, "soft": soft}, {**targets.client, "trust": trust.unsqueeze(-1)}
        return replace(targets, rows=rows, client=client), client_state

    def _refinement_start(self, history: Sequence[RoundMetrics]) -> int:
        """Return the number of rounds after which refinement starts, given the rounds so far."""
        known = [m.held_out_loss if m.comparable_loss is None else m.comparable_loss for m in history]
        losses = [loss for loss in known if loss is not None]
        if len(losses) < len(known):
            return ROUNDS_WITHOUT_HELD_OUT
        first = max(self.earliest, 4)  # 3 rounds earlier there is a loss
        for rounds in range(first, min(len(losses), self.latest) + 1):
            before, now = min(losses[: rounds - 3]), min(losses[:rounds])
            if before - now <= self.level * (losses[0] - now):
                return rounds
        return self.latest


def match_priors(logits: Tensor, targets: Targets) -> Tensor:
    """Return posteriors whose mean over each set equals the class priors of the set.

    Parameters
    ----------
    logits : Tensor
        (..., n, K) logits of the posterior of each row given its set.
    targets : Targets
        Targets with ``priors`` (..., M, K) of the sets.

    Returns
    -------
    Tensor
        (..., n, K) posteriors; a class with prior zero has posterior zero.
    """
    priors, sets = targets.sets["priors"], targets.rows["set"]
    tiny = torch.finfo(priors.dtype).tiny
    log_priors, sizes = priors.clamp_min(tiny).log(), set_sizes(targets, priors.shape[-2], priors.dtype).clamp_min(1)
    scale = torch.zeros_like(priors)  # logarithm of the factor of each class in each set
    for _ in range(SINKHORN_STEPS):
        means = set_sums((logits + take_rows(scale, sets)).softmax(-1), targets, priors.shape[-2]) / sizes
        scale = torch.where(priors > 0, scale + log_priors - means.clamp_min(tiny).log(), scale)
    return (logits + take_rows(scale, sets)).softmax(-1)


def prior_error(posterior: Tensor, targets: Targets) -> Tensor:
    """Return the error of class priors in units of the sampling error of the class shares of a set.

    Rows of class j have the mean posterior C_j, so the mean posterior of a set with exact priors Pi_m is Pi_m C. The
    deviation of a set from that, beyond sampling error, is attributed to its priors. The result is about 0 for priors
    counted on these rows, and about 1 for priors of the population that the rows were drawn from.

    Parameters
    ----------
    posterior : Tensor
        (..., n, K) posteriors under the class mix of the client, which do not use the set of a row.
    targets : Targets
        Targets with ``priors`` (..., M, K) of the sets.

    Returns
    -------
    Tensor
        (...), one value per client.
    """
    priors = targets.sets["priors"]
    count = priors.shape[-2]
    sizes = set_sizes(targets, count, posterior.dtype)  # (..., M, 1)
    masked = posterior if targets.mask is None else posterior * targets.mask.unsqueeze(-1)
    confusion = masked.mT @ posterior / masked.sum(-2).clamp_min(1e-9).unsqueeze(-1)  # C (..., K, K), without labels
    expected, second = priors @ confusion, priors @ confusion.square()  # (..., M, K)
    noise = (set_means(posterior.square(), targets, count) - second).clamp_min(0) / sizes.clamp_min(1)
    present = (priors > 0) & (sizes > 0)
    observed = sizes * ((set_means(posterior, targets, count) - expected).square() - noise) / expected.clamp_min(1e-9)
    sampling = (second - expected.square()) / expected.clamp_min(
        1e-9
    )  # expected value of `observed` for shares drawn at random
    observed_total, sampling_total = (
        torch.where(present, table, torch.zeros_like(priors)).sum((-2, -1)) for table in (observed, sampling)
    )
    # If the model cannot tell the classes apart, the divisor is near 0 and must be bounded.
    minimum = 0.05 * (present.sum((-2, -1)) - (sizes > 0).sum((-2, -1))).clamp_min(1)
    return (observed_total / sampling_total.maximum(minimum)).clamp_min(0)
