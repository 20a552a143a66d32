"""Tasks, steps and gradients of methods in float64."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from fedul._utils.randomness import torch_generator
from fedul.core import Federation, PriorScope, Study, TaskSpec, UnlabeledSets
from fedul.methods.base import Method
from fedul.methods.task import Step, Task, predict_task

from ..factories import dense_network, gaussian_rows, truth_of_training_rows
from ..worlds import Client, World, random_priors, random_world

SETTINGS: dict[str, Any] = {"rounds": 3, "batch_size": 8, "model": dense_network, "select": "last", "seed": 5}
"""Settings of a short run in float64."""


def with_priors_of(study: Study, of: str) -> Study:
    """Return the study with another declaration of what its priors speak of."""
    clients = [replace(client, prior_scope=PriorScope(of)) for client in study.federation.clients]
    return replace(study, federation=replace(study.federation, clients=clients))


def task_of_round(method: Method, task: Task, module: nn.Module, directive: Mapping[str, float] | None = None) -> Task:
    """Return the task after `begin_round` with the current weights."""
    with torch.no_grad():
        targets, _ = method.begin_round(task.targets, predict_task(module, task), directive or {}, {})
    return replace(task, targets=targets)


def gradient_of(method: Method, module: nn.Module, step: Step) -> Tensor:
    """Return the gradient of the loss of a step in all weights, as one vector."""
    return flat_gradient(method.loss(module, step), module)


def flat_gradient(loss: Tensor, module: nn.Module) -> Tensor:
    """Return the gradient of a loss in all weights, as one vector."""
    return torch.cat([g.flatten() for g in torch.autograd.grad(loss, list(module.parameters()))])


def padded(step: Step, junk: int = 3) -> Step:
    """Return the step with more rows, of weight zero."""
    again = torch.arange(len(step.inputs) + junk) % len(step.inputs)
    inputs = step.inputs[again].clone()
    inputs[-junk:] = 7.0
    weight = torch.full((len(again),), 1 / len(step.inputs), dtype=torch.float64)
    weight[-junk:] = 0
    return Step(inputs, {name: values[again] for name, values in step.targets.items()}, step.shared, weight)


def one_row_per_set(*names: str) -> Study:
    """Return a study in which every row is a set of one class."""
    clients, known = [], {}
    for name in names:
        generator = np.random.default_rng(len(name))
        inputs, labels = gaussian_rows(generator, np.full((1, 3), 1 / 3), np.zeros(30, np.int64))
        clients.append(UnlabeledSets.from_arrays(name, inputs, np.arange(30), np.eye(3)[labels], held_out=0))
        known[name] = labels
    return Study(Federation(clients, "abc", np.array([0.5, 0.2, 0.3])), truth_of_training_rows(known, 2))


def world_of_equal_sets(seed: int, classes: int, *sets: int, zeros: float = 0.0, purity: float = 0.0) -> World:
    """Return a random world with these numbers of sets at its clients, each of the same size."""
    generator = np.random.default_rng(seed)
    world = random_world(generator, classes, [1])
    priors = [random_priors(generator, m, classes, zeros=zeros, purity=purity) for m in sets]
    return replace(world, clients=[Client(table, np.full(len(table), 1 / len(table))) for table in priors])


def population_loss(method: Method, world: World, client: Client, logits: Tensor) -> Tensor:
    """Return the expected loss of a client of a world at the start of a round, for logits (X, K) of the inputs.

    The sets of the client must have the same size.
    """
    inputs, sets = len(world.likelihood), len(client.priors)
    number = np.tile(np.arange(float(inputs)), sets)[:, None]  # every input once in every set
    rows = UnlabeledSets.from_arrays("a", number, np.repeat(np.arange(sets), inputs), client.priors, held_out=0)
    task = method.task(rows, TaskSpec("abcdef"[: logits.shape[1]], world.test_prior, (1,)))

    def predict(numbers: Tensor) -> Tensor:
        return logits[numbers[:, 0].long()]

    if method.needs_logits({}):
        targets, _ = method.begin_round(task.targets, predict_task(predict, task).detach(), {}, {})
        task = replace(task, targets=targets)
    step = task.step(torch.arange(len(number)))
    drawn = {} if task.draw is None else task.draw(len(number), torch_generator(0))
    weight = torch.from_numpy(world.joint(client).T.ravel())
    return method.loss(predict, replace(step, targets={**step.targets, **drawn}, weight=weight))


def population_gradient(method: Method, world: World, client: Client, logits: Tensor) -> Tensor:
    """Return the gradient (X, K) of `population_loss` in the logits."""
    free = logits.clone().requires_grad_()
    return torch.autograd.grad(population_loss(method, world, client, free), free)[0]


def random_logits(world: World, seed: int) -> Tensor:
    """Return random logits (X, K)."""
    return torch.from_numpy(np.random.default_rng(seed).normal(size=world.likelihood.shape))
