"""Training gives the same numbers with the private functions of torch and with the public fallbacks."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

import fedul
from fedul._utils import torch_private
from fedul._utils.torch_private import Tensors

from ..engines.simulation.comparison import Case, assert_same_result
from ..factories import random_study

SHAPES = [(4, 2, 5), (6,), ()]
ADAM: dict[str, Any] = {"rate": 0.05, "beta": (0.9, 0.999), "epsilon": 1e-8}
FUNCTIONS: dict[str, tuple[list[str], Callable[..., Tensors | None]]] = {
    "add_": (["_foreach_add_"], lambda a, b, c, d: torch_private.add_(a, b)),
    "add_ with alpha": (["_foreach_add_"], lambda a, b, c, d: torch_private.add_(a, b, alpha=-0.3)),
    "multiply_": (["_foreach_mul_"], lambda a, b, c, d: torch_private.multiply_(a, 0.7)),
    "lerp_": (["_foreach_lerp_"], lambda a, b, c, d: torch_private.lerp_(a, b, 0.1)),
    "addcmul_": (["_foreach_addcmul_"], lambda a, b, c, d: torch_private.addcmul_(a, b, c, 0.2)),
    "copy_": (["_foreach_copy_"], lambda a, b, c, d: torch_private.copy_(a, b)),
    "add": (["_foreach_add"], lambda a, b, c, d: torch_private.add(a, b)),
    "add with alpha": (["_foreach_add"], lambda a, b, c, d: torch_private.add(a, b, alpha=2.5)),
    "subtract": (["_foreach_sub"], lambda a, b, c, d: torch_private.subtract(a, b)),
    "sign": (["_foreach_sign"], lambda a, b, c, d: torch_private.sign(a)),
    "adam_": (["_fused_adam_"], lambda a, b, c, d: torch_private.adam_(a, b, c, d, torch.tensor(3.0), **ADAM)),
    "unfused_adam_": (
        ["_foreach_lerp_", "_foreach_mul_", "_foreach_addcmul_"],
        lambda a, b, c, d: torch_private.unfused_adam_(a, b, c, d, torch.tensor(3.0), **ADAM),
    ),
}
"""A call of each function with four lists of tensors, and the private functions that it uses if they are available."""
ALGORITHMS: dict[str, tuple[str, dict[str, Any]]] = {
    "fedavg": ("fedavg", {}),
    "fedprox": ("fedprox", {"mu": 0.1}),
    "scaffold": ("scaffold", {}),
}
OPTIMIZERS: dict[str, dict[str, Any]] = {
    "sgd": {"optimizer": "sgd", "momentum": 0.9, "l1": 1e-3},
    "adam": {"optimizer": "adam"},
}


@contextmanager
def without_private_functions() -> Iterator[list[str]]:
    """Make torch appear to have none; yields the names that were asked for."""
    asked: list[str] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch_private, "_private", asked.append)
        yield asked


def random_lists() -> list[list[Tensor]]:
    """Four lists, the last of which is positive, as squares are."""
    generator = torch.Generator().manual_seed(0)
    lists = [[torch.randn(s, generator=generator, dtype=torch.float64) for s in SHAPES] for _ in range(4)]
    return [*lists[:3], [tensor.square() for tensor in lists[3]]]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_fallbacks_give_the_numbers_of_the_private_functions(name: str) -> None:
    used, function = FUNCTIONS[name]
    private, public = random_lists(), random_lists()
    expected = function(*private)
    with without_private_functions() as asked:
        found = function(*public)
    assert set(used) <= set(asked)
    assert_close(list(found or []), list(expected or []), rtol=1e-13, atol=1e-14)
    assert_close(public, private, rtol=1e-13, atol=1e-14)
    in_place = name.split()[0].endswith("_")
    assert in_place is (expected is None)
    assert in_place is not all(torch.equal(a, b) for a, b in zip(public[0], random_lists()[0], strict=True))


def test_this_torch_has_the_private_functions() -> None:
    names = {name for used, _ in FUNCTIONS.values() for name in used}
    assert [name for name in names if torch_private._private(name) is None] == []


def test_a_private_function_that_torch_does_not_have_is_not_available() -> None:
    assert torch_private._private("_foreach_never") is None


@pytest.mark.parametrize("engine_mode", ["loop", "vectorized"])
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_training_without_private_functions_gives_the_same_weights(
    algorithm: str, optimizer: str, engine_mode: str
) -> None:
    case = Case(random_study(0), algorithm=ALGORITHMS[algorithm], settings=OPTIMIZERS[optimizer])
    expected = getattr(case, engine_mode)()
    with without_private_functions() as asked:
        found = getattr(case, engine_mode)()
    assert asked
    assert_same_result(found, expected)


def test_other_modules_call_no_private_functions_of_torch() -> None:
    sources = Path(fedul.__file__).parent.rglob("*.py")
    private = re.compile(r"\btorch\._[a-z]")
    assert [path.name for path in sources if private.search(path.read_text())] == ["torch_private.py"]


@pytest.mark.parametrize("needed", [(True, True), (True, False), (False, True)])
def test_gradients_of_convolutions_are_the_same_without_private_functions(
    needed: tuple[bool, bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    inputs, weight = torch.randn(2, 4, 7, 6).double(), torch.randn(6, 2, 3, 2).double()
    form: dict[str, Any] = {"stride": (2, 1), "padding": (1, 0), "dilation": (1, 2), "groups": 2}
    gradient = torch.randn_like(torch.nn.functional.conv2d(inputs, weight, None, **form))
    expected = torch_private.convolution_gradients(gradient, inputs, weight, **form, needed=needed)
    monkeypatch.setattr(torch.ops, "aten", object())
    found = torch_private.convolution_gradients(gradient, inputs, weight, **form, needed=needed)
    for one, other in zip(expected, found, strict=True):
        assert (one is None) == (other is None)
        if one is not None:
            assert_close(one, other)
    assert tuple(one is not None for one in found) == needed
