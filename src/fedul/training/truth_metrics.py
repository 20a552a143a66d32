"""Metrics that need true labels, and so exist for research data only."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from fedul.config import TrainConfig
from fedul.core import PREDICT_BATCH, Federation, Labels, Matrix, Scaling, Study, Truth, gather_rows
from fedul.models.weights import precision_of


def test_error(module: nn.Module, truth: Truth, scaling: Scaling) -> tuple[float, list[float]]:
    """Return the share of wrong predictions over all test rows, and over those of each client that has any."""
    is_wrong = predictions(module, truth.test_inputs, scaling) != truth.test_labels
    rows = np.bincount(truth.test_clients)
    by_client = np.bincount(truth.test_clients, is_wrong)[rows > 0] / rows[rows > 0]
    return float(is_wrong.mean()), by_client.tolist()


test_error.__test__ = False  # type: ignore[attr-defined]  # pytest takes it for a test because of its name


def held_out_error(module: nn.Module, federation: Federation, truth: Truth) -> float:
    """Return the share of wrong predictions over all held-out rows, by which the paper selects a round."""
    labels = np.concatenate([truth.held_out_labels[client.name] for client in federation.clients])
    held_out = ((client.inputs, client.held_out.index) for client in federation.clients)
    predicted = _predict_batches(module, gather_rows(held_out, PREDICT_BATCH), federation.scaling)
    return int((predicted != labels).sum()) / max(len(labels), 1)


def round_errors(module: nn.Module, study: Study | None, config: TrainConfig, number: int) -> dict[str, Any]:
    """Return the errors of a round with respect to true labels, if these exist and the configuration requires them.

    Parameters
    ----------
    module : nn.Module
        The network, with the weights of the round.
    study : Study or None
        The data; None where there are no labels.
    config : TrainConfig
        The configuration.
    number : int
        Number of the round.

    Returns
    -------
    dict of str to float
        Fields of `RoundMetrics`.
    """
    errors: dict[str, Any] = {}
    if study is None or study.truth is None:
        return errors
    if config.selection == "held-out-error":
        errors["held_out_error"] = held_out_error(module, study.federation, study.truth)
    if config.evaluate_every and number % config.evaluate_every == 0:
        errors["test_error"], _ = test_error(module, study.truth, study.federation.scaling)
    return errors


def error_at_prior(predicted: Labels, labels: Labels, prior: Matrix) -> float:
    """Return the error in a population with this class mix, from the error within each class.

    Parameters
    ----------
    predicted, labels : array (n,)
        Predicted and true classes.
    prior : array (K,)
        Class mix of the population. Classes without a row are left out of it.

    Examples
    --------
    >>> error_at_prior(np.array([0, 0, 0, 0]), np.array([0, 0, 0, 1]), np.array([0.5, 0.5]))
    0.5
    """
    rows = np.bincount(labels, minlength=len(prior))
    wrong = np.bincount(labels, predicted != labels, minlength=len(prior))
    weight = np.where(rows > 0, prior, 0.0)
    return float(weight @ (wrong / np.maximum(rows, 1)) / weight.sum())


def calibration_error(probabilities: Matrix, labels: Labels, bins: int = 15) -> float:
    """Return the expected calibration error: the mean gap between confidence and accuracy over equal bins.

    Parameters
    ----------
    probabilities : array (n, K)
        Class probabilities.
    labels : array (n,)
        True classes.
    bins : int, default=15
        Number of bins of equal width.

    Examples
    --------
    >>> calibration_error(np.array([[0.8, 0.2], [0.3, 0.7]]), np.array([0, 1]))  # right twice, at 0.8 and 0.7
    0.25
    """
    confidence, is_right = probabilities.max(1), probabilities.argmax(1) == labels
    bin_of = np.minimum((confidence * bins).astype(int), bins - 1)
    gap = np.bincount(bin_of, confidence - is_right, minlength=bins)
    return float(np.abs(gap).sum() / len(labels))


def predictions(module: nn.Module, inputs: Tensor, scaling: Scaling, batch_size: int = PREDICT_BATCH) -> Labels:
    """Return the most probable class (n,) of every row."""
    return _predict_batches(module, torch.split(inputs, batch_size), scaling)


@torch.inference_mode()
def _predict_batches(module: nn.Module, batches: Iterable[Tensor], scaling: Scaling) -> Labels:
    module.eval()
    device = next((p.device for p in module.parameters()), torch.device("cpu"))
    precision = precision_of(module)
    classes: list[NDArray[np.int64]] = [np.zeros(0, np.int64)]
    classes += [module(scaling(rows.to(device)).to(precision)).argmax(1).cpu().numpy() for rows in batches if len(rows)]
    return np.concatenate(classes)
