"""Sums of clipped gradients are those of autograd, one row at a time, for every kind of network."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.testing import assert_close

from fedul.errors import FedulError
from fedul.models.cnn import small_cnn
from fedul.models.mlp import linear, mlp, small_mlp
from fedul.privacy.dp_sgd.chain import ChainGradients, row_chain
from fedul.privacy.dp_sgd.functional import FunctionalGradients
from fedul.privacy.dp_sgd.row_gradients import RowGradients, row_gradients

Predict = Callable[[Tensor], Tensor]
Losses = Callable[[Predict, Tensor, Tensor], Tensor]

ROWS, CLASSES = 7, 3
TABLE, IMAGE = (5,), (2, 8, 9)


class Residual(nn.Module):
    """A network that is no chain, with a layer that is used twice and one that is frozen."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.middle, self.head = nn.Linear(5, 6), nn.Linear(6, 6), nn.Linear(6, CLASSES)
        self.head.bias.requires_grad_(False)

    def forward(self, inputs: Tensor) -> Tensor:
        hidden = self.first(inputs).tanh()
        logits: Tensor = self.head(hidden + self.middle(self.middle(hidden).relu()))
        return logits


def places() -> nn.Module:
    """A chain whose dense layers see several places of a row: the rows of an image are places."""
    layers = nn.Linear(9, 4), nn.LayerNorm((8, 4)), nn.GELU(), nn.Linear(4, 2, bias=False), nn.Flatten()
    return nn.Sequential(*layers, nn.Linear(2 * 8 * 2, CLASSES))


def normalised_images() -> nn.Module:
    """A chain with group norm, strides, padding and an activation in place."""
    first = nn.Sequential(nn.Conv2d(2, 4, 3, stride=2, padding=(1, 2)), nn.GroupNorm(2, 4), nn.ReLU(inplace=True))
    second = nn.Sequential(nn.Conv2d(4, 3, 2, dilation=2, bias=False), nn.AdaptiveAvgPool2d(2), nn.Flatten())
    return nn.Sequential(first, second, nn.Linear(12, CLASSES))


def frozen_first() -> nn.Module:
    """A chain whose first layer is frozen, as is the bias of the next one."""
    module = small_mlp(TABLE, CLASSES)
    module.get_submodule("hidden1").requires_grad_(False)
    module.get_parameter("hidden2.bias").requires_grad_(False)
    module.get_parameter("head.weight").requires_grad_(False)
    return module


CHAINS = {
    "linear": (linear(TABLE, CLASSES), TABLE),
    "small-mlp": (small_mlp(TABLE, CLASSES), TABLE),
    "mlp": (mlp(TABLE, CLASSES), TABLE),
    "small-cnn": (small_cnn(IMAGE, CLASSES), IMAGE),
    "places": (places(), IMAGE),
    "normalised images": (normalised_images(), IMAGE),
    "frozen first": (frozen_first(), TABLE),
}
NETWORKS = {**CHAINS, "residual": (Residual(), TABLE)}


def one_prediction(predict: Predict, inputs: Tensor, labels: Tensor) -> Tensor:
    """Return the cross-entropy of each row."""
    return functional.cross_entropy(predict(inputs), labels, reduction="none")


def two_predictions(predict: Predict, inputs: Tensor, labels: Tensor) -> Tensor:
    """Return losses that depend on two predictions for each row, and on a gradient with respect to the inputs."""
    probe = inputs.detach().clone().requires_grad_()
    (direction,) = torch.autograd.grad(predict(probe).square().sum(), probe)
    moved = predict(inputs + 0.1 * direction)
    return functional.cross_entropy(predict(inputs), labels, reduction="none") + moved.square().sum(-1)


def by_autograd(module: nn.Module, losses: Losses, inputs: Tensor, labels: Tensor, clip: float) -> list[Tensor]:
    """Return the sum of the clipped gradients, one row at a time."""
    parameters = [p for p in module.parameters() if p.requires_grad]
    totals = [torch.zeros_like(p) for p in parameters]
    for row, label in zip(inputs, labels, strict=True):
        loss = losses(module, row[None], label[None]).sum()
        found = torch.autograd.grad(loss, parameters, allow_unused=True)
        gradients = [torch.zeros_like(p) if g is None else g for g, p in zip(found, parameters, strict=True)]
        norm = float(torch.cat([g.flatten() for g in gradients]).norm())
        for total, gradient in zip(totals, gradients, strict=True):
            total += min(1.0, clip / norm) * gradient
    return totals


def clipped(gradients: RowGradients, losses: Losses, inputs: Tensor, labels: Tensor, clip: float) -> list[Tensor]:
    return gradients.clipped_sum(losses(gradients.predict, inputs, labels).sum(), clip)


def rows_of(shape: tuple[int, ...]) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    scale = torch.logspace(-1, 1, ROWS, dtype=torch.float64).view(-1, *[1] * len(shape))  # some are clipped
    inputs = scale * torch.randn(ROWS, *shape, generator=generator, dtype=torch.float64)
    return inputs, torch.arange(ROWS) % CLASSES


@pytest.mark.parametrize("losses", [one_prediction, two_predictions])
@pytest.mark.parametrize("clip", [0.05, 1.5, 1e9])
@pytest.mark.parametrize("name", NETWORKS)
def test_the_sum_is_that_of_one_row_at_a_time(name: str, clip: float, losses: Losses) -> None:
    module, shape = NETWORKS[name]
    module = module.double()
    inputs, labels = rows_of(shape)
    expected = by_autograd(module, losses, inputs, labels, clip)
    for gradients in (row_gradients(module), FunctionalGradients(module)):
        assert gradients.names == [key for key, p in module.named_parameters() if p.requires_grad]
        assert_close(clipped(gradients, losses, inputs, labels, clip), expected, rtol=1e-10, atol=1e-11)


@pytest.mark.parametrize("name", CHAINS)
def test_a_chain_of_known_layers_is_recognised(name: str) -> None:
    assert isinstance(row_gradients(CHAINS[name][0]), ChainGradients)


def tied() -> nn.Module:
    shared = nn.Linear(5, 5)
    return nn.Sequential(shared, nn.Tanh(), shared, nn.Linear(5, CLASSES))


def tied_weight() -> nn.Module:
    module = nn.Sequential(nn.Linear(5, 5), nn.Tanh(), nn.Linear(5, 5), nn.Linear(5, CLASSES))
    module[2].weight = module[0].weight
    return module


def with_hook() -> nn.Module:
    module = nn.Sequential(nn.Linear(5, CLASSES))
    module[0].register_forward_hook(lambda layer, inputs, outputs: 2 * outputs)
    return module


@pytest.mark.parametrize("make", [Residual, tied, tied_weight, with_hook])
def test_other_networks_are_differentiated_row_by_row(make: Callable[[], nn.Module]) -> None:
    module = make().double()
    assert row_chain(module) is None
    inputs, labels = rows_of(TABLE)
    expected = by_autograd(module, one_prediction, inputs, labels, 0.5)
    assert_close(clipped(row_gradients(module), one_prediction, inputs, labels, 0.5), expected, rtol=1e-10, atol=1e-11)


@pytest.mark.parametrize("kind", [row_gradients, FunctionalGradients])
@pytest.mark.parametrize("bad", [float("nan"), float("inf"), 1e300])
def test_a_row_whose_gradient_is_not_finite_contributes_nothing(
    kind: Callable[[nn.Module], RowGradients], bad: float
) -> None:
    module = small_mlp(TABLE, CLASSES).double()
    inputs, labels = rows_of(TABLE)
    expected = by_autograd(module, one_prediction, inputs[1:], labels[1:], 0.5)
    inputs[0] = bad
    found = clipped(kind(module), one_prediction, inputs, labels, 0.5)
    assert_close(found, expected, rtol=1e-10, atol=1e-11)


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("losses", [one_prediction, two_predictions])
def test_no_row_contributes_more_than_the_limit_in_float32(name: str, losses: Losses) -> None:
    module, shape = NETWORKS[name]
    module = module.float()
    inputs, labels = rows_of(shape)
    gradients = row_gradients(module)
    for i in range(ROWS):
        total = clipped(gradients, losses, 100 * inputs[i : i + 1].float(), labels[i : i + 1], 0.1)
        assert float(torch.cat([each.double().flatten() for each in total]).norm()) <= 0.1


def test_a_prediction_of_a_part_of_the_rows_is_refused() -> None:
    def half(predict: Predict, inputs: Tensor, labels: Tensor) -> Tensor:
        return one_prediction(predict, inputs, labels).sum() + predict(inputs[:3]).sum()

    inputs, labels = rows_of(TABLE)
    for module in (small_mlp(TABLE, CLASSES), Residual()):
        with pytest.raises(FedulError, match="must predict all rows of a step"):
            clipped(row_gradients(module.double()), half, inputs, labels, 1.0)


def test_predictions_without_gradients_are_not_remembered() -> None:
    module = small_mlp(TABLE, CLASSES).double()
    inputs, labels = rows_of(TABLE)
    for gradients in (row_gradients(module), FunctionalGradients(module)):
        with torch.no_grad():
            assert_close(gradients.predict(inputs[:2]), module(inputs[:2]))
        expected = by_autograd(module, one_prediction, inputs, labels, 0.5)
        assert_close(clipped(gradients, one_prediction, inputs, labels, 0.5), expected)
