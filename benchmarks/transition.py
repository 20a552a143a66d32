"""Cost of the transition as sets (M) and classes (K) grow, compared with two other losses. About 20 seconds.

    python benchmarks/transition.py

Forward and backward from logits with batch 128 and one thread, alternating: `set_loss` with the lookup per row; the
full Q (softmax, product with the M x K matrix, normalization, negative log-likelihood of the set); and cross-entropy of
a class, which does not use sets.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from _measure import Quartiles, time_alternating
from fedul._utils.hardware import torch_threads
from fedul._utils.randomness import torch_generator
from fedul.core import Transition, set_loss

SIZES = ((10, 10), (100, 10), (1000, 10), (100, 100), (1000, 100))
BATCH, CALLS, TIMES = 128, 100, 9


def measure() -> list[dict[str, Any]]:
    """Return the times of the three losses for all sizes."""
    with torch_threads(1):
        return [_measure_size(sets, classes) for sets, classes in SIZES]


def _measure_size(sets: int, classes: int) -> dict[str, Any]:
    generator = torch_generator("transition", sets, classes)
    logits = torch.randn(BATCH, classes, generator=generator, requires_grad=True)
    labels = torch.randint(0, classes, (BATCH,), generator=generator)
    set_of_row = torch.randint(0, sets, (BATCH,), generator=generator)
    priors = torch.rand(sets, classes, generator=generator, dtype=torch.float64)
    priors /= priors.sum(1, keepdim=True)
    set_priors, test_prior = (torch.full((n,), 1 / n, dtype=torch.float64) for n in (sets, classes))
    transition = Transition(priors.float(), set_priors, test_prior)
    matrix = (set_priors[:, None] * priors / test_prior).float()  # (M, K)

    def factored() -> Tensor:
        return set_loss(logits, transition.joint[set_of_row], transition.marginal).mean()

    def full_q() -> Tensor:
        scores = logits.softmax(1) @ matrix.T  # (n, M)
        return functional.nll_loss((scores / scores.sum(1, keepdim=True)).log(), set_of_row)

    def cross_entropy() -> Tensor:
        return functional.cross_entropy(logits, labels)

    difference = float((factored() - full_q()).detach().abs())
    losses = {"set_loss": factored, "full_q": full_q, "cross_entropy": cross_entropy}
    taken = time_alternating({name: _repeated(loss, logits) for name, loss in losses.items()}, TIMES + 1)
    seconds = {name: Quartiles.of([t / CALLS for t in times[1:]]).to_dict() for name, times in taken.items()}
    return {"sets": sets, "classes": classes, "difference": difference, "seconds": seconds}


def _repeated(loss: Callable[[], Tensor], logits: Tensor) -> Callable[[], None]:
    def action() -> None:
        for _ in range(CALLS):
            logits.grad = None
            loss().backward()  # type: ignore[no-untyped-call]

    return action


if __name__ == "__main__":
    print(json.dumps(measure(), indent=2))
