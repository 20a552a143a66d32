"""Figures that need true labels, and so exist for research data only."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from fedul.federation import Federation, Labels, Scaling, Truth
from fedul.models.weights import precision_of
from fedul.priors import Matrix


def test_error(module: nn.Module, truth: Truth, scaling: Scaling) -> tuple[float, float]:
    """Share of wrong predictions over the pooled test rows, and averaged over clients' test sets as the paper does."""
    wrong = predictions(module, truth.test_inputs, scaling) != truth.test_labels
    clients = np.unique(truth.test_clients)
    return float(wrong.mean()), float(np.mean([wrong[truth.test_clients == c].mean() for c in clients]))


test_error.__test__ = False  # type: ignore[attr-defined]  # not a test, whatever pytest thinks of its name


def validation_error(module: nn.Module, federation: Federation, truth: Truth) -> float:
    """Share of wrong predictions over all clients' held-out rows: labelled model selection, as the paper does it."""
    wrong = rows = 0
    for client in federation.clients:
        labels = truth.held_out_labels[client.name]
        found = predictions(module, client.inputs, federation.scaling, client.held_out.index)
        wrong += int((found != labels).sum())
        rows += len(labels)
    return wrong / max(rows, 1)


def calibration_error(probabilities: Matrix, labels: Labels, bins: int = 15) -> float:
    """Expected calibration error: how far confidence and share of right predictions are apart, over equal bins.

    >>> calibration_error(np.array([[0.8, 0.2], [0.3, 0.7]]), np.array([0, 1]))  # right twice, at 0.8 and 0.7
    0.25
    """
    confidence, right = probabilities.max(1), probabilities.argmax(1) == labels
    bin_of = np.minimum((confidence * bins).astype(int), bins - 1)
    gap = np.bincount(bin_of, confidence - right, minlength=bins)
    return float(np.abs(gap).sum() / len(labels))


@torch.inference_mode()
def predictions(
    module: nn.Module, inputs: Tensor, scaling: Scaling, index: Tensor | None = None, batch_size: int = 1024
) -> Labels:
    """The most probable class (n,) of the rows, or of those at `index`."""
    module.eval()
    device = next((p.device for p in module.parameters()), inputs.device)
    precision = precision_of(module)
    rows = torch.arange(len(inputs)) if index is None else index
    found: list[NDArray[np.int64]] = [np.zeros(0, np.int64)]
    found += [
        module(scaling(inputs[part].to(device)).to(precision)).argmax(1).cpu().numpy()
        for part in torch.split(rows, batch_size)
    ]
    return np.concatenate(found)
