"""The status of a coordinator: what it observes of its sites, and what it must not write down."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fedul.core import RoundMetrics
from fedul.engines.flower.server.coordinator import run_coordinator
from fedul.engines.flower.server.site_activity import PRIVATE, SiteActivity
from fedul.errors import EnvironmentFailure
from fedul.training import Callback, RunFolder, RunInfo
from fedul.training.status import RunStatus, SiteStatus

from .secure_sites import secure_digits_sites, secure_settings
from .test_parity import settings
from .test_protected_clients import PROTECTED
from .wire import Wire, digits_sites


def read(folder: Path) -> RunStatus:
    return RunStatus.from_dict(json.loads((folder / "run" / "status.json").read_text()))


class Silence(Callback):
    """Lets a site fail from a round on."""

    def __init__(self, wire: Wire, node: int, number: int) -> None:
        self.wire, self.node, self.number = wire, node, number

    def on_round_end(self, run: RunInfo, metrics: RoundMetrics) -> None:
        if metrics.round == self.number:
            self.wire.faults[self.node] = lambda kind, request, reply: None if kind == "train" else reply


def test_a_coordinator_writes_what_each_site_does_and_the_reason_of_a_failure(tmp_path: Path) -> None:
    wire = Wire(digits_sites(tmp_path, 3, rows=300))
    run_coordinator(wire, settings(tmp_path, 3, rounds=4), [Silence(wire, 2, 2)])
    status = read(tmp_path)
    assert (status.phase, status.rounds) == ("finished", 4)
    sites = {site.name: site for site in status.table.sites}
    assert list(sites) == ["client-1", "client-2", "client-3"]
    assert all(site.state == "ready" for site in sites.values())  # the last request was for an evaluation
    assert status.latest is not None
    assert status.latest.site_errors == {"client-2": "no reply within 1 s"}
    for site in sites.values():
        assert site.last_seen is not None
        assert site.seconds is not None
        assert site.bytes_sent
        assert site.bytes_received
    total = sum(site.bytes_sent or 0 for site in sites.values())
    assert total == wire.bytes_sent
    assert sites["client-1"].bytes_received > (sites["client-2"].bytes_received or 0)


def test_a_coordinator_that_gives_up_says_why_and_is_not_locked_any_more(tmp_path: Path) -> None:
    given = {**settings(tmp_path, 3), "start-seconds": 0.01}
    with pytest.raises(EnvironmentFailure):
        run_coordinator(Wire(digits_sites(tmp_path, 2, rows=300)), given)
    status = read(tmp_path)
    assert status.phase == "failed"
    assert "2 of 3 sites connected" in status.problem
    assert [site.name for site in status.table.sites] == ["client-1", "client-2"]
    RunFolder(tmp_path / "run").check_free()


def test_a_run_starts_in_a_folder_in_which_an_earlier_coordinator_only_waited(tmp_path: Path) -> None:
    sites = digits_sites(tmp_path, 2, rows=300)
    given = {**settings(tmp_path, 2), "start-seconds": 0.01}
    with pytest.raises(EnvironmentFailure):
        run_coordinator(Wire({1: sites[1]}), given)
    assert run_coordinator(Wire(sites), settings(tmp_path, 2)).result.rounds


def test_where_participants_are_private_nothing_tells_who_took_part(tmp_path: Path) -> None:
    given = {**PROTECTED, "client-dp-noise": 2.0, "participation": 0.7}
    run_coordinator(Wire(digits_sites(tmp_path, 3, rows=300)), settings(tmp_path, 3, **given))
    table = read(tmp_path).table
    assert table.note == PRIVATE
    assert table.sites == [SiteStatus(f"client-{i}", "private") for i in (1, 2, 3)]


def test_what_the_rows_of_each_site_have_paid_is_shown(tmp_path: Path) -> None:
    private = settings(tmp_path, 2, **{"dp-noise": 2.0, "rounds": 2})
    run = run_coordinator(Wire(digits_sites(tmp_path, 2, rows=300)), private)
    sites = read(tmp_path).table.sites
    assert {site.name: site.epsilon for site in sites} == run.result.epsilon
    assert all(site.epsilon for site in sites)


def test_with_secure_aggregation_sizes_and_times_are_known_and_nothing_else(tmp_path: Path) -> None:
    run_coordinator(Wire(secure_digits_sites(tmp_path, 4)), secure_settings(tmp_path, 4))
    sites = read(tmp_path).table.sites
    assert len(sites) == 4
    received = [site.bytes_received or 0 for site in sites]
    assert max(received) - min(received) < 0.01 * max(received)  # masked vectors have one size; signatures differ
    assert all(site.seconds is not None and site.epsilon is None for site in sites)


def test_a_site_that_is_asked_works_until_it_replies() -> None:
    activity = SiteActivity({7})
    activity.asked(7, "train", 100)
    assert activity.site("north", 7, private=False).state == "working"
    activity.replied(7, 50)
    ready = activity.site("north", 7, private=False)
    assert (ready.state, ready.bytes_sent, ready.bytes_received) == ("ready", 100, 50)
    activity.asked(7, "train", 100)
    activity.failed(7, "no reply within 1 s")
    assert activity.site("north", 7, private=False).state == "failed"
    activity.connected = set()
    assert activity.site("north", 7, private=False).state == "away"


def test_a_site_that_comes_back_at_another_node_keeps_its_traffic() -> None:
    activity = SiteActivity({7, 8})
    activity.asked(7, "train", 100)
    activity.asked(8, "hello", 1)
    activity.move(7, 8)
    assert activity.site("north", 8, private=False).bytes_sent == 101
