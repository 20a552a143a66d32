"""Small studies in float64, and what it takes to look at a method's loss and gradient on them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from fedul.federation import Federation, UnlabeledSets
from fedul.methods.base import Method, Step, Task, predicted
from fedul.models.mlp import mlp
from fedul.priors import Matrix
from fedul.truth import Labels, Study, Truth

from ..worlds import random_priors

CENTRES = np.array([[1.5, 0.0], [0.0, 1.5], [-1.5, -1.0]])
NAMES = ("north", "southern")


def drawn_rows(generator: np.random.Generator, priors: Matrix, sets: Labels) -> tuple[Matrix, Labels]:
    """Gaussian rows (n, 2) around a centre for each class, and the classes, drawn by the priors of each row's set."""
    labels = np.array([generator.choice(len(CENTRES), p=row) for row in priors[sets]])
    return CENTRES[labels] + generator.normal(size=(len(sets), 2)), labels


def study_of(
    priors: Callable[[np.random.Generator], Matrix] | None = None,
    *,
    rows: int = 48,
    held_out: float = 0.2,
    test_prior: Matrix | None = None,
) -> Study:
    """Two clients of three classes, with the labels of all rows beside them."""
    clients, train_labels, held_out_labels = [], {}, {}
    for name in NAMES:
        generator = np.random.default_rng(len(name))
        table = random_priors(generator, 4, 3, purity=0.5) if priors is None else priors(generator)
        sets = np.arange(rows) % len(table)
        inputs, labels = drawn_rows(generator, table, sets)
        client = UnlabeledSets.from_arrays(name, inputs, sets, table, held_out=held_out)
        clients.append(client)
        train_labels[name], held_out_labels[name] = labels[client.train.index], labels[client.held_out.index]
    inputs, labels = drawn_rows(np.random.default_rng(0), np.full((1, 3), 1 / 3), np.zeros(60, np.int64))
    truth = Truth(torch.from_numpy(inputs), labels, np.arange(60) % 2, train_labels, held_out_labels)
    return Study(Federation(clients, "abc", test_prior), truth)


def network(shape: tuple[int, ...] = (2,), classes: int = 3) -> nn.Module:
    return mlp(shape, classes).double()


def seeded_network(seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    return network()


def looked_at(method: Method, task: Task, module: nn.Module, directive: Mapping[str, float] | None = None) -> Task:
    """The task of a round that begins with the weights as they are."""
    with torch.no_grad():
        targets, _ = method.begin_round(task.targets, predicted(module, task), directive or {}, {})
    return replace(task, targets=targets)


def gradient_of(method: Method, module: nn.Module, step: Step) -> Tensor:
    """The gradient of the loss in all weights, as one vector."""
    return flat_gradient(method.loss(module, step), module)


def flat_gradient(loss: Tensor, module: nn.Module) -> Tensor:
    return torch.cat([g.flatten() for g in torch.autograd.grad(loss, list(module.parameters()))])


def largest_difference(one: Mapping[str, Tensor], other: Mapping[str, Tensor]) -> float:
    return max(float((one[name] - other[name]).abs().max()) for name in one)


def padded(step: Step, junk: int = 3) -> Step:
    """The step with some rows more, which count for nothing."""
    again = torch.arange(len(step.inputs) + junk) % len(step.inputs)
    inputs = step.inputs[again].clone()
    inputs[-junk:] = 7.0
    weight = torch.full((len(again),), 1 / len(step.inputs), dtype=torch.float64)
    weight[-junk:] = 0
    return Step(inputs, {name: values[again] for name, values in step.targets.items()}, step.shared, weight)


SETTINGS: dict[str, Any] = {"rounds": 3, "batch_size": 8, "model": network, "select": "last", "seed": 5}
"""Of a short run in float64."""
