"""Every algorithm gives the same classifier with secure aggregation at sites as without it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import fedul
from fedul.algorithms import ALGORITHMS
from fedul.engines.flower.server.coordinator import run_coordinator

from .secure_sites import secure_digits_sites, secure_settings
from .test_parity import settings, weights
from .wire import Wire, digits_sites

SUMMED = [name for name in ALGORITHMS if name not in ("median", "trimmed-mean")]
SITES, SEEDS = 5, range(3)


def both(folder: Path, **changed: Any) -> tuple[fedul.Run, fedul.Run]:
    """The same run with and without secure aggregation."""
    rows = changed.pop("rows", 0)
    secure = Wire(secure_digits_sites(folder / "secure", SITES, rows))
    found = run_coordinator(secure, secure_settings(folder / "secure", SITES, **changed))
    in_the_open = Wire(digits_sites(folder / "open", SITES, rows))
    return found, run_coordinator(in_the_open, settings(folder / "open", SITES, **changed))


def check_same_rounds(found: fedul.Run, expected: fedul.Run, tolerance: float) -> None:
    assert float((weights(found) - weights(expected)).abs().max()) < tolerance
    assert found.selected_round == expected.selected_round
    for line, other in zip(found.history, expected.history, strict=True):
        assert line.loss == pytest.approx(other.loss, rel=1e-4)
        assert line.held_out_loss == pytest.approx(other.held_out_loss, rel=1e-4)
        assert line.temperature == pytest.approx(other.temperature, rel=1e-3)


def test_scaffold_sums_its_control_variates_too(tmp_path: Path) -> None:
    check_same_rounds(*both(tmp_path, algorithm="scaffold", rounds=2, rows=400), tolerance=1e-5)


@pytest.mark.long
@pytest.mark.parametrize("algorithm", [name for name in SUMMED if name != "fedbn"])
def test_after_ten_rounds_the_test_error_is_that_of_runs_in_the_open(tmp_path: Path, algorithm: str) -> None:
    """Rounding moves single rows across a decision boundary, so the mean over seeds is compared."""
    truth = fedul.load("digits", clients=SITES).truth
    assert truth is not None
    differences = []
    for seed in SEEDS:
        runs = both(tmp_path / str(seed), algorithm=algorithm, rounds=10, seed=seed)
        here, there = (
            float((run.classifier.predict_proba(truth.test_inputs).argmax(axis=1) != truth.test_labels).mean())
            for run in runs
        )
        differences.append(here - there)
    assert abs(sum(differences) / len(SEEDS)) <= 0.002


@pytest.mark.long
def test_the_shared_part_of_fedbn_is_that_of_a_run_in_the_open(tmp_path: Path) -> None:
    """The network with batch norm that sites know is at chance after few rounds, so weights are compared.

    Adam and batch norm amplify the rounding of the first round in the second.
    """
    changed = {"model": "paper-cnn", "rounds": 2, "epochs": 1, "rows": 500}
    found, expected = both(tmp_path, algorithm="fedbn", **changed)
    here, there = weights(found), weights(expected)
    assert float((here - there).norm() / there.norm()) < 1e-2
    for line, other in zip(found.history, expected.history, strict=True):
        assert line.loss == pytest.approx(other.loss, rel=1e-3)
        assert line.held_out_loss == pytest.approx(other.held_out_loss, rel=1e-3)


@pytest.mark.long
def test_sites_count_by_their_rows_if_the_algorithm_says_so(tmp_path: Path) -> None:
    changed = {"algorithm-option": ["weighting=rows"], "rounds": 3}
    check_same_rounds(*both(tmp_path, algorithm="fedavg", **changed), tolerance=1e-4)


@pytest.mark.long
def test_one_aggregate_differs_from_that_in_the_open_by_less_than_the_quantisation(tmp_path: Path) -> None:
    found, expected = both(tmp_path, rounds=1, rows=400, averaging=0.0)
    # Each of five sites rounds once, to a multiple of 2^ceil(log2(4 * 5 / 2^31)); weights are in float32.
    step = 2.0**-26
    difference = (weights(found) - weights(expected)).abs()
    assert float(difference.max()) <= step / 2 + float(torch.finfo(torch.float32).eps)
