"""The status of a run: what it says at each moment, and that it never gets in the way."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

import fedul
from fedul._utils.folder_lock import is_locked
from fedul.core import RoundMetrics
from fedul.errors import InputError
from fedul.training import Callback, CollectWarnings, RunInfo, RunResult, run_files
from fedul.training.run_folder import RunFolder
from fedul.training.status import RunStatus
from fedul.training.status_writer import MAX_WARNINGS, SECONDS_BETWEEN, StatusWriter

from ..callbacks import StopAt
from ..factories import digits, gaussian_study

STUDY = digits()
TRAINING = {"rounds": 3, "model": "linear", "batch_size": 256, "threads": 1}


def read(folder: Path) -> RunStatus:
    return RunStatus.from_dict(json.loads((folder / run_files.STATUS).read_text()))


class Look(Callback):
    """Keeps the status that is in the folder when callbacks are called."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.phases: list[str] = []

    def on_run_start(self, run: RunInfo) -> None:
        assert not (self.folder / run_files.STATUS).exists()  # this callback comes first

    def on_round_end(self, run: RunInfo, metrics: RoundMetrics) -> None:
        self.phases.append(read(self.folder).phase)

    def on_run_end(self, run: RunInfo, result: RunResult | None) -> None:
        self.phases.append(read(self.folder).phase)


class FailAt(Callback):
    """Fails after a round."""

    def __init__(self, number: int) -> None:
        self.number = number

    def on_round_end(self, run: RunInfo, metrics: RoundMetrics) -> None:
        if metrics.round == self.number:
            raise InputError("there is no room for more.")


def test_a_run_says_that_it_trains_and_then_that_it_is_finished(tmp_path: Path) -> None:
    look = Look(tmp_path / "RUN")
    run = fedul.train(STUDY, out=tmp_path / "RUN", callbacks=[look], **TRAINING)
    status = read(tmp_path / "RUN")
    assert look.phases == ["training"] * 4
    assert (status.phase, status.rounds, status.resumed_after, status.problem) == ("finished", 3, 0, "")
    assert status.latest == run.history[-1]
    assert (status.table.count, status.table.sites) == (len(STUDY.federation.clients), [])
    assert "in this process" in status.table.note
    assert status.started <= status.updated


def test_a_run_without_a_folder_writes_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    fedul.train(STUDY, **TRAINING)
    assert list(tmp_path.iterdir()) == []


def test_a_run_that_is_interrupted_has_stopped_and_one_that_fails_says_why(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        fedul.train(STUDY, out=tmp_path / "stopped", callbacks=[StopAt(2)], **TRAINING)
    assert (read(tmp_path / "stopped").phase, read(tmp_path / "stopped").problem) == ("stopped", "")
    with pytest.raises(InputError):
        fedul.train(STUDY, out=tmp_path / "failed", callbacks=[FailAt(2)], **TRAINING)
    assert (read(tmp_path / "failed").phase, read(tmp_path / "failed").problem) == (
        "failed",
        "there is no room for more.",
    )


def test_a_resumed_run_says_after_which_round_and_keeps_earlier_warnings(tmp_path: Path) -> None:
    run = tmp_path / "RUN"
    with pytest.raises(KeyboardInterrupt):
        fedul.train(STUDY, out=run, callbacks=[StopAt(2)], checkpoint_every=1, **TRAINING)
    stored = json.loads((run / run_files.STATUS).read_text())
    stored["warnings"] = [{"time": 1.0, "round": 1, "message": "of the first process"}]
    (run / run_files.STATUS).write_text(json.dumps(stored))
    fedul.train(STUDY, out=run, resume=True, checkpoint_every=1, **TRAINING)
    status = read(run)
    assert (status.phase, status.resumed_after) == ("finished", 1)
    assert "of the first process" in [warning.message for warning in status.warnings]


def test_a_finished_run_that_is_resumed_without_effect_is_left_as_it_is(tmp_path: Path) -> None:
    run = tmp_path / "RUN"
    fedul.train(STUDY, out=run, **TRAINING)
    before = (run / run_files.STATUS).read_bytes()
    fedul.train(STUDY, out=run, resume=True, **TRAINING)
    assert (run / run_files.STATUS).read_bytes() == before
    fedul.train(STUDY, out=run, resume=True, **{**TRAINING, "rounds": 4})
    assert (read(run).rounds, read(run).phase) == (4, "finished")


def test_a_run_that_is_refused_does_not_touch_the_status_of_the_one_that_goes_on(tmp_path: Path) -> None:
    run = tmp_path / "RUN"
    fedul.train(STUDY, out=run, **TRAINING)
    before = (run / run_files.STATUS).read_bytes()
    with RunFolder(run).locked(), pytest.raises(InputError, match="another process is training this run"):
        fedul.train(STUDY, out=run, resume=True, **{**TRAINING, "rounds": 4})
    assert (run / run_files.STATUS).read_bytes() == before


def test_private_rows_have_an_epsilon_for_each_client(tmp_path: Path) -> None:
    private = {**TRAINING, "method": "fedul", "dp_epsilon": 8.0, "callbacks": [CollectWarnings()]}
    run = fedul.train(STUDY, out=tmp_path / "RUN", **private)
    sites = read(tmp_path / "RUN").table.sites
    assert {site.name: site.epsilon for site in sites} == run.result.epsilon


def test_a_status_that_cannot_be_written_does_not_stop_the_run(tmp_path: Path) -> None:
    class Block(Callback):
        def on_run_start(self, run: RunInfo) -> None:
            (tmp_path / "RUN" / run_files.STATUS).mkdir()

    assert fedul.train(STUDY, out=tmp_path / "RUN", callbacks=[Block()], **TRAINING).result.rounds == 3


def test_a_status_of_another_version_is_replaced(tmp_path: Path) -> None:
    (tmp_path / run_files.STATUS).write_text('{"future": 1}')
    with StatusWriter(tmp_path) as status:
        status.begin()
    assert read(tmp_path).phase == "finished"


def test_quick_rounds_are_not_each_written_and_slow_ones_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedul.training.status_writer.SECONDS_BETWEEN", math.inf)
    with StatusWriter(tmp_path) as status:
        status.on_run_start(RunInfo(100))
        for number in range(1, 51):
            status.on_round_end(RunInfo(100), RoundMetrics(number, 0.5, 2, seconds=0.004))
        assert read(tmp_path).latest is None
        status.on_round_end(RunInfo(100), RoundMetrics(51, 0.5, 2, seconds=3.0))
        assert read(tmp_path).latest == RoundMetrics(51, 0.5, 2, seconds=3.0)
    assert SECONDS_BETWEEN < 10


def test_a_warning_counts_once_and_the_latest_are_kept(tmp_path: Path) -> None:
    with StatusWriter(tmp_path) as status:
        status.begin()
        for number in range(MAX_WARNINGS + 5):
            status.on_warning(f"warning {number}")
            status.on_warning(f"warning {number}")
    written = read(tmp_path)
    assert [warning.message for warning in written.warnings] == [f"warning {i}" for i in range(5, MAX_WARNINGS + 5)]
    assert written.warnings_left_out == 5


class LookAtChoice(Callback):
    """Notes the status and the lock of the folder while settings are chosen, and starts a second run in it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.seen: set[tuple[str, bool | None]] = set()
        self.refusals: set[str] = set()

    def on_round_end(self, run: RunInfo, metrics: RoundMetrics) -> None:
        if run.role != "choice":
            return
        self.seen.add((read(self.folder).phase, is_locked(self.folder)))
        with pytest.raises(InputError) as refused:
            fedul.train(STUDY, out=self.folder, **TRAINING)
        self.refusals.add(str(refused.value))


def test_while_settings_are_chosen_the_folder_is_locked_and_the_status_says_so(tmp_path: Path) -> None:
    look = LookAtChoice(tmp_path / "RUN")
    study = gaussian_study(["north", "south", "west"], rows=40, sets=6)
    fedul.train(study, rounds=1, out=look.folder, callbacks=[look, CollectWarnings()])
    assert look.seen == {("choosing", True)}
    (refusal,) = look.refusals
    assert "another process is training this run" in refusal
    status = read(look.folder)
    assert (status.phase, status.rounds) == ("finished", 1)
    assert status.latest is not None
    assert status.latest.round == 1


def test_a_run_that_is_refused_before_it_begins_leaves_no_folder(tmp_path: Path) -> None:
    with pytest.raises(InputError):
        fedul.train(STUDY, out=tmp_path / "runs" / "RUN", method="fedul", model="nonsense", rounds=1)
    assert list(tmp_path.iterdir()) == []
