"""Rows from gradients.

A first dense layer with a bias gives rows away: the gradient of the weights of a unit is the sum over rows of its error
times the row, and the gradient of its bias is the sum of the errors. For one row, their quotient is the row itself
(Phong et al., IEEE TIFS 2018). For several rows, each unit gives a weighted mean of rows.

Other networks, and batches of several rows, are attacked by matching gradients (Zhu et al., Deep Leakage from
Gradients, NeurIPS 2019): rows and the gradients of their logits are searched whose gradient has the smallest cosine
distance to the one received (Geiping et al., Inverting Gradients, NeurIPS 2020). The attacker needs no class priors for
this.
"""

from __future__ import annotations

import copy

import numpy as np
import torch
from scipy.optimize import linear_sum_assignment
from torch import Tensor, nn

from fedul.core import Matrix, Weights
from fedul.models.weights import load_weights

ITERATIONS = 300
RATE = 0.1
MOST_RECONSTRUCTED = 16
"""Rows that are searched for; from a sum over more rows, this many."""


def first_dense_layer(module: nn.Module) -> str | None:
    """Return the name of the first layer with weights, if it is dense with a bias; else None."""
    for name, layer in module.named_modules():
        if next(layer.parameters(recurse=False), None) is None:
            continue
        return name if isinstance(layer, nn.Linear) and layer.bias is not None else None
    return None


def divide_gradients(gradient: Weights, layer: str, count: int, shape: torch.Size) -> Tensor:
    """Return rows (count, ...) from the gradients of a dense layer: of its units with the largest errors.

    Parameters
    ----------
    gradient : dict of str to Tensor
        The gradient.
    layer : str
        Name of the layer.
    count : int
        Rows to return; fewer if the layer has fewer units.
    shape : Size
        Shape of a row.
    """
    prefix = f"{layer}." if layer else ""
    of_weight, of_bias = gradient[f"{prefix}weight"].double(), gradient[f"{prefix}bias"].double()
    units = of_bias.abs().argsort(descending=True)[:count]
    errors = of_bias[units]
    return (of_weight[units] / torch.where(errors != 0, errors, torch.ones_like(errors))[:, None]).view(-1, *shape)


def match_gradients(
    module: nn.Module, weights: Weights, gradient: Weights, start: Tensor, classes: int, generator: torch.Generator
) -> Tensor:
    """Return rows (n, ...) whose gradient is most similar to the one received.

    Parameters
    ----------
    module : nn.Module
        The network.
    weights : dict of str to Tensor
        Weights at which the gradient was taken.
    gradient : dict of str to Tensor
        The gradient.
    start : Tensor of shape (n, ...)
        First guess of the rows.
    classes : int
        Number of classes.
    generator : torch.Generator
        Source of the first guess of the gradients of logits.
    """
    module = copy.deepcopy(module)
    load_weights(module, weights)
    names = [name for name, p in module.named_parameters() if p.requires_grad]
    parameters = [p for p in module.parameters() if p.requires_grad]
    wanted = torch.cat([gradient[name].flatten() for name in names])
    if not wanted.any():
        return start
    rows = start.clone().requires_grad_()
    errors = (0.1 * torch.randn((len(start), classes), generator=generator)).requires_grad_()
    optimizer = torch.optim.Adam([rows, errors], lr=RATE)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, ITERATIONS)
    for _ in range(ITERATIONS):
        optimizer.zero_grad()
        centred = errors - errors.mean(1, keepdim=True)  # the gradient of a softmax sums to 0
        found = torch.autograd.grad((module(rows) * centred).sum(), parameters, create_graph=True, allow_unused=True)
        flat = torch.cat(
            [(torch.zeros_like(p) if g is None else g).flatten() for g, p in zip(found, parameters, strict=True)]
        )
        distance = 1 - torch.nn.functional.cosine_similarity(flat, wanted, dim=0)
        distance.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        schedule.step()
    return rows.detach()


def row_errors(found: Tensor, true: Tensor, mean: Tensor, low: Tensor, high: Tensor) -> Matrix:
    """Return the distance of each row from its reconstruction, as a multiple of its distance from the mean row.

    Reconstructions are limited to the range of the values, and assigned to rows so that the total is smallest. A row
    without one counts as reconstructed by the mean row.

    Parameters
    ----------
    found : Tensor of shape (r, ...)
        Reconstructions, in any order.
    true : Tensor of shape (n, ...)
        The rows.
    mean, low, high : Tensor
        Mean, smallest and largest values of all rows.
    """
    limited = found.double().nan_to_num().clamp(low.double(), high.double()).flatten(1)
    rows = true.double().flatten(1)
    guess = (rows - mean.double().flatten()).norm(dim=1).clamp_min(1e-9)
    relative = (torch.cdist(rows, limited) / guess[:, None]).numpy()
    errors = np.ones(len(rows))
    at, chosen = linear_sum_assignment(relative)
    errors[at] = relative[at, chosen]
    return errors
