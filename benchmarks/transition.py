"""What the transition costs as sets (M) and classes (K) grow: fedul's loss against two others. Takes 20 seconds.

    python benchmarks/transition.py

Forward and backward from logits at batch 128, one thread, the three in turn: `set_loss` with the lookup of each row's
table entry; Q made whole (softmax, product with the M x K matrix, normalised, negative log-likelihood of the set); and
plain cross-entropy of a class, which knows no sets.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from _measure import Spread, in_turn
from fedul.hardware import arithmetic_threads
from fedul.randomness import torch_generator
from fedul.transition import Transition, set_loss

SIZES = ((10, 10), (100, 10), (1000, 10), (100, 100), (1000, 100))
BATCH, CALLS, TIMES = 128, 100, 9


def measured() -> list[dict[str, Any]]:
    with arithmetic_threads(1):
        return [_one(sets, classes) for sets, classes in SIZES]


def _one(sets: int, classes: int) -> dict[str, Any]:
    generator = torch_generator("transition", sets, classes)
    logits = torch.randn(BATCH, classes, generator=generator, requires_grad=True)
    labels = torch.randint(0, classes, (BATCH,), generator=generator)
    of_row = torch.randint(0, sets, (BATCH,), generator=generator)
    priors = torch.rand(sets, classes, generator=generator, dtype=torch.float64)
    priors /= priors.sum(1, keepdim=True)
    set_priors, test_prior = (torch.full((n,), 1 / n, dtype=torch.float64) for n in (sets, classes))
    table = Transition(priors.float(), set_priors, test_prior)
    matrix = (set_priors[:, None] * priors / test_prior).float()  # (M, K)

    def ours() -> Tensor:
        return set_loss(logits, table.joint[of_row], table.marginal).mean()

    def whole() -> Tensor:
        scores = logits.softmax(1) @ matrix.T  # (n, M)
        return functional.nll_loss((scores / scores.sum(1, keepdim=True)).log(), of_row)

    def plain() -> Tensor:
        return functional.cross_entropy(logits, labels)

    apart = float((ours() - whole()).detach().abs())
    losses = {"set_loss": ours, "whole_q": whole, "cross_entropy": plain}
    taken = in_turn({name: _repeated(loss, logits) for name, loss in losses.items()}, TIMES + 1)
    spreads = {name: Spread.of([t / CALLS for t in times[1:]]).plain() for name, times in taken.items()}
    return {"sets": sets, "classes": classes, "difference": apart, "seconds": spreads}


def _repeated(loss: Callable[[], Tensor], logits: Tensor) -> Callable[[], None]:
    def action() -> None:
        for _ in range(CALLS):
            logits.grad = None
            loss().backward()  # type: ignore[no-untyped-call]

    return action


if __name__ == "__main__":
    print(json.dumps(measured(), indent=2))
