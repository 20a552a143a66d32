"""What a run folder says while the run goes on, whatever is half written or missing."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from fedul.reporting.live.run_view import LiveFolder, find_run
from fedul.training import RunFolder, run_files

from ..runs import contents
from .live_folders import ROUNDS, going_on, rounds, status, view, write_run


def test_a_locked_folder_is_a_run_that_goes_on_and_a_free_one_has_stopped(tmp_path: Path) -> None:
    run = write_run(tmp_path / "RUN", rounds(4), status())
    with going_on(run):
        assert (view(run).state, view(run).round, view(run).rounds) == ("training", 4, ROUNDS)
    stopped = view(run)
    assert (stopped.state, stopped.seconds_left) == ("stopped", None)
    assert stopped.resume_command == "flwr run . --run-config 'resume=true'"


@pytest.mark.parametrize("phase", ["waiting", "training", "finishing"])
def test_the_phase_of_a_run_that_goes_on_is_shown(tmp_path: Path, phase: str) -> None:
    run = write_run(tmp_path / "RUN", status=status(phase))
    with going_on(run):
        assert view(run).state == phase


def test_a_run_in_process_is_resumed_with_train(tmp_path: Path) -> None:
    run = write_run(tmp_path / "my run", rounds(2), status(), across_sites=False)
    assert view(run).resume_command == f"fedul train --out '{run}' --resume"


def test_a_run_with_a_result_is_finished_whatever_its_status_says(tmp_path: Path) -> None:
    run = write_run(tmp_path / "RUN", rounds(4), status("finishing"), finished=True)
    assert (view(run).state, view(run).rounds) == ("finished", 4)
    assert view(run).report == 0
    assert view(write_run(run, report=True)).report > 0


def test_a_finished_run_that_is_resumed_goes_on(tmp_path: Path) -> None:
    run = write_run(tmp_path / "RUN", rounds(4), status("finished"), finished=True)
    with going_on(run):
        assert view(run).state == "starting"


def test_a_run_that_failed_says_why(tmp_path: Path) -> None:
    run = write_run(tmp_path / "RUN", rounds(4), status("failed", problem="no site is connected."))
    assert (view(run).state, view(run).problem) == ("failed", "no site is connected.")
    write_run(run, finished=True)  # of fewer rounds, before it was resumed
    assert view(run).state == "failed"


def test_a_run_of_an_earlier_version_has_no_status(tmp_path: Path) -> None:
    run = write_run(tmp_path / "RUN", rounds(4))
    with going_on(run):
        assert (view(run).state, view(run).round, view(run).rounds) == ("starting", 4, ROUNDS)
    (run / run_files.STATUS).write_text('{"of": "a later version"}')
    assert (view(run).state, view(run).status) == ("stopped", None)


def test_a_line_that_is_half_written_counts_once_it_is_complete(tmp_path: Path) -> None:
    run, lines = write_run(tmp_path / "RUN", rounds(3)), (tmp_path / "RUN" / run_files.METRICS).read_bytes()
    folder = LiveFolder(run)
    for end, complete in ((len(lines) - 20, 2), (len(lines) - 1, 2), (len(lines), 3)):
        (run / run_files.METRICS).write_bytes(lines[:end])
        os.utime(run / run_files.METRICS, ns=(end, end))
        assert folder.read().round == complete


def test_a_resumed_run_that_goes_back_shows_the_rounds_that_are_there(tmp_path: Path) -> None:
    run = write_run(tmp_path / "RUN", rounds(5))
    folder = LiveFolder(run)
    assert folder.read().round == 5
    write_run(run, rounds(3, loss=7.0))
    os.utime(run / run_files.METRICS, ns=(1, 1))
    assert [metrics.loss for metrics in folder.read().history] == [7.0] * 3


def test_of_a_round_that_comes_twice_the_last_one_counts(tmp_path: Path) -> None:
    first, second = rounds(2)
    run = write_run(tmp_path / "RUN", [first, second, replace(second, loss=0.25)])
    assert [metrics.loss for metrics in view(run).history] == [first.loss, 0.25]


@pytest.mark.parametrize("line", ["", "null", "{}", "[1", '{"round": "one"}', '{"round": 2, "loss": NaN}', "\udcff"])
def test_a_line_that_is_no_round_is_left_out(tmp_path: Path, line: str) -> None:
    run = write_run(tmp_path / "RUN", rounds(1))
    with (run / run_files.METRICS).open("ab") as file:
        file.write(line.encode("utf-8", "surrogateescape") + b"\n")
    assert view(run).round == 1


def test_rounds_since_the_last_checkpoint_are_shown_while_the_run_goes_on_only(tmp_path: Path) -> None:
    run = write_run(tmp_path / "RUN", rounds(4), status(latest=rounds(6)[-1]))
    with going_on(run):
        assert [metrics.round for metrics in view(run).history] == [1, 2, 3, 4, 6]
    assert view(run).round == 4  # it will be resumed from there


def test_the_time_left_follows_the_latest_rounds(tmp_path: Path) -> None:
    run = write_run(tmp_path / "RUN", rounds(10), status())
    with going_on(run):
        assert view(run).seconds_left == pytest.approx((ROUNDS - 10) * 4.0)


def test_a_damaged_result_is_a_problem_and_not_the_end_of_the_page(tmp_path: Path) -> None:
    run = write_run(tmp_path / "RUN", rounds(2), status("finished"))
    (run / run_files.RESULT).write_text("{")
    assert "damaged" in view(run).problem
    assert view(run).round == 2


def test_a_run_of_another_format_is_a_problem(tmp_path: Path) -> None:
    run = write_run(tmp_path / "RUN", rounds(2))
    config = json.loads((run / run_files.CONFIG).read_text())
    (run / run_files.CONFIG).write_text(json.dumps({**config, "version": 99}))
    assert "written by another version of fedul" in view(run).problem


def test_the_latest_run_of_a_federation_is_followed(tmp_path: Path) -> None:
    assert find_run(tmp_path) is None
    first = write_run(tmp_path / "runs" / "run-1", status=status())
    second = write_run(tmp_path / "runs" / "run-2", status=status())
    os.utime(first / run_files.STATUS, ns=(2, 2))
    os.utime(second / run_files.STATUS, ns=(1, 1))
    assert find_run(tmp_path) == first
    os.utime(second / run_files.STATUS, ns=(3, 3))
    assert find_run(tmp_path) == second
    assert view(tmp_path).folder == str(second)


def test_nothing_is_written_and_the_run_is_not_kept_from_going_on(tmp_path: Path) -> None:
    run = write_run(tmp_path / "RUN", rounds(2), status())
    before, folder = contents(tmp_path), LiveFolder(run)
    folder.read()
    RunFolder(run).check_free()
    assert LiveFolder(tmp_path / "absent").read().state == "absent"
    assert contents(tmp_path) == before
