"""The local optimisers step as torch's own do, also where only the first of several clients still step."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.testing import assert_close

from fedul.config import TrainConfig
from fedul.engines.simulation.optimizers import CHUNK, add_l1, make_optimizer, match_layout

from ...worlds import repeatable, seeds

SHAPES = [(3, 4, 2, 5), (3, 6), (3,)]
"""Of the parameters of three clients."""
TORCHS: dict[str, tuple[dict[str, Any], Callable[[list[Tensor]], torch.optim.Optimizer]]] = {
    "sgd": ({"optimizer": "sgd"}, lambda p: torch.optim.SGD(p, 0.05)),
    "momentum": ({"optimizer": "sgd", "momentum": 0.9}, lambda p: torch.optim.SGD(p, 0.05, momentum=0.9)),
    "nesterov": (
        {"optimizer": "sgd", "momentum": 0.9, "nesterov": True},
        lambda p: torch.optim.SGD(p, 0.05, momentum=0.9, nesterov=True),
    ),
    "adam": ({"optimizer": "adam"}, lambda p: torch.optim.Adam(p, 0.05, foreach=False)),
}
CHANNELS_LAST = {True: torch.channels_last, False: torch.preserve_format}
LAYOUTS: dict[str, Callable[[Tensor], Tensor]] = {
    "contiguous": lambda tensor: tensor,
    "channels last": lambda tensor: (
        tensor.contiguous(memory_format=torch.channels_last) if tensor.dim() == 4 else tensor
    ),
    "transposed": lambda tensor: tensor.mT.contiguous().mT if tensor.dim() > 1 else tensor,
    "every other": lambda tensor: torch.stack([tensor, tensor], -1)[..., 0],
}


def random_tensors(generator: torch.Generator) -> list[Tensor]:
    return [torch.randn(shape, generator=generator, dtype=torch.float64) for shape in SHAPES]


def gradients_of(seed: int, steps: int) -> Iterator[list[Tensor]]:
    """Some of them zero, as those of a weight that the loss does not use."""
    generator = torch.Generator().manual_seed(seed)
    for step in range(steps):
        yield [g * (step % 3 != i) for i, g in enumerate(random_tensors(generator))]


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", TORCHS)
@settings(repeatable, max_examples=10)
@given(seeds, st.integers(1, 8))
def test_steps_are_those_of_torchs_optimiser_however_parameters_lie_in_memory(
    name: str, layout: str, seed: int, steps: int
) -> None:
    chosen, maker = TORCHS[name]
    start = random_tensors(torch.Generator().manual_seed(seed))
    ours, theirs = [LAYOUTS[layout](p.clone()) for p in start], [p.clone().requires_grad_() for p in start]
    mine, reference = make_optimizer(TrainConfig(learning_rate=0.05, **chosen), ours), maker(theirs)
    for gradients in gradients_of(seed, steps):
        mine.step(ours, match_layout(gradients, ours))
        for parameter, gradient in zip(theirs, gradients, strict=True):
            parameter.grad = gradient
        reference.step()
    for found, expected in zip(ours, theirs, strict=True):
        assert_close(found, expected.detach(), rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("name", TORCHS)
def test_clients_that_have_finished_do_not_change_and_the_others_step_as_single_clients(name: str) -> None:
    chosen, maker = TORCHS[name]
    stepping = [3, 3, 2, 2, 1, 1]
    start = random_tensors(torch.Generator().manual_seed(0))
    ours = [p.clone() for p in start]
    mine = make_optimizer(TrainConfig(learning_rate=0.05, **chosen), ours)
    every = list(gradients_of(1, len(stepping)))
    for active, gradients in zip(stepping, every, strict=True):
        mine.step([p[:active] for p in ours], [g[:active] for g in gradients])
    for c in range(3):
        alone = [p[c].clone().requires_grad_() for p in start]
        reference = maker(alone)
        for active, gradients in zip(stepping, every, strict=True):
            if c < active:
                for parameter, gradient in zip(alone, gradients, strict=True):
                    parameter.grad = gradient[c]
                reference.step()
        for found, expected in zip(ours, alone, strict=True):
            assert_close(found[c], expected.detach(), rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_gradients_are_laid_out_as_their_parameters_are(layout: str) -> None:
    parameters = [LAYOUTS[layout](p) for p in random_tensors(torch.Generator().manual_seed(0))]
    gradients = random_tensors(torch.Generator().manual_seed(1))
    for parameter, gradient, found in zip(parameters, gradients, match_layout(gradients, parameters), strict=True):
        assert torch.equal(found, gradient)
        assert found.stride() == torch.empty_like(parameter).stride()


def test_a_weight_that_the_loss_does_not_use_has_gradient_zero() -> None:
    (found,) = match_layout([None], [torch.ones(2, 3)])
    assert torch.equal(found, torch.zeros(2, 3))


@pytest.mark.parametrize("shape", [(5, 3), (600, 1000), (7, 64, 40, 40), (CHUNK + 5,)], ids=str)
@pytest.mark.parametrize("channels_last", [False, True])
def test_signs_are_added_whatever_the_size_and_layout(shape: tuple[int, ...], channels_last: bool) -> None:
    layout = torch.channels_last if channels_last and len(shape) == 4 else torch.contiguous_format
    parameter, gradient = (torch.randn(shape).contiguous(memory_format=layout) for _ in range(2))
    expected = gradient + 0.03 * parameter.sign()
    other = torch.ones(3)
    found = add_l1([gradient, other], [parameter, -other], 0.03)
    torch.testing.assert_close(found[0], expected, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(found[1], torch.full((3,), 0.97))


def test_a_gradient_that_two_parameters_share_gets_the_signs_of_each() -> None:
    one, other, shared = torch.ones(CHUNK + 1), -torch.ones(CHUNK + 1), torch.zeros(CHUNK + 1)
    found = add_l1([shared, shared], [one, other], 0.5)
    assert [float(g[0]) for g in found] == [0.5, -0.5]
    assert float(shared.abs().sum()) == 0
