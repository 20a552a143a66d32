"""Runs with secure aggregation end as those without it, and the coordinator receives masked vectors only."""

from __future__ import annotations

from pathlib import Path

import pytest

import fedul
from fedul.engines.flower.server.coordinator import run_coordinator

from .secure_sites import secure_digits_sites, secure_settings
from .test_parity import weights
from .wire import Wire


def test_a_run_with_secure_aggregation_ends_with_the_weights_of_one_without(tmp_path: Path) -> None:
    wire = Wire(secure_digits_sites(tmp_path, 4))
    found = run_coordinator(wire, secure_settings(tmp_path, 4))
    expected = fedul.train(fedul.load("digits", clients=4), method="fedul", rounds=3)
    here, there = weights(found), weights(expected)
    assert float((here - there).abs().max()) < 1e-5
    for line, other in zip(found.history, expected.history, strict=True):
        assert line.held_out_loss == pytest.approx(other.held_out_loss, rel=1e-4)
        assert line.loss == pytest.approx(other.loss, rel=1e-4)
    print(wire.kinds(1))
