"""What a site writes to its log about a run."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from fedul.engines.flower.server.coordinator import run_coordinator

from .secure_sites import secure_digits_sites, secure_settings
from .test_parity import settings
from .wire import Wire, digits_sites


@pytest.mark.parametrize(
    ("given", "stated"),
    [
        ({}, "rows not private."),
        ({"dp-epsilon": 4.0, "model": "linear"}, "private rows (dp-epsilon 4, dp-delta 1e-05)."),
    ],
)
def test_a_site_logs_every_run_that_it_joins(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, given: dict[str, Any], stated: str
) -> None:
    caplog.set_level(logging.INFO, "flwr")
    run_coordinator(Wire(digits_sites(tmp_path, 2, rows=300)), settings(tmp_path, 2, **given))
    joined = [line for line in caplog.messages if line.startswith("fedul: joins run ")]
    assert len(joined) == 2
    assert joined[0].endswith(f": method fedul, algorithm fedavg, 3 rounds at most, no secure aggregation, {stated}")


def test_a_site_logs_secure_aggregation_and_the_end_of_a_run(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "flwr")
    run_coordinator(Wire(secure_digits_sites(tmp_path, 3, rows=400)), secure_settings(tmp_path, 3, rounds=1))
    log = caplog.text
    assert log.count("sums over at least 3 sites, rows not private.") == 3
    assert log.count("fedul: has trained the last round (1) of run ") == 3
    assert log.count("fedul: has evaluated the delivered classifier of run ") == 3
