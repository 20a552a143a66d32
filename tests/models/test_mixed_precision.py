"""Mixed precision: gradients close to those in float32, float32 where it matters, and the rule of `auto`."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from fedul.engines.simulation import precision
from fedul.engines.simulation.precision import choose_precision
from fedul.errors import InputError
from fedul.models.mixed_precision import MixedPrecision, full_precision, in_precision

SHAPE = (2, 8, 8)


def network() -> nn.Module:
    torch.manual_seed(0)
    layers = [nn.Conv2d(2, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(512, 3)]
    return nn.Sequential(*layers)


def gradients(predict: nn.Module, rows: int = 64, scale: float = 1.0) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    inputs = torch.rand(rows, *SHAPE, generator=generator)
    labels = torch.randint(0, 3, (rows,), generator=generator)
    loss = nn.functional.cross_entropy(predict(inputs), labels) * scale
    return list(torch.autograd.grad(loss, list(predict.parameters())))


@pytest.mark.parametrize(("name", "tolerance"), [("bfloat16", 0.1), ("float16", 0.02)])  # 8 and 11 significant bits
def test_gradients_are_those_of_float32_up_to_the_rounding_of_16_bits(name, tolerance):
    module = network()
    exact = gradients(copy.deepcopy(module))
    mixed = gradients(in_precision(module, name))
    for one, other in zip(exact, mixed, strict=True):
        assert other.dtype == torch.float32
        if one.norm() > 1e-4:  # the bias before a batch norm has no gradient but rounding
            assert (one - other).norm() < tolerance * one.norm()


def test_small_gradients_survive_in_float16():
    """A mean over many rows, times a small factor: single rows have gradients below the range of float16."""
    module, scale = network(), 1e-4
    exact = gradients(copy.deepcopy(module), rows=512, scale=scale)
    mixed = gradients(in_precision(module, "float16"), rows=512, scale=scale)
    assert (exact[-2] - mixed[-2]).norm() < 0.03 * exact[-2].norm()


@pytest.mark.parametrize("name", ["bfloat16", "float16"])
def test_weights_statistics_and_logits_stay_in_float32(name):
    module = network()
    logits = in_precision(module, name)(torch.rand(4, *SHAPE))
    assert logits.dtype == torch.float32
    assert {tensor.dtype for tensor in module.state_dict().values()} == {torch.float32, torch.int64}
    assert module[1].running_mean.abs().sum() > 0  # training mode updates them


def test_products_are_rounded_to_16_bits_and_full_precision_switches_that_off():
    module, inputs = network().eval(), torch.rand(4, *SHAPE)
    predict = in_precision(module, "bfloat16")
    exact = module(inputs)
    assert not torch.equal(predict(inputs), exact)
    with full_precision(predict) as was_mixed:
        assert was_mixed
        assert torch.equal(predict(inputs), exact)
    assert not torch.equal(predict(inputs), exact)
    with full_precision(module) as was_mixed:
        assert not was_mixed


def test_full_precision_is_left_after_an_error():
    predict = MixedPrecision(network(), torch.bfloat16)
    with pytest.raises(ZeroDivisionError), full_precision(predict):
        raise ZeroDivisionError
    assert predict.enabled


def test_float32_is_the_network_itself():
    module = network()
    assert in_precision(module, "float32") is module


def test_auto_needs_hardware_and_a_network_that_gains(monkeypatch):
    small, large = network(), nn.Sequential(nn.Flatten(), nn.Linear(128, 50_000), nn.Linear(50_000, 3))
    monkeypatch.setattr(precision, "has_bfloat16", lambda device: True)
    assert choose_precision("auto", small, SHAPE) == "float32"
    assert choose_precision("auto", large, SHAPE) == "bfloat16"
    assert choose_precision("auto", large.double(), SHAPE) == "float32"
    monkeypatch.setattr(precision, "has_bfloat16", lambda device: False)
    assert choose_precision("auto", large.float(), SHAPE) == "float32"
    assert choose_precision("bfloat16", small, SHAPE) == "bfloat16"  # as asked, if slow


def test_what_cannot_be_trained_in_16_bits_is_refused():
    class Sorted(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(128, 3)

        def forward(self, rows: torch.Tensor) -> torch.Tensor:
            logits = self.layer(rows.flatten(1))
            assert logits.dtype == torch.float32, "needs float32"
            return logits

    with pytest.raises(InputError, match=r"precision bfloat16: this network cannot be trained in it \(.*needs float32"):
        choose_precision("bfloat16", Sorted(), SHAPE)
    with pytest.raises(InputError, match="its weights are not float32"):
        choose_precision("bfloat16", network().double(), SHAPE)
    with pytest.raises(InputError, match="precision float16: is for GPUs; use bfloat16"):
        choose_precision("float16", network(), SHAPE)


def test_the_choice_does_not_change_network_or_random_numbers():
    module = network()
    before, state = copy.deepcopy(module.state_dict()), torch.random.get_rng_state()
    choose_precision("bfloat16", module, SHAPE)
    assert torch.equal(torch.random.get_rng_state(), state)
    assert all(torch.equal(tensor, before[name]) for name, tensor in module.state_dict().items())
    assert module.training
