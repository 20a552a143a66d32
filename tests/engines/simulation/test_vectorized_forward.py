"""Networks that can be vectorized; all others train in a loop."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from fedul.engines.simulation.dense_chain import DenseChain, Linear
from fedul.engines.simulation.vectorized_forward import vectorized_forward
from fedul.models import build
from fedul.models.weights import weights_of

from ...factories import IMAGE, ResidualNetwork, random_study
from ...worlds import repeatable, seeds
from .comparison import Case, assert_near, assert_same_result

TABLE = random_study(5, clients=4, rows=(3, 20), shape=(3,))
IMAGES = random_study(5, clients=4, rows=(3, 20), shape=IMAGE)
DIGITS = random_study(5, clients=3, rows=(3, 9), shape=(1, 28, 28))


def made(build_module: Callable[[], nn.Module]) -> Callable[[], nn.Module]:
    """The same weights every time."""

    def model() -> nn.Module:
        torch.manual_seed(0)
        return build_module().double()

    return model


class Tied(nn.Module):
    """Two layers with the same weights, and a scale that several uses share."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.again, self.last = nn.Linear(3, 3), nn.Linear(3, 3), nn.Linear(3, 3)
        self.again.weight = self.first.weight
        self.scale = nn.Parameter(torch.ones(3))

    def forward(self, inputs: Tensor) -> Tensor:
        return self.last(self.again(self.first(inputs).tanh() * self.scale).tanh() * self.scale)


def tied_chain() -> nn.Module:
    chain = nn.Sequential(nn.Linear(3, 3), nn.Tanh(), nn.Linear(3, 3), nn.Tanh(), nn.Linear(3, 3))
    chain[2].weight = chain[0].weight
    return chain


def frozen(*names: str) -> nn.Module:
    chain = nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 5), nn.Tanh(), nn.Linear(5, 3))
    for name in names:
        chain.get_parameter(name).requires_grad_(False)
    return chain


def frozen_convolution() -> nn.Module:
    module = ResidualNetwork()
    module.get_parameter("convolution.weight").requires_grad_(False)
    return module


class Unused(nn.Module):
    """A network with a weight that its predictions do not depend on."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.aside = nn.Linear(3, 3), nn.Parameter(torch.ones(2))

    def forward(self, inputs: Tensor) -> Tensor:
        return self.layer(inputs)


def chain(activation: nn.Module, *, bias: bool = True) -> Callable[[], nn.Module]:
    return lambda: nn.Sequential(nn.Linear(3, 6, bias=bias), activation, nn.Linear(6, 3, bias=bias))


VECTORIZED: dict[str, tuple[Any, Callable[[], nn.Module]]] = {
    "one layer": (TABLE, lambda: nn.Linear(3, 3)),
    "chain in a chain": (
        TABLE,
        lambda: nn.Sequential(nn.Flatten(), nn.Sequential(nn.Linear(3, 4), nn.Tanh()), nn.Linear(4, 3)),
    ),
    "without bias": (TABLE, chain(nn.Tanh(), bias=False)),
    "in place": (TABLE, chain(nn.ReLU(inplace=True))),
    "leaky": (TABLE, chain(nn.LeakyReLU(0.2))),
    "gelu": (TABLE, chain(nn.GELU())),
    "silu": (TABLE, chain(nn.SiLU())),
    "elu": (TABLE, chain(nn.ELU())),
    "softplus": (TABLE, chain(nn.Softplus())),
    "sigmoid": (TABLE, chain(nn.Sigmoid())),
    "one activation twice": (TABLE, lambda: nn.Sequential(nn.Linear(3, 3), t := nn.Tanh(), nn.Linear(3, 3), t)),
    "one layer twice": (TABLE, lambda: nn.Sequential(t := nn.Linear(3, 3), nn.Tanh(), t)),
    "tied chain": (TABLE, tied_chain),
    "tied": (TABLE, Tied),
    "unused weight": (TABLE, Unused),
    "frozen first layer": (TABLE, lambda: frozen("0.weight", "0.bias")),
    "frozen middle": (TABLE, lambda: frozen("2.weight")),
    "frozen biases": (TABLE, lambda: frozen("0.bias", "4.bias")),
    "frozen convolution": (IMAGES, frozen_convolution),
    "layer norm": (TABLE, lambda: nn.Sequential(nn.Linear(3, 6), nn.LayerNorm(6), nn.Tanh(), nn.Linear(6, 3))),
    "dense along rows": (IMAGES, lambda: nn.Sequential(nn.Linear(5, 2), nn.Tanh(), nn.Flatten(), nn.Linear(12, 3))),
    "residual convolution": (IMAGES, ResidualNetwork),
    "mlp": (TABLE, lambda: build("mlp", (3,), 3, seed=0)),
    "small-cnn": (DIGITS, lambda: build("small-cnn", (1, 28, 28), 3, seed=0)),
}


@pytest.mark.parametrize("name", VECTORIZED)
@pytest.mark.parametrize("algorithm", ["fedprox", "scaffold"])
def test_a_network_without_state_is_vectorized(name: str, algorithm: str) -> None:
    study, model = VECTORIZED[name]
    case = Case(study, algorithm=(algorithm, {}), model=made(model), settings={"batch_size": 5, "l1": 1e-3})
    # Adam divides by the size of a gradient, so rounding counts more where that is almost 0.
    assert_same_result(case.vectorized(), case.loop(), tolerance=1e-8)


class Looking(nn.Module):
    """A network that looks at values in Python."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 3)

    def forward(self, inputs: Tensor) -> Tensor:
        logits: Tensor = self.layer(inputs)
        return logits if logits.sum() > 0 else 2 * logits


class Centred(nn.Module):
    """A network in which a row's prediction depends on the other rows."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 3)

    def forward(self, inputs: Tensor) -> Tensor:
        logits: Tensor = self.layer(inputs)
        return logits - logits.mean(0)


class Locked(nn.Module):
    """A network that cannot be copied."""

    def __init__(self, *layers: nn.Module) -> None:
        super().__init__()
        self.layers, self.lock = nn.Sequential(*layers), threading.Lock()

    def forward(self, inputs: Tensor) -> Tensor:
        with self.lock:
            return self.layers(inputs)


def between(*layers: nn.Module) -> nn.Sequential:
    return nn.Sequential(nn.Linear(3, 6), *layers, nn.Tanh(), nn.Linear(6, 3))


def with_forward_hook() -> nn.Module:
    module = between()
    module[0].register_forward_hook(lambda layer, inputs, output: output + 1)
    return module


def with_forward_pre_hook() -> nn.Module:
    module = between()
    module[2].register_forward_pre_hook(lambda layer, inputs: (2 * inputs[0],))
    return module


def with_backward_hook() -> nn.Module:
    module = between()
    module[2].register_full_backward_hook(lambda layer, before, after: (2 * before[0],))
    return module


def with_hook_on_a_weight() -> nn.Module:
    module = between()
    module[0].weight.register_hook(lambda gradient: gradient.clamp(-0.01, 0.01))
    return module


LOOPED: dict[str, Callable[[], nn.Module]] = {
    "dropout": lambda: between(nn.Dropout(0.5)),
    "dropout given in eval mode": lambda: between(nn.Dropout(0.5)).eval(),
    "batch norm": lambda: between(nn.BatchNorm1d(6)),
    "batch norm given in eval mode": lambda: between(nn.BatchNorm1d(6)).eval(),
    "batch norm without statistics": lambda: between(nn.BatchNorm1d(6, track_running_stats=False)),
    "rows that depend on others": Centred,
    "looks at values": Looking,
    "cannot be copied": lambda: Locked(nn.Linear(3, 3)),
    "forward hook": with_forward_hook,
    "forward pre-hook": with_forward_pre_hook,
    "backward hook": with_backward_hook,
    "hook on a weight": with_hook_on_a_weight,
}


@pytest.mark.parametrize("mode", ["auto", "vectorized"])
@pytest.mark.parametrize("name", LOOPED)
def test_a_network_that_cannot_be_vectorized_trains_in_the_loop(name: str, mode: str) -> None:
    case = Case(TABLE, ("fedpl", {}), model=made(LOOPED[name]), settings={"batch_size": 5})
    store = case.store()
    found = case.run(case.engine(store, engine_mode=mode), store)
    assert_same_result(found, case.loop(), 0.0)


@pytest.mark.parametrize("mode", ["auto", "loop", "vectorized"])
def test_convolutions_that_cannot_be_copied_can_be_trained(mode: str) -> None:
    module = made(lambda: Locked(nn.Conv2d(1, 2, 3), nn.Flatten(), nn.Linear(24, 3)))
    case = Case(IMAGES, model=module)
    store = case.store()
    found = case.run(case.engine(store, engine_mode=mode), store)
    plain = made(lambda: nn.Sequential(nn.Conv2d(1, 2, 3), nn.Flatten(), nn.Linear(24, 3)))
    expected = Case(IMAGES, model=plain).loop()
    assert_near({name.removeprefix("layers."): t for name, t in found.weights.items()}, expected.weights, 1e-12)


@settings(repeatable, max_examples=20)
@given(seeds, st.integers(1, 4), st.integers(1, 5), st.integers(1, 4), st.integers(1, 4))
def test_a_dense_layer_has_the_gradients_of_finite_differences(
    seed: int, clients: int, rows: int, columns: int, outputs: int
) -> None:
    generator = torch.Generator().manual_seed(seed)
    inputs, weight, bias = (
        torch.randn(shape, generator=generator, dtype=torch.float64).requires_grad_()
        for shape in ((clients, rows, columns), (clients, outputs, columns), (clients, outputs))
    )
    layer = DenseChain([Linear("weight", "bias")])

    def outputs_of(inputs: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        return layer({"weight": weight, "bias": bias}, inputs)

    assert torch.autograd.gradcheck(outputs_of, (inputs, weight, bias))
    assert torch.autograd.gradgradcheck(outputs_of, (inputs, weight, bias))


@pytest.mark.parametrize(
    ("model", "shape"),
    [(chain(nn.Tanh()), (3,)), (chain(nn.Tanh(), bias=False), (3,)), (Tied, (3,)), (ResidualNetwork, IMAGE)],
)
def test_predictions_and_gradients_of_every_client_are_those_of_the_network_with_its_weights(
    model: Callable[[], nn.Module], shape: tuple[int, ...]
) -> None:
    module = made(model)()
    forward = vectorized_forward(module, shape)
    assert forward is not None
    start = {name: weights_of(module)[name] for name, _ in module.named_parameters()}
    weights = {
        name: torch.stack([tensor + 0.1 * torch.randn_like(tensor) for _ in range(3)]).requires_grad_()
        for name, tensor in start.items()
    }
    inputs = torch.randn(3, 4, *shape, dtype=torch.float64)
    logits = forward(weights, inputs)
    gradients = dict(zip(weights, torch.autograd.grad(logits.square().sum(), list(weights.values())), strict=True))
    for c in range(3):
        module.load_state_dict({name: tensor[c].detach() for name, tensor in weights.items()}, strict=False)
        alone = module(inputs[c])
        torch.testing.assert_close(logits[c], alone, rtol=1e-12, atol=1e-12)
        expected = torch.autograd.grad(alone.square().sum(), list(module.parameters()))
        for (name, _), gradient in zip(module.named_parameters(), expected, strict=True):
            torch.testing.assert_close(gradients[name][c], gradient, rtol=1e-11, atol=1e-11)
