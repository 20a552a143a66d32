"""Gradients that come back through a flattening keep the layout of the images, and are the same numbers."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from fedul.models import build
from fedul.models.channels_last import ChannelsLast, keep_channels_last


class FlattensItself(nn.Module):
    """A network that flattens by a function, in one of the ways that people write."""

    def __init__(self, flatten: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.conv, self.pool, self.head = nn.Conv2d(2, 5, 3), nn.MaxPool2d(2), nn.Linear(45, 3)
        self.flatten = flatten

    def forward(self, inputs: Tensor) -> Tensor:
        logits: Tensor = self.head(self.flatten(self.pool(self.conv(inputs))))
        return logits


WAYS: dict[str, Callable[[Tensor], Tensor]] = {
    "method": lambda x: x.flatten(1),
    "function": lambda x: torch.flatten(x, 1),
    "last dimension": lambda x: x.flatten(1, -1),
    "named": lambda x: x.flatten(start_dim=1),
    "layer": nn.Flatten(),
}


def gradients(network: nn.Module, module: nn.Module, inputs: Tensor) -> list[Tensor]:
    """Return the gradients of the weights of a module, given a network that uses them."""
    losses = network(inputs).log_softmax(-1).square().sum()
    return list(torch.autograd.grad(losses, list(module.parameters())))


@pytest.mark.parametrize("name", ["small-cnn", "paper-cnn", "resnet9"])
def test_gradients_are_exactly_those_of_the_network(name: str) -> None:
    shape = (3, 32, 32) if name == "resnet9" else (1, 28, 28)
    module = build(name, shape, 4, 0).to(memory_format=torch.channels_last)
    inputs = torch.rand(3, *shape, generator=torch.Generator().manual_seed(0))
    for ours, theirs in zip(
        gradients(keep_channels_last(module), module, inputs), gradients(module, module, inputs), strict=True
    ):
        assert torch.equal(ours, theirs)


@pytest.mark.parametrize("way", WAYS)
def test_every_way_to_flatten_gives_the_same_gradients(way: str) -> None:
    torch.manual_seed(0)
    module = FlattensItself(WAYS[way]).to(memory_format=torch.channels_last)
    network, inputs = keep_channels_last(module), torch.randn(4, 2, 8, 8)
    assert isinstance(network, ChannelsLast)
    for ours, theirs in zip(gradients(network, module, inputs), gradients(module, module, inputs), strict=True):
        assert torch.equal(ours, theirs)


@pytest.mark.parametrize("way", [name for name in WAYS if name != "named"])
def test_the_gradient_of_images_has_channels_last(way: str) -> None:
    module = FlattensItself(WAYS[way]).to(memory_format=torch.channels_last)
    layouts: list[bool] = []

    def record(gradient: Tensor) -> None:
        layouts.append(gradient.is_contiguous(memory_format=torch.channels_last) and not gradient.is_contiguous())

    module.pool.register_forward_hook(lambda _layer, _inputs, images: images.register_hook(record) and None)
    inputs = torch.randn(4, 2, 8, 8)
    gradients(module, module, inputs)
    gradients(keep_channels_last(module), module, inputs)
    assert layouts == [False, True]


def test_flattening_has_second_derivatives() -> None:
    torch.manual_seed(0)
    module = FlattensItself(nn.Flatten()).double().to(memory_format=torch.channels_last)
    network = keep_channels_last(module)
    inputs = torch.randn(2, 2, 8, 8, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(network, inputs)
    assert torch.autograd.gradgradcheck(lambda x: network(x).tanh(), inputs)


def test_a_network_with_channels_first_is_left_as_it_is() -> None:
    module = build("small-cnn", (1, 28, 28), 3, 0)
    assert keep_channels_last(module) is module
    dense = build("mlp", (1, 28, 28), 3, 0)
    assert keep_channels_last(dense) is dense


def test_predictions_without_gradients_are_those_of_the_network() -> None:
    module = build("small-cnn", (1, 28, 28), 3, 0).to(memory_format=torch.channels_last)
    inputs = torch.rand(3, 1, 28, 28)
    with torch.no_grad():
        assert torch.equal(keep_channels_last(module)(inputs), module(inputs))
