"""Rounds have metrics of single clients where the coordinator knows them and may tell, and nowhere else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import fedul
from fedul.core import MOST_SITES, RoundMetrics
from fedul.engines.flower.server.coordinator import run_coordinator
from fedul.training import CollectWarnings, RunFolder

from ..engines.flower.secure_sites import secure_digits_sites, secure_settings
from ..engines.flower.test_parity import settings
from ..engines.flower.wire import Wire, digits_sites
from ..factories import gaussian_study, random_federation

SETTINGS = {"method": "fedul", "model": "linear", "rounds": 2}


def train(**changed: Any) -> list[RoundMetrics]:
    run = fedul.train(gaussian_study(), **{**SETTINGS, **changed}, callbacks=[CollectWarnings()])
    return list(run.history)


def test_losses_and_rows_of_clients_make_up_those_of_the_round() -> None:
    for metrics in train():
        rows = {name: site.rows for name, site in metrics.sites.items()}
        assert rows == dict.fromkeys(rows, 48)
        losses = [site.loss for site in metrics.sites.values() if site.loss is not None]
        assert sum(losses) / len(losses) == pytest.approx(metrics.loss)


def test_metrics_of_clients_are_stored_with_the_round(tmp_path: Path) -> None:
    run = fedul.train(gaussian_study(), **SETTINGS, out=tmp_path / "run")
    assert RunFolder(tmp_path / "run").history() == list(run.history)


def test_clients_that_do_not_participate_are_left_out() -> None:
    assert [len(metrics.sites) for metrics in train(participation=0.4)] == [2, 2]


def test_of_many_clients_no_single_one_is_recorded() -> None:
    many = random_federation(MOST_SITES + 1)
    run = fedul.train(many, **{**SETTINGS, "rounds": 1}, force=True)
    assert run.history[0].sites == {}


def test_secure_aggregation_discloses_no_loss_and_no_rows_of_a_client() -> None:
    for metrics in train(secure_aggregation=True):
        assert {(site.state, site.loss, site.rows) for site in metrics.sites.values()} == {("trained", None, None)}


def test_private_clients_are_not_recorded_where_participation_is_random() -> None:
    private = {"client_dp_noise": 1.0, "dp_seeded": True, "force": True}
    assert [metrics.sites for metrics in train(**private, participation=0.5)] == [{}, {}]
    for metrics in train(**private):
        assert all(site.loss is None and site.rows is None for site in metrics.sites.values())


def test_private_rows_have_an_epsilon_by_client_and_no_loss() -> None:
    for metrics in train(dp_noise=1.0, dp_seeded=True):
        assert max(site.epsilon or 0 for site in metrics.sites.values()) == pytest.approx(metrics.epsilon)
        assert all(site.loss is None for site in metrics.sites.values())


def test_sites_have_seconds_and_bytes_which_add_up_to_those_of_the_round(tmp_path: Path) -> None:
    run = run_coordinator(Wire(digits_sites(tmp_path, 3, rows=300)), settings(tmp_path, 3, rounds=3))
    assert [set(metrics.sites) for metrics in run.history] == [{"client-1", "client-2", "client-3"}] * 3
    for metrics in run.history:
        sites = metrics.sites.values()
        assert sum(site.bytes_sent or 0 for site in sites) == metrics.bytes_sent
        assert all(site.loss is not None and site.seconds is not None for site in sites)


def test_a_site_that_fails_is_recorded_as_failed(tmp_path: Path) -> None:
    faults = {2: lambda kind, request, reply: None if kind == "train" else reply}
    run = run_coordinator(Wire(digits_sites(tmp_path, 3, rows=300), faults), settings(tmp_path, 3, rounds=2))
    for metrics in run.history:
        states = {name: site.state for name, site in metrics.sites.items()}
        assert states == {"client-1": "trained", "client-2": "failed", "client-3": "trained"}


def test_sites_with_secure_aggregation_have_seconds_and_bytes_only(tmp_path: Path) -> None:
    wire = Wire(secure_digits_sites(tmp_path, 3, rows=300))
    run = run_coordinator(wire, secure_settings(tmp_path, 3, rounds=2))
    for metrics in run.history:
        for site in metrics.sites.values():
            assert (site.state, site.loss, site.rows) == ("trained", None, None)
            assert site.seconds is not None
            assert site.bytes_received
