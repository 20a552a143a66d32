"""LLP-PVC: the likelihood that a set has its number of rows of each class, computed exactly by a Fourier transform.

Learning from Label Proportions via Proportional Value Classification, ICLR 2026 (openreview JkFBc9anLi), after its
abstract and its published code. With independent rows, of which row i is of class k with probability p_ik, the number
N_k of rows of class k in a set is Poisson binomial. As in the paper, each class is taken against the rest: the loss of
a set with n_k rows of class k is -sum_k log P(N_k = n_k). Unlike the mean of the predictions, this distribution also
favours certain ones. p is the posterior under the class mix s of the client, softmax(z + log(s/pi)).

Steps mix rows of all sets, and a set may be larger than a step. Therefore the likelihood is maximised by EM: at the
start of a round the client computes r_ik = P(row i is of class k | N_k = n_k) over its whole sets with the global
model, and the steps minimise the cross-entropy of each class against the rest, with soft labels r. At the start of a
round its gradient is the one of the count likelihood of whole sets, whatever the steps are.

If n Pi is not whole, the loss is interpolated between the two nearest counts, which leaves the expected count as it
is. The transform is taken on a circle on which the count is the mean of the distribution (exponential tilting), so
that probabilities of any size are exact to rounding. With one row per set and one-hot priors it is supervised learning,
each class against the rest.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor

from fedul.core import TaskSpec, UnlabeledSets
from fedul.methods.base import ClientState, Method
from fedul.methods.fedllp import FedLLP
from fedul.methods.operations import log_softmax, set_sizes, set_sums
from fedul.methods.row_private import row_privacy_refused
from fedul.methods.task import Predict, Step, Targets, Task, take_rows

LARGEST_LOG_ODDS = 40.0
"""Bound of the log-odds of a row in the transform; beyond it a row is certain in float64."""
TILT_STEPS = 30
"""Bisections of the tilt. It only conditions the transform, so it need not be exact."""
ALIASING = 18.0
"""The count of n independent rows is T or more from its mean with probability at most 2 exp(-2 T^2 / n) (Hoeffding). A
transform of T counts adds these counts; with T^2 = 18 n they are less than 1e-15."""


@dataclass(frozen=True)
class LLPPVC(Method):
    """Minimise the negative log-likelihood of the class counts of whole sets, each class against the rest, by EM.

    With one row per set and one-hot priors it is supervised learning, each class against the rest.
    """

    vectorized: ClassVar[bool] = True

    def row_private(self) -> tuple[Method, Sequence[str]]:
        raise row_privacy_refused("llp-pvc", "its soft labels follow from all rows of a set")

    def task(self, client: UnlabeledSets, spec: TaskSpec) -> Task:
        return FedLLP().task(client, spec)

    def needs_logits(self, directive: Mapping[str, float]) -> bool:
        return True

    def begin_round(
        self, targets: Targets, logits: Tensor, directive: Mapping[str, float], client_state: ClientState
    ) -> tuple[Targets, ClientState]:
        log_odds = _log_odds((logits + targets.client["offset"]).double())
        priors = targets.sets["priors"].double()
        sizes = set_sizes(targets, priors.shape[-2], torch.float64)  # (..., M, 1)
        expected = (sizes * priors).minimum(sizes)
        low = expected.floor()
        excess = take_rows(expected - low, targets.rows["set"])
        below, above = (count_posteriors(log_odds, targets, counts) for counts in (low, (low + 1).minimum(sizes)))
        soft = (below + excess * (above - below)).to(logits.dtype)
        return replace(targets, rows={**targets.rows, "soft": soft}), client_state

    def loss(self, predict: Predict, step: Step) -> Tensor:
        logits = predict(step.inputs) + step.shared["offset"]
        return step.mean(one_vs_rest_losses(logits, step.targets["soft"]))


def one_vs_rest_losses(logits: Tensor, soft: Tensor) -> Tensor:
    """Return the sum over classes of the binary cross-entropy of the class against the rest, (..., n).

    Parameters
    ----------
    logits : Tensor
        (..., n, K) logits, of which -inf is a class that cannot occur.
    soft : Tensor
        (..., n, K) probability of each class; it need not sum to one.
    """
    log_posterior = log_softmax(logits)
    rest = _log_rest(log_posterior)
    positive = torch.where(soft > 0, soft * log_posterior, torch.zeros_like(soft))
    negative = torch.where(soft < 1, (1 - soft) * rest, torch.zeros_like(soft))
    return -(positive + negative).sum(-1)


def count_posteriors(log_odds: Tensor, targets: Targets, counts: Tensor) -> Tensor:
    """Return the probability of each class for each row given the class counts of its set, (..., n, K).

    Parameters
    ----------
    log_odds : Tensor
        (..., n, K) log-odds of each class against the rest, finite, in float64.
    targets : Targets
        Targets whose ``set`` tells which rows form a set.
    counts : Tensor
        (..., M, K) number of rows of each class in each set, whole and at most the number of rows.
    """
    sets, count = targets.rows["set"], counts.shape[-2]
    sizes = set_sizes(targets, count, log_odds.dtype)
    tilted = (log_odds + take_rows(_tilt(log_odds, targets, counts), sets)).sigmoid()
    frequencies = _frequencies(int(sizes.max().item()), log_odds)  # (F,)
    weights = torch.full_like(frequencies, 2.0)  # frequencies t and -t are conjugate
    weights[0] = 1.0
    posteriors = []
    for k in range(counts.shape[-1]):
        # Factor of each row in the characteristic function of the count, (..., n, F)
        share, wanted = tilted[..., k : k + 1], counts[..., k : k + 1]
        real, imaginary = 1 - share + share * frequencies.cos(), share * frequencies.sin()
        log_size, angle = (real.square() + imaginary.square()).log() / 2, torch.atan2(imaginary, real)
        log_sizes, angles = set_sums(log_size, targets, count), set_sums(angle, targets, count)
        angles = angles - wanted * frequencies
        every = (weights * log_sizes.exp() * angles.cos()).sum(-1, keepdim=True)  # T P(N_k = n_k), tilted
        others_size, others_angle = take_rows(log_sizes, sets) - log_size, take_rows(angles, sets) - angle
        others = (weights * others_size.exp() * (others_angle + frequencies).cos()).sum(-1, keepdim=True)
        posteriors.append((share * others / take_rows(every, sets)).clamp(0, 1))
    posterior, wanted = torch.cat(posteriors, -1), take_rows(counts, sets)
    certain = (wanted >= take_rows(sizes, sets)).to(posterior.dtype)
    return torch.where((wanted > 0) & (certain == 0), posterior, certain)


def _frequencies(rows: int, like: Tensor) -> Tensor:
    """Return the non-negative frequencies (F,) of a transform that tells the counts of this many rows apart."""
    window = min(rows + 1, math.ceil(math.sqrt(ALIASING * rows)) + 2)
    window += 1 - window % 2  # an odd number has no frequency pi, where a factor may be 0
    return torch.arange((window + 1) // 2, dtype=like.dtype, device=like.device) * (2 * math.pi / window)


def _tilt(log_odds: Tensor, targets: Targets, counts: Tensor) -> Tensor:
    """Return what to add to the log-odds so that the expected counts of a set are its counts, (..., M, K)."""
    sets, count = targets.rows["set"], counts.shape[-2]
    sizes = set_sizes(targets, count, log_odds.dtype).clamp_min(1)
    inside = (counts > 0) & (counts < sizes)
    centre = torch.where(inside, counts / sizes, torch.full_like(counts, 0.5)).logit()
    low = centre - log_odds.amax(-2, keepdim=True)
    high = centre - log_odds.amin(-2, keepdim=True)
    for _ in range(TILT_STEPS):
        middle = (low + high) / 2
        below = set_sums((log_odds + take_rows(middle, sets)).sigmoid(), targets, count) < counts
        low, high = torch.where(below, middle, low), torch.where(below, high, middle)
    return torch.where(inside, (low + high) / 2, torch.zeros_like(counts))


def _log_odds(logits: Tensor) -> Tensor:
    """Return the log-odds of each class against the rest, bounded."""
    log_posterior = log_softmax(logits)
    return (log_posterior - _log_rest(log_posterior)).clamp(-LARGEST_LOG_ODDS, LARGEST_LOG_ODDS)


def _log_rest(log_posterior: Tensor) -> Tensor:
    """Return log(1 - p) of each class, also where p rounds to 1."""
    posterior = log_posterior.exp()
    top = posterior.detach().argmax(-1, keepdim=True)
    others = posterior.scatter(-1, top, 0.0).sum(-1, keepdim=True)  # 1 - p of the most probable class
    rest = (1 - posterior).scatter(-1, top, others)
    return rest.clamp_min(torch.finfo(rest.dtype).tiny).log()
