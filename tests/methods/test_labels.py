"""Methods that learn from sets do not look at labels: with other labels beside it, a run is the same."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import fedul
from fedul._utils.files import tensors_digest
from fedul.core import Federation, Labels, Study
from fedul.methods import METHODS
from fedul.models.weights import weights_of
from fedul.training.train import Run

from ..factories import gaussian_study
from .steps import SETTINGS

# So that five rounds have all phases of a method.
OPTIONS: dict[str, dict[str, Any]] = {
    "fedul-refined": {"earliest": 1, "latest": 1},
    "fedpl": {"threshold": 0.4},
    "fedllp-vat": {"ramp_rounds": 0},
}
STUDY = gaussian_study(("north", "south"), rows=12, dtype=np.float64)


def with_wrong_labels(study: Study) -> Study:
    """The study with no label of its rows as it was."""
    assert study.truth is not None
    last = len(study.federation.classes)

    def moved(labels: Labels) -> Labels:
        return (labels + 1) % last

    truth = study.truth
    train, held_out = (
        {name: moved(labels) for name, labels in known.items()} for known in (truth.train_labels, truth.held_out_labels)
    )
    wrong = replace(truth, test_labels=moved(truth.test_labels), train_labels=train, held_out_labels=held_out)
    return replace(study, truth=wrong)


def trained(data: Federation | Study, method: str) -> Run:
    settings = {**SETTINGS, "rounds": 5, "select": "held-out-loss"}
    return fedul.train(data, method=method, method_option=OPTIONS.get(method, {}), **settings)


def learned(run: Run) -> tuple[object, ...]:
    """The weights of the last round and what is delivered: the selected round, its weights and its temperature."""
    delivered = tensors_digest(weights_of(run.classifier.module))
    return run.weights_sha256, run.selected_round, delivered, run.classifier.temperature


@pytest.mark.parametrize("method", [name for name in METHODS if name != "supervised"])
def test_no_label_is_used(method: str) -> None:
    run = trained(STUDY, method)
    assert run.labels_used == 0
    assert learned(trained(with_wrong_labels(STUDY), method)) == learned(run)
    assert learned(trained(STUDY.federation, method)) == learned(run)


def test_the_method_that_learns_from_labels_counts_them_and_depends_on_them() -> None:
    run = trained(STUDY, "supervised")
    assert run.labels_used == sum(len(client.train) for client in STUDY.federation.clients)
    assert learned(trained(with_wrong_labels(STUDY), "supervised")) != learned(run)
