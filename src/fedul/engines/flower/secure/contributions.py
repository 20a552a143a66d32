"""What sites sum for each purpose besides updates, and how totals are read: held-out losses and accuracy estimates."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
from torch import nn

from fedul.algorithms.base import Algorithm, declared_update
from fedul.config import TrainConfig
from fedul.core import SIGNIFICANCE
from fedul.engines.flower.protocol.documents import LocalEvaluation
from fedul.engines.flower.protocol.run_plan import RunPlan
from fedul.engines.secure_sums import HELD_OUT_FIELDS
from fedul.privacy.secure_aggregation.layout import Field, Values, VectorLayout
from fedul.privacy.secure_aggregation.update_layout import UpdateLayout
from fedul.privacy.update_chain import build_update_chain

STATISTICS, TRAIN, EVALUATE, LOCAL = "statistics", "train", "evaluate", "local"
"""Purposes of aggregations."""
NUMBERS = "numbers"
LIMIT, TOTAL = 2.0**38, 2.0**41
"""Largest number of a site and of all; sums are exact to about 2^-20."""
LOCAL_NUMBERS = ("sites", "rows", "correct", "errors", "tested", "misfits")


def update_layout(
    module: nn.Module, algorithm: Algorithm, training: TrainConfig, plan: RunPlan, sites: int
) -> UpdateLayout:
    """Return how updates of a run are summed over at most this many sites."""
    spec = build_update_chain(training).declare(declared_update(algorithm, module))
    return UpdateLayout(
        spec,
        sites,
        algorithm.weighting,
        training.aggregation_range,
        training.aggregation_threshold,
        plan.most_rows,
        has_loss=not training.protects_rows,
    )


def evaluation_layout(sites: int) -> VectorLayout:
    """Return the layout of held-out sums of at most this many sites."""
    return VectorLayout(HELD_OUT_FIELDS, sites)


def local_layout(sites: int) -> VectorLayout:
    """Return the layout of accuracy estimates of at most this many sites."""
    return VectorLayout((Field(NUMBERS, len(LOCAL_NUMBERS), LIMIT, TOTAL),), sites)


def local_values(estimate: LocalEvaluation, sites: int) -> dict[str, Values]:
    """Return the estimate of a site as values of `local_layout`; zeros without an estimate.

    An estimate of few errors or none has too small a standard error. In the open, that of the mean accuracy of all
    sites bounds it from below. Here the site uses its own accuracy, as if it had seen two more errors and two more hits
    (Agresti and Coull, 1998).

    Parameters
    ----------
    estimate : LocalEvaluation
        The estimate.
    sites : int
        Sites of the roster, for the correction of the test for several sites (Bonferroni).
    """
    rows, tested = estimate.rows, estimate.p_value is not None
    if not rows:
        return {NUMBERS: np.zeros(len(LOCAL_NUMBERS))}
    cautious = (rows * estimate.accuracy + 2) / (rows + 4)
    error = max(estimate.standard_error, math.sqrt(cautious * (1 - cautious) / rows))
    misfit = estimate.p_value is not None and estimate.p_value * sites < SIGNIFICANCE
    numbers = [1, rows, rows * estimate.accuracy, rows * error, tested, misfit]
    return {NUMBERS: np.array(numbers, dtype=np.float64)}


def read_local(totals: Mapping[str, Values]) -> dict[str, float]:
    """Return the totals of accuracy estimates by name (`LOCAL_NUMBERS`)."""
    return dict(zip(LOCAL_NUMBERS, totals[NUMBERS].tolist(), strict=True))
