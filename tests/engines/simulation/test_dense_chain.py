"""Chains of dense layers are differentiated by hand as autograd does it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils._python_dispatch import TorchDispatchMode

from fedul.engines.simulation.dense_chain import DenseChain, DensePass, dense_chain
from fedul.methods.consistency import consistency_loss
from fedul.methods.operations import cross_entropies, log_softmax, softmax
from fedul.methods.task import Step

CLIENTS, ROWS = 3, 5


def build(*activations: nn.Module, outputs: int = 4, bias: bool = True) -> nn.Sequential:
    torch.manual_seed(0)
    widths = [6, *(20 for _ in activations)]
    pairs = [(nn.Linear(a, 20, bias=bias), f) for a, f in zip(widths, activations, strict=False)]
    return nn.Sequential(*(part for pair in pairs for part in pair), nn.Linear(widths[-1], outputs, bias=bias)).double()


def tied() -> nn.Module:
    module = nn.Sequential(nn.Linear(6, 6), nn.Tanh(), nn.Linear(6, 6), nn.ReLU(), nn.Linear(6, 4)).double()
    module[2].weight = module[0].weight
    return module


def frozen() -> nn.Module:
    module = build(nn.ReLU(), nn.Tanh())
    for name in ("0.weight", "0.bias", "2.bias"):
        module.get_parameter(name).requires_grad_(False)
    return module


MODULES: dict[str, Callable[[], nn.Module]] = {
    "linear": build,
    "wide outputs": lambda: build(outputs=18),
    "relu": lambda: build(nn.ReLU(), nn.ReLU()),
    "relu in place": lambda: build(nn.ReLU(inplace=True), nn.SiLU(inplace=True), nn.ELU(inplace=True)),
    "other activations": lambda: build(nn.GELU(), nn.Softplus(), nn.Sigmoid()),
    "no bias": lambda: build(nn.ReLU(), bias=False),
    "activation last": lambda: nn.Sequential(build(nn.Tanh()), nn.LeakyReLU()),
    "activation first": lambda: nn.Sequential(nn.ReLU(inplace=True), build()),
    "tied": tied,
    "frozen": frozen,
    "rows with two dimensions": lambda: nn.Sequential(
        nn.Linear(3, 2), nn.ReLU(), nn.Flatten(), nn.Linear(4, 4)
    ).double(),
}


def chain_of(module: nn.Module) -> tuple[DenseChain, dict[str, Tensor], list[str]]:
    """Return the chain, weights that differ by client, and the names of the trainable ones."""
    chain = dense_chain(module)
    assert chain is not None
    trainable = [name for name, p in module.named_parameters() if p.requires_grad]
    weights = {name: p.detach() for name, p in module.named_parameters()}
    for name in trainable:
        noise = torch.randn(CLIENTS, *weights[name].shape, dtype=torch.float64)
        weights[name] = (weights[name] + 0.1 * noise).requires_grad_()
    return chain, weights, trainable


def random_step(shape: tuple[int, ...] = (6,)) -> Step:
    torch.manual_seed(1)
    inputs, direction = (torch.randn(CLIENTS, ROWS, *shape, dtype=torch.float64) for _ in range(2))
    weight = torch.rand(CLIENTS, ROWS, dtype=torch.float64)
    return Step(inputs, {"label": torch.randint(4, (CLIENTS, ROWS)), "direction": direction}, {}, weight)


@pytest.mark.parametrize("name", MODULES)
def test_gradients_without_a_graph_are_those_of_autograd(name: str) -> None:
    module = MODULES[name]().double()
    chain, weights, trainable = chain_of(module)
    step = random_step((2, 3) if name == "rows with two dimensions" else (6,))
    before = step.inputs.clone()

    def loss(predict: Callable[[Tensor], Tensor]) -> Tensor:
        first, second = predict(step.inputs), predict(0.5 * step.inputs)  # a loss may predict more than once
        losses = cross_entropies(first, step.targets["label"]) + second.tanh().square().sum(-1)
        return step.mean(losses).sum()

    passing = DensePass(chain, weights, trainable, CLIENTS)
    found = passing.gradients(loss(passing.predict))

    def by_client(inputs: Tensor) -> Tensor:
        rows = [
            torch.func.functional_call(
                module, {key: w[c] if key in trainable else w for key, w in weights.items()}, (inputs[c].clone(),)
            )
            for c in range(CLIENTS)
        ]
        return torch.stack(rows)

    expected = torch.autograd.grad(loss(by_client), [weights[key] for key in trainable])
    for ours, theirs in zip(found, expected, strict=True):
        assert ours is not None
        torch.testing.assert_close(ours, theirs, rtol=1e-11, atol=1e-12)
    assert torch.equal(step.inputs, before)


def test_a_loss_with_derivatives_of_the_inputs_has_the_gradients_of_autograd() -> None:
    chain, weights, trainable = chain_of(build(nn.ReLU(), nn.Tanh()))
    step = random_step()

    def loss(predict: Callable[[Tensor], Tensor]) -> Tensor:
        logits = predict(step.inputs)
        return (logits.square().sum(-1) + consistency_loss(predict, step, logits, 0.5)).mean(-1).sum()

    passing = DensePass(chain, weights, trainable, CLIENTS)
    found = passing.gradients(loss(passing.predict))
    expected = torch.autograd.grad(loss(lambda inputs: chain(weights, inputs)), [weights[name] for name in trainable])
    for ours, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-11)


def test_a_penalty_on_input_gradients_has_second_derivatives() -> None:
    chain, weights, trainable = chain_of(build(nn.Tanh()))

    def loss(predict: Callable[[Tensor], Tensor]) -> Tensor:
        inputs = random_step().inputs.requires_grad_()
        logits = predict(inputs)
        (slope,) = torch.autograd.grad(logits.square().sum(), inputs, create_graph=True)
        return slope.square().sum() + predict(inputs.detach()).sum()

    passing = DensePass(chain, weights, trainable, CLIENTS)
    found = passing.gradients(loss(passing.predict))

    def plain(inputs: Tensor) -> Tensor:
        hidden = (inputs @ weights["0.weight"].mT + weights["0.bias"][:, None]).tanh()
        return hidden @ weights["2.weight"].mT + weights["2.bias"][:, None]

    expected = torch.autograd.grad(loss(plain), [weights[name] for name in trainable])
    for ours, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-11)


def test_a_probe_of_the_inputs_computes_no_gradient_of_weights() -> None:
    chain, weights, trainable = chain_of(build(nn.ReLU(), nn.Tanh()))
    step = random_step()
    probe = torch.zeros_like(step.inputs, requires_grad=True)
    distance = DensePass(chain, weights, trainable, CLIENTS).predict(step.inputs + probe).square().sum()
    products: list[tuple[int, ...]] = []

    class Record(TorchDispatchMode):
        def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            result = function(*args, **(kwargs or {}))
            if function is torch.ops.aten.bmm.default:
                products.append(tuple(result.shape))
            return result

    with Record():
        torch.autograd.grad(distance, probe)
    # One for each layer, with the gradient of its inputs; the first layer of the graph is the last one.
    assert products == [(CLIENTS, 20, ROWS), (CLIENTS, ROWS, 20), (CLIENTS, ROWS, 6)]


def test_the_order_of_clients_does_not_change_their_gradients() -> None:
    chain, weights, trainable = chain_of(build(nn.ReLU()))
    step, order = random_step(), torch.tensor([2, 0, 1])

    def gradients(weights: dict[str, Tensor], inputs: Tensor, labels: Tensor) -> list[Tensor | None]:
        passing = DensePass(chain, weights, trainable, CLIENTS)
        return passing.gradients(cross_entropies(passing.predict(inputs), labels).sum())

    before = gradients(weights, step.inputs, step.targets["label"])
    moved = {name: w[order].detach().requires_grad_() for name, w in weights.items()}
    after = gradients(moved, step.inputs[order], step.targets["label"][order])
    for ours, theirs in zip(before, after, strict=True):
        assert ours is not None
        torch.testing.assert_close(ours[order], theirs, rtol=1e-12, atol=1e-13)


def test_rows_of_weight_zero_do_not_change_gradients() -> None:
    chain, weights, trainable = chain_of(build(nn.ReLU()))
    step = random_step()

    def gradients(rows: int) -> list[Tensor | None]:
        weight = torch.zeros(CLIENTS, rows, dtype=torch.float64)
        weight[:, :2] = 0.5
        passing = DensePass(chain, weights, trainable, CLIENTS)
        losses = cross_entropies(passing.predict(step.inputs[:, :rows]), step.targets["label"][:, :rows])
        return passing.gradients((losses * weight).sum())

    for ours, theirs in zip(gradients(2), gradients(ROWS), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-13)


def test_a_weight_that_the_loss_ignores_has_no_gradient() -> None:
    chain, weights, trainable = chain_of(build(nn.ReLU()))
    passing = DensePass(chain, weights, trainable, CLIENTS)
    predicted = passing.predict(random_step().inputs)
    ignored = passing.predict(random_step().inputs)
    assert all(g is not None for g in passing.gradients(predicted.sum()))
    assert ignored.requires_grad
    passing.predict(random_step().inputs)
    outside = torch.ones((), requires_grad=True)
    assert passing.gradients(outside * 2) == [None] * len(trainable)


def test_transposed_probabilities_are_those_over_the_last_dimension() -> None:
    logits = torch.randn(CLIENTS, ROWS, 4, dtype=torch.float64)
    logits[0, 0, 1] = -torch.inf  # a class that is not at the client
    labels = torch.randint(2, 4, (CLIENTS, ROWS))
    torch.testing.assert_close(softmax(logits), logits.softmax(-1))
    torch.testing.assert_close(log_softmax(logits), logits.log_softmax(-1))
    expected = functional.cross_entropy(logits.flatten(0, 1), labels.flatten(), reduction="none")
    torch.testing.assert_close(cross_entropies(logits, labels).flatten(), expected)
    finite = torch.randn(2, 3, 4, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradgradcheck(lambda z: cross_entropies(z, labels[:2, :3]), (finite,))
    assert torch.autograd.gradgradcheck(log_softmax, (finite,))
