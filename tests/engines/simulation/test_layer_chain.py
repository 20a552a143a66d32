"""Chains of layers with convolutions are differentiated by hand as autograd does it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

from fedul.config import TrainConfig
from fedul.engines.simulation.layer_chain import LayerChain, layer_chain
from fedul.engines.simulation.local_steps import GradientCorrection, run_local_steps
from fedul.engines.simulation.optimizers import SGD, Gradient, ProductGradient, match_layout
from fedul.engines.simulation.trainable_network import SingleClient
from fedul.methods.supervised import Supervised
from fedul.methods.task import Predict, Step
from fedul.models.mixed_precision import full_precision, in_precision

ROWS = 6


def build(*layers: nn.Module, inputs: int = 4 * 3 * 3) -> nn.Module:
    """Return a network of 8 x 8 images with two channels, with these layers after its first convolution."""
    return nn.Sequential(nn.Conv2d(2, 4, 3), *layers, nn.Flatten(), nn.Linear(inputs, 5))


def frozen() -> nn.Module:
    module = build(nn.ReLU(), nn.Conv2d(4, 4, 3), nn.ReLU(), inputs=64)
    for name in ("0.weight", "0.bias", "2.bias", "5.weight"):
        module.get_parameter(name).requires_grad_(False)
    return module


def tied() -> nn.Module:
    module = build(nn.ReLU(), nn.Conv2d(4, 4, 3, padding=1), nn.Conv2d(4, 4, 3, padding=1), nn.MaxPool2d(2))
    module.get_submodule("3").weight = module.get_submodule("2").weight  # type: ignore[assignment]
    return module


def large() -> nn.Module:
    return build(nn.Flatten(), nn.Linear(144, 1024), nn.ReLU(), inputs=1024)


MODULES: dict[str, Callable[[], nn.Module]] = {
    "ReLU before pooling": lambda: build(nn.ReLU(), nn.MaxPool2d(2)),
    "pooling before ReLU": lambda: build(nn.MaxPool2d(2), nn.ReLU(inplace=True)),
    "batch norm": lambda: build(nn.BatchNorm2d(4), nn.ReLU(inplace=True), nn.MaxPool2d(2)),
    "batch norm first": lambda: nn.Sequential(nn.BatchNorm2d(2, affine=False), build(nn.MaxPool2d(2))),
    "no bias, stride, groups": lambda: build(nn.Conv2d(4, 4, 3, 2, 1, groups=2, bias=False), nn.ReLU()),
    "dilation": lambda: build(nn.Conv2d(4, 4, 3, padding=1, dilation=2), nn.SiLU(inplace=True), inputs=64),
    "nested, last one an activation": lambda: nn.Sequential(nn.Sequential(build(nn.MaxPool2d(2))), nn.ReLU()),
    "mean over pixels": lambda: build(nn.Sigmoid(), nn.ReLU(), nn.AdaptiveAvgPool2d(1), inputs=4),
    "dense layer on pixels": lambda: build(nn.Linear(6, 3), nn.Tanh(), inputs=72),
    "large dense layer": large,
    "frozen": frozen,
    "tied": tied,
}


def images(generator: int = 1) -> Tensor:
    return torch.randn(ROWS, 2, 8, 8, generator=torch.Generator().manual_seed(generator))


def make(name: str, dtype: torch.dtype = torch.float64) -> nn.Module:
    torch.manual_seed(0)
    return MODULES[name]().to(dtype).to(memory_format=torch.channels_last)  # type: ignore[call-overload,no-any-return]


def chain_of(module: nn.Module, precision: str = "float32") -> tuple[LayerChain, list[Tensor]]:
    parameters = [p for p in module.parameters() if p.requires_grad]
    chain = layer_chain(in_precision(module, precision), module, parameters, precision)
    assert chain is not None
    return chain, parameters


def tensors(gradients: Sequence[Gradient]) -> list[Tensor | None]:
    return [g.to_tensor() if isinstance(g, ProductGradient) else g for g in gradients]


@pytest.mark.parametrize("name", MODULES)
def test_gradients_are_those_of_autograd(name: str) -> None:
    module, inputs = make(name), images().double()
    chain, parameters = chain_of(module)
    weights = torch.randn(ROWS, 5, dtype=torch.float64)
    logits = chain(inputs)
    found = chain.gradients((logits * weights).sum())
    expected = module(inputs)
    assert_close(logits.detach(), expected.detach())
    for mine, theirs in zip(tensors(found), torch.autograd.grad((expected * weights).sum(), parameters), strict=True):
        assert_close(mine, theirs)


@pytest.mark.parametrize("name", MODULES)
def test_in_bfloat16_logits_and_gradients_are_those_of_autocast(name: str) -> None:
    module, inputs = make(name, torch.float32), images()
    chain, parameters = chain_of(module, "bfloat16")
    logits = chain(inputs)
    found = match_layout(chain.gradients(logits.square().sum()), parameters)
    expected = in_precision(module, "bfloat16")(inputs)
    assert logits.dtype == torch.float32
    assert_close(logits.detach(), expected.detach(), rtol=2e-2, atol=1e-2)
    for mine, theirs in zip(found, torch.autograd.grad(expected.square().sum(), parameters), strict=True):
        assert float((mine - theirs).norm()) <= 0.03 * float(theirs.norm()) + 1e-3


def test_maximum_and_relu_commute_where_all_pixels_of_a_window_are_negative_or_equal() -> None:
    module = make("ReLU before pooling")
    with torch.no_grad():
        module.get_parameter("0.bias").fill_(-1)
    inputs = images().double().round()
    chain, parameters = chain_of(module)
    found = chain.gradients(chain(inputs).square().sum())
    for mine, theirs in zip(found, torch.autograd.grad(module(inputs).square().sum(), parameters), strict=True):
        assert_close(mine, theirs)


def test_gradients_of_several_predictions_are_added() -> None:
    module = make("large dense layer")
    chain, parameters = chain_of(module)

    def loss(predict: Predict) -> Tensor:
        first, second = predict(images(1).double()), predict(images(2).double())
        with torch.no_grad():
            third = predict(images(3).double())
        return (first * second * third).sum()

    found = tensors(chain.gradients(loss(chain)))
    for mine, theirs in zip(found, torch.autograd.grad(loss(module), parameters), strict=True):
        assert_close(mine, theirs)


def test_derivatives_with_respect_to_inputs_are_those_of_the_network() -> None:
    module = make("batch norm")
    module.eval()
    chain, parameters = chain_of(module)

    def loss(predict: Predict) -> Tensor:
        leaf = images().double().requires_grad_()
        (slope,) = torch.autograd.grad(predict(leaf).square().sum(), leaf, create_graph=True)
        return slope.square().sum() + predict(leaf.detach()).square().sum()

    found = chain.gradients(loss(chain))
    for mine, theirs in zip(found, torch.autograd.grad(loss(module), parameters), strict=True):
        assert_close(mine, theirs)


def test_full_precision_holds_for_a_chain() -> None:
    module, inputs = make("batch norm", torch.float32), images()
    chain, parameters = chain_of(module, "bfloat16")
    with full_precision(chain) as was_mixed:
        logits = chain(inputs)
    assert was_mixed
    assert torch.equal(logits, module(inputs))
    for mine, theirs in zip(
        chain.gradients(logits.sum()), torch.autograd.grad(module(inputs).sum(), parameters), strict=True
    ):
        assert torch.equal(mine, theirs)  # type: ignore[arg-type]


def test_a_prediction_without_a_loss_is_forgotten() -> None:
    chain, _ = chain_of(make("batch norm"))
    chain(images().double())
    chain.reset()
    logits = chain(images(2).double())
    assert all(g is not None for g in chain.gradients(logits.sum()))


def with_weight_hook() -> nn.Module:
    module = build(inputs=144)
    module.get_parameter("0.weight").register_hook(lambda gradient: 2 * gradient)
    return module


def with_hook() -> nn.Module:
    module = build(nn.MaxPool2d(2))
    module.get_submodule("1").register_forward_hook(lambda *_: None)
    return module


class Doubled(nn.Sequential):
    def forward(self, inputs: Tensor) -> Tensor:
        return 2 * super().forward(inputs)  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    "module",
    [
        nn.Sequential(nn.Flatten(), nn.Linear(128, 5)),
        with_hook(),
        with_weight_hook(),
        Doubled(build(nn.MaxPool2d(2))),
        build(Doubled(nn.MaxPool2d(2))),
        nn.Sequential(nn.Conv2d(2, 4, 3, padding="same"), nn.Flatten()),
        nn.Sequential(nn.Conv2d(2, 4, 3, padding=1, padding_mode="circular"), nn.Flatten()),
    ],
    ids=["dense", "hook", "hook on a weight", "own forward", "own layer", "padding by name", "circular padding"],
)
def test_other_networks_are_no_chain(module: nn.Module) -> None:
    assert layer_chain(module, module, list(module.parameters()), "float32") is None


@pytest.mark.parametrize("changes", [{}, {"momentum": 0.9}, {"l1": 0.01}, {"l2": 0.01}, {"optimizer": "adam"}])
def test_local_steps_of_a_chain_are_those_of_a_network_with_a_graph(changes: dict[str, object]) -> None:
    config = TrainConfig(**{"optimizer": "sgd", "learning_rate": 0.05, **changes})  # type: ignore[arg-type]
    ours, theirs = make("large dense layer"), make("large dense layer")
    theirs.register_forward_hook(lambda *_: None)
    shared = {"offset": torch.zeros(5, dtype=torch.float64)}
    steps = [Step(images(i).double(), {"label": torch.arange(ROWS) % 5}, shared) for i in range(3)]
    for module in (ours, theirs):
        client = SingleClient(module, "float32")
        start = {name: p.detach().clone() for name, p in module.named_parameters()}
        run_local_steps(client, steps, Supervised(), config, GradientCorrection(None, start, client))
    assert_close(dict(ours.named_parameters()), dict(theirs.named_parameters()))


def test_sgd_adds_the_product_of_thin_matrices_as_it_adds_the_gradient() -> None:
    left, right = torch.randn(5, 3).bfloat16(), torch.randn(3, 7).bfloat16()
    parameter = torch.randn(5, 7)
    expected = parameter - 0.5 * (left.float() @ right.float())
    other = torch.ones(2)
    SGD([parameter, other], 0.5, 0.0).step_with_products([parameter, other], [ProductGradient(left, right), None])
    assert_close(parameter, expected)
    assert torch.equal(other, torch.ones(2))
