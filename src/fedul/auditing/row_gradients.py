"""Gradients of the rows of a client, as an attacker computes them who knows the rows, the priors and the weights."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from fedul.core import TaskSpec, UnlabeledSets, Weights
from fedul.errors import InputError
from fedul.methods.base import Method
from fedul.methods.fedul import FedUL
from fedul.methods.row_private import make_row_private
from fedul.methods.task import Task, predict_task
from fedul.models.weights import load_weights
from fedul.privacy.dp_sgd.clipping import clip_factors
from fedul.privacy.dp_sgd.functional import FunctionalGradients

MOST_COORDINATES = 400
"""Coordinates of the gradient that an attack uses: those in which canaries differ most."""


def attacked_method(method: Method) -> Method:
    """Return the terms of a method's loss that are sums over rows; FedUL if it has none.

    The terms of single rows are what an attacker can compute for each row. Terms of whole sets disturb the attack.
    """
    try:
        return make_row_private(method)[0]
    except InputError:
        return FedUL()


@dataclass(frozen=True, eq=False)
class RowGradientModel:
    """Computes the gradients of the rows of clients.

    Parameters
    ----------
    module : nn.Module
        The network; a copy that only this object uses.
    method : Method
        The loss, a sum over rows.
    spec : TaskSpec
        What all clients share.
    clip : float or None
        Largest norm of the gradient of a row; None if gradients are not clipped.
    """

    module: nn.Module
    method: Method
    spec: TaskSpec
    clip: float | None

    @classmethod
    def of(cls, module: nn.Module, method: Method, spec: TaskSpec, clip: float | None) -> RowGradientModel:
        """Return the model for a network that may be used elsewhere."""
        return cls(copy.deepcopy(module).train(), attacked_method(method), spec, clip)

    def task(self, client: UnlabeledSets) -> Task:
        """Return the rows of a client with their targets."""
        return self.method.task(client, self.spec)

    def gradients(
        self,
        task: Task,
        positions: Tensor,
        received: Weights,
        weights: Weights,
        directive: Mapping[str, float],
        coordinates: Tensor | None = None,
    ) -> Tensor:
        """Return the gradients (n, d) of some rows of a task.

        Parameters
        ----------
        task : Task
            Rows of a client.
        positions : Tensor of shape (n,)
            Which of them.
        received : dict of str to Tensor
            Weights at the start of the round, from which some methods compute targets.
        weights : dict of str to Tensor
            Weights at which the gradients are taken.
        directive : mapping of str to float
            Values of the method in this round.
        coordinates : Tensor of shape (d,), optional
            Coordinates of the gradient; by default all.
        """
        if self.method.needs_logits(directive):
            load_weights(self.module, received)
            with torch.no_grad():
                logits = predict_task(self.module, task)
            targets, _ = self.method.begin_round(task.targets, logits, directive, {})
            task = Task(task.inputs, task.index, targets, task.scaling, trained=task.trained)
        load_weights(self.module, weights)
        network = FunctionalGradients(self.module)
        _, place, repeats = torch.unique(task.index[: len(task)], return_inverse=True, return_counts=True)
        terms = repeats[place]  # terms of the loss that the row of each term has
        found = []
        for at in torch.split(positions, network.chunk):
            step = task.step(at)
            rows = network.rows(self.method.loss(network.predict, step) * len(at))
            if rows is None:
                raise InputError("this method has no gradients of rows.")
            values = torch.cat([each.flatten(1) for each in rows.gradients], 1)
            if self.clip is not None:  # a private step has one of the terms of a row, with their number as its weight
                values = values * clip_factors(rows.squared_norms() * terms[at] ** 2, self.clip)[:, None]
            values = values if coordinates is None else values[:, coordinates]
            found.append(values.detach().double())
        return torch.cat(found)

    def flatten(self, tensors: Weights) -> Tensor:
        """Return the values of all trained parameters as one vector."""
        return torch.cat([tensors[name].flatten() for name, p in self.module.named_parameters() if p.requires_grad])


def midpoint(weights: Weights, change: Weights) -> Weights:
    """Return the weights halfway through a change: on average, steps of a round are taken there."""
    return {name: t + change[name] / 2 if name in change else t for name, t in weights.items()}
