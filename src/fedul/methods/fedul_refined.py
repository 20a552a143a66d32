"""FedUL, refined: when the held-out loss levels off, clients train on soft labels that match the class priors.

A method of this project, derived in `docs/explanation/refinement.md`. At the start of a round a client computes the
posterior of each row *given its set* with the global model, proportional to f_k Pi_mk / pi_k, where f is the predicted
posterior under the test prior pi, and Pi_m are the class priors of set m. It scales the classes of every set until the
mean posterior of all its rows, held-out ones included, agrees with its class priors (Sinkhorn): exactly, if the priors
are declared to be the class shares of these rows, and up to sampling error, if they are those of a population. The
priors then constrain the set as a whole, not single rows. The client trains on these soft labels r under its class mix
s, with logits z and the probability Q of the row's set:

    loss = phi * CE(r, softmax(z + log(s/pi))) + (1 - phi) * (-log Q),

where phi is the larger, the more closely the labels of the set match its priors. Without the scaling, the first term is
the M-step of EM on the likelihood of FedUL and has the same gradient. In -log Q, priors of a population are replaced by
an estimate of the class shares of the rows. Without refinement rounds, or with trust = 0, it is FedUL.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from fedul._utils.display import counted
from fedul._utils.settings import option
from fedul.config import SCORES
from fedul.core import RoundMetrics, TaskSpec, UnlabeledSets, compute_dtype
from fedul.errors import InputError
from fedul.methods.base import ClientState, Method
from fedul.methods.fedul import FedUL, log_loss, set_task
from fedul.methods.operations import log_softmax, set_means, set_sizes, softmax
from fedul.methods.row_private import row_privacy_refused
from fedul.methods.task import Predict, Step, Targets, Task, take_rows

SINKHORN_STEPS = 20
LARGEST_SCALE = 80.0
"""Bound of the logarithm of a factor, whose exponential float32 can hold."""
EM_STEPS = 20
MODEL_VARIANCE = 0.01
"""Variance of the model's mean prediction for a set around the truth, as a share of p (1 - p): a set has to have 100
rows until the sampling error of its class shares is as small."""
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
        Weight of the soft labels (phi) of a set that matches its priors exactly.
    reestimate : bool, default=True
        Whether priors of a population are replaced in -log Q by estimates of the class shares of the rows.
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
    trust: float = option(0.75, "Weight of soft labels that match priors exactly; with 0 this is fedul.", low=0, high=1)
    reestimate: bool = option(True, "Whether -log Q uses estimated class shares, where priors are a population's.")
    score: str = option("log", "Score of the predicted set; --loss sets it too.", choices=SCORES)

    vectorized: ClassVar[bool] = True
    uses_transition: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.latest < self.earliest:
            raise InputError(f"latest: {self.latest} rounds of FedUL at most, but {self.earliest} at least (earliest).")

    @property
    def needs_evaluation(self) -> bool:
        return bool(self.trust)

    def row_private(self) -> tuple[Method, Sequence[str]]:
        raise row_privacy_refused(
            "fedul-refined", "its soft labels match the sums over whole sets, and without them it is fedul"
        )

    def task(self, client: UnlabeledSets, spec: TaskSpec) -> Task:
        rows, device, precision = client.prior_rows, client.inputs.device, compute_dtype(client.inputs)
        task = set_task(client, rows, spec)
        sizes = np.bincount(rows.sets.numpy(), minlength=len(client.priors)).astype(np.float64)
        variance = client.prior_scope.relative_variance(client.priors, sizes)[:, None]  # (M, 1)
        sets = {**task.targets.sets, "priors": torch.from_numpy(client.priors).to(device, precision)}
        sets["prior_variance"] = torch.from_numpy(variance).to(device, precision)
        return replace(task, targets=replace(task.targets, sets=sets), trained=len(client.train))

    def loss(self, predict: Predict, step: Step) -> Tensor:
        return self.set_term(predict(step.inputs), step)

    def set_term(self, logits: Tensor, step: Step) -> Tensor:
        """Return the loss of a step from its logits (..., n, K)."""
        if "soft" not in step.targets:
            return _fedul(self.score).score_logits(logits, step)
        soft, trust = step.targets["soft"], self.trust * step.targets["match"].squeeze(-1)
        log_posterior = log_softmax(logits + step.shared["marginal"])
        # A class that is not at the client has log-posterior -inf and soft label 0.
        log_likelihood = torch.where(soft > 0, soft * log_posterior, torch.zeros_like(soft)).sum(-1)
        return step.mean((1 - trust) * log_loss(logits, step) - trust * log_likelihood)

    def startup_warnings(self, rounds: int) -> list[str]:
        if not self.trust or rounds > min(max(self.earliest, 4), self.latest):
            return []
        return [
            f"fedul-refined: in {counted(rounds, 'round')} refinement does not start, so this is fedul; add rounds."
        ]

    def final_warnings(self, history: Sequence[RoundMetrics]) -> list[str]:
        rounds = len(history)
        if not self.trust or self.startup_warnings(rounds) or self.directive(history[:-1]):
            return []
        return [
            f"fedul-refined: in {counted(rounds, 'round')} refinement did not start, so this was fedul; add rounds."
        ]

    def directive(self, history: Sequence[RoundMetrics]) -> Mapping[str, float]:
        if not self.trust or len(history) < self._refinement_start(history):
            return {}
        return {"refine": 1.0, "reestimate": float(self.reestimate and self._is_near_best(history))}

    def patience_start(self, history: Sequence[RoundMetrics]) -> int:
        refined = [metrics.round for metrics in history if metrics.directive]
        return 0 if not self.trust else refined[0] - 1 if refined else len(history)

    def needs_logits(self, directive: Mapping[str, float]) -> bool:
        return bool(directive.get("refine"))

    def begin_round(
        self, targets: Targets, logits: Tensor, directive: Mapping[str, float], client_state: ClientState
    ) -> tuple[Targets, ClientState]:
        given_set = logits + take_rows(targets.sets["joint"], targets.rows["set"])
        rows = {**targets.rows, "soft": match_priors(given_set, targets)}
        targets = replace(targets, sets={**targets.sets, "match": match_strength(targets)})
        if not directive.get("reestimate"):
            return replace(targets, rows=rows), client_state
        priors = targets.sets["priors"]
        ratio = (reestimate_priors(given_set, targets) / priors).log()
        joint = targets.sets["joint"] + torch.where(priors > 0, ratio, torch.zeros_like(ratio))
        marginal = joint.logsumexp(-2, keepdim=joint.dim() > 2)
        sets, client = {**targets.sets, "joint": joint}, {**targets.client, "marginal": marginal}
        return replace(targets, rows=rows, sets=sets, client=client), client_state

    def _is_near_best(self, history: Sequence[RoundMetrics]) -> bool:
        """Return whether the last round is about as good as the best one, by the held-out loss.

        Estimates of class shares from a classifier that deteriorates make the next one worse, so they are not used.
        """
        losses = _known_losses(history)
        if len(losses) < len(history):
            return True
        return losses[-1] - min(losses) <= self.level * (losses[0] - min(losses))

    def _refinement_start(self, history: Sequence[RoundMetrics]) -> int:
        """Return the number of rounds after which refinement starts, given the rounds so far."""
        losses = _known_losses(history)
        if len(losses) < len(history):
            return ROUNDS_WITHOUT_HELD_OUT
        first = max(self.earliest, 4)  # 3 rounds earlier there is a loss
        for rounds in range(first, min(len(losses), self.latest) + 1):
            before, now = min(losses[: rounds - 3]), min(losses[:rounds])
            if before - now <= self.level * (losses[0] - now):
                return rounds
        return self.latest


def _known_losses(history: Sequence[RoundMetrics]) -> list[float]:
    """Return the held-out losses of the rounds that have one, comparable with each other."""
    known = [m.held_out_loss if m.comparable_loss is None else m.comparable_loss for m in history]
    return [loss for loss in known if loss is not None]


@cache
def _fedul(score: str) -> FedUL:
    return FedUL(score)


def match_priors(logits: Tensor, targets: Targets) -> Tensor:
    """Return posteriors whose mean over each set agrees with the class priors of the set.

    They minimise sum_i KL(r_i || p_i) + c n KL(mean r || Pi_m) over the n rows of set m, where p is the posterior given
    the set, and c / (1 + c) is the `match_strength`.

    Parameters
    ----------
    logits : Tensor
        (..., n, K) logits of the posterior of each row given its set.
    targets : Targets
        Targets with ``priors`` (..., M, K) and ``prior_variance`` (..., M, 1) of the sets.

    Returns
    -------
    Tensor
        (..., n, K) posteriors; a class with prior zero has posterior zero.
    """
    priors, sets = targets.sets["priors"], targets.rows["set"]
    tiny, count = torch.finfo(priors.dtype).tiny, priors.shape[-2]
    exponent = match_strength(targets)  # of Sinkhorn steps towards marginals with a penalty
    log_priors = priors.clamp_min(tiny).log()
    scale = torch.zeros_like(priors)  # logarithm of the factor of each class in each set
    posterior, sizes = softmax(logits).contiguous(), set_sizes(targets, count, logits.dtype)
    for _ in range(SINKHORN_STEPS):
        means = set_means(_reweigh(posterior, scale, sets), targets, count, sizes)
        scale = torch.where(priors > 0, exponent * (scale + log_priors - means.clamp_min(tiny).log()), scale)
    return softmax(logits + take_rows(scale, sets)).contiguous()


def match_strength(targets: Targets) -> Tensor:
    """Return how closely the soft labels of each set agree with its priors: from 0, not at all, to 1, exactly.

    It is c / (1 + c) with the weight c of the priors in `match_priors`. Let v be the variance of the class shares of
    the rows around Pi_m, relative to multinomial variance. If labels are exchangeable given these shares, the most
    probable labels have c = 1/v - 1: a hard match for counts of exactly these rows (v = 0), and none for a population
    (v = 1), whose rows do not inform about each other. Every row adds `MODEL_VARIANCE` to c, because the posterior is
    that of an imperfect model: a large set agrees with its priors, and a single row keeps its posterior.

    Parameters
    ----------
    targets : Targets
        Targets with ``prior_variance`` (..., M, 1), which is v.

    Returns
    -------
    Tensor
        (..., M, 1)
    """
    variance = targets.sets["prior_variance"]
    sizes = set_sizes(targets, variance.shape[-2], variance.dtype)
    return (1 - 1 / (1 / variance + MODEL_VARIANCE * sizes)).clamp_min(0)


def reestimate_priors(logits: Tensor, targets: Targets) -> Tensor:
    """Return estimates rho_m of the class shares of the rows of each set, from its priors and its rows.

    They maximise sum_i log sum_k rho_mk f_ik / pi_k + n/v sum_k Pi_mk log rho_mk, by EM, where f is the prediction
    under the test prior pi. The second term is a Dirichlet prior with the precision of the class shares of n rows
    around Pi_m, whose variance is v, relative to multinomial variance. With v = 0 they are Pi_m.

    Parameters
    ----------
    logits, targets
        As of `match_priors`.

    Returns
    -------
    Tensor
        (..., M, K) class shares; a class with prior zero has share zero.
    """
    priors, sets, variance = targets.sets["priors"], targets.rows["set"], targets.sets["prior_variance"]
    if not variance.any():
        return priors
    shares, ratio, posterior = priors, torch.zeros_like(priors), softmax(logits).contiguous()
    count = priors.shape[-2]
    sizes = set_sizes(targets, count, logits.dtype)
    for _ in range(EM_STEPS):
        means = set_means(_reweigh(posterior, ratio, sets), targets, count, sizes)
        shares = (priors + variance * means) / (1 + variance)
        ratio = torch.where(priors > 0, (shares / priors).log(), torch.zeros_like(priors))
    return shares


def _reweigh(posterior: Tensor, scale: Tensor, sets: Tensor) -> Tensor:
    """Return posteriors (..., n, K) with other class priors in each set: softmax(log posterior + scale of the set).

    Without the exponential of every row, which takes most of the time of an iteration.
    """
    weighted = posterior * take_rows(scale.clamp(-LARGEST_SCALE, LARGEST_SCALE).exp(), sets)
    return weighted / weighted.sum(-1, keepdim=True).clamp_min(torch.finfo(weighted.dtype).tiny)
