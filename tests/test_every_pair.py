"""Every method trains under every algorithm, and goes on where it was stopped."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import pytest
from torch import nn

import fedul
from fedul.algorithms import ALGORITHMS
from fedul.methods import METHODS
from fedul.truth import Study

# So that two rounds of three clients see something of what comes later, or with more clients.
OPTIONS: dict[str, dict[str, Any]] = {
    "fedul-refined": {"earliest": 1, "latest": 1},
    "fedllp-vat": {"ramp_rounds": 0},
    "trimmed-mean": {"trim": 0.4},
}


def with_batch_norm(shape: tuple[int, ...], classes: int) -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 48), nn.BatchNorm1d(48), nn.ReLU(), nn.Linear(48, classes))


@cache
def digits() -> Study:
    return fedul.load("digits", clients=3, sets=10, validation=0.7)


@pytest.mark.filterwarnings("ignore:fedul-refined. in 1 rounds")
@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("method", METHODS)
def test_a_pair_learns_more_than_chance_and_can_be_stopped_between_rounds(
    method: str, algorithm: str, tmp_path: Path
) -> None:
    settings: dict[str, Any] = {
        "method": method,
        "method_option": OPTIONS.get(method, {}),
        "algorithm": algorithm,
        "algorithm_option": OPTIONS.get(algorithm, {}),
        "model": with_batch_norm,
        "threads": 1,
        "batch_size": 64,
    }
    whole = fedul.train(digits(), rounds=2, **settings)
    fedul.train(digits(), rounds=1, out=tmp_path, **settings)
    resumed = fedul.train(digits(), rounds=2, out=tmp_path, resume=True, **settings)
    assert resumed.weights_sha256 == whole.weights_sha256
    assert whole.test_error is not None
    assert whole.test_error < 0.8, "chance is 0.9"
    assert resumed.test_error == whole.test_error
