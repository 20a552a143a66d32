"""Every method trains under every algorithm, and resumes where it was stopped."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import fedul
from fedul.algorithms import ALGORITHMS
from fedul.methods import METHODS

from .factories import batch_norm_network, digits

# So that two rounds of three clients see something of what comes later, or with more clients.
OPTIONS: dict[str, dict[str, Any]] = {
    "fedul-refined": {"earliest": 1, "latest": 1},
    "fedllp-vat": {"ramp_rounds": 0},
    "trimmed-mean": {"trim": 0.4},
}


@pytest.mark.filterwarnings("ignore:fedul-refined. in 1 round")
@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("method", METHODS)
def test_a_pair_learns_better_than_chance_and_can_be_resumed(method: str, algorithm: str, tmp_path: Path) -> None:
    settings: dict[str, Any] = {
        "method": method,
        "method_option": OPTIONS.get(method, {}),
        "algorithm": algorithm,
        "algorithm_option": OPTIONS.get(algorithm, {}),
        "model": batch_norm_network,
        "threads": 1,
        "batch_size": 64,
    }
    whole = fedul.train(digits(3, sets=10, held_out=0.7), rounds=2, **settings)
    fedul.train(digits(3, sets=10, held_out=0.7), rounds=1, out=tmp_path, **settings)
    resumed = fedul.train(digits(3, sets=10, held_out=0.7), rounds=2, out=tmp_path, resume=True, **settings)
    assert resumed.weights_sha256 == whole.weights_sha256
    assert whole.test_error is not None
    assert whole.test_error < 0.8, "chance is 0.9"
    assert resumed.test_error == whole.test_error
