"""A run folder holds one run; another run or other files are refused and not changed."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fedul._utils.files import TEMPORARY, read_tensors, tensors_digest, write_tensors
from fedul.classifier import Classifier
from fedul.config import TrainConfig
from fedul.core import RoundMetrics
from fedul.engines.held_out import Reference
from fedul.errors import InputError
from fedul.models import build
from fedul.training import RunFolder, RunRecord
from fedul.training.state import TrainingState

from ..runs import contents

RECORD = RunRecord(
    data={"data": "digits", "sets": [1, 2]},
    data_fingerprint="abc",
    training=TrainConfig(rounds=3),
    network_fingerprint="def",
    software={"fedul": "0.1.0"},
)


def random_weights(count: int) -> dict[str, torch.Tensor]:
    return {"layer/w": torch.rand(3, 2), "n": torch.tensor(count)}


def state(number: int = 2, selected_round: int = 1, best_round: int = 1, *, averaging: bool = False) -> TrainingState:
    weights = random_weights(7)
    averaged = random_weights(7) if averaging else weights
    selected = averaged if selected_round == number else random_weights(3)
    history = [RoundMetrics(round=i + 1, loss=0.1 * i, clients=2) for i in range(number)]
    server = {"momentum": torch.rand(4)}
    weights_of_best = {selected_round: selected, number: averaged}.get(best_round) or random_weights(5)
    return TrainingState(
        number,
        weights,
        server,
        averaged,
        selected,
        selected_round,
        history,
        best=Reference(best_round, 1 / 3, 2**0.25, weights_of_best),
    )


def with_training(**changes: Any) -> RunRecord:
    return replace(RECORD, training=replace(RECORD.training, **changes))


def opened(folder: RunFolder, record: RunRecord = RECORD, *, resume: bool) -> TrainingState | None:
    with folder.opened(record, resume=resume) as state:
        return state


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    folder = RunFolder(tmp_path / "run")
    opened(folder, resume=False)
    folder.save_state(state())
    return folder


def test_a_new_folder_gets_the_record_and_has_no_state(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "deep" / "run")
    assert opened(folder, resume=False) is None
    assert folder.stored_config() == RECORD
    assert json.loads((folder.path / "config.json").read_text())["format"] == "fedul-run"


@pytest.mark.parametrize("resume", [True, False])
def test_an_empty_folder_is_accepted(tmp_path: Path, resume: bool) -> None:
    (tmp_path / ".DS_Store").write_bytes(b"")
    assert opened(RunFolder(tmp_path), resume=resume) is None


@pytest.mark.parametrize("averaging", [False, True])
@pytest.mark.parametrize(("selected_round", "best_round"), [(1, 1), (3, 3), (1, 3), (3, 2), (1, 2)])
def test_a_state_is_read_back_bit_by_bit(tmp_path: Path, selected_round: int, best_round: int, averaging: bool) -> None:
    folder, before = RunFolder(tmp_path / "run"), state(3, selected_round, best_round, averaging=averaging)
    opened(folder, resume=False)
    folder.save_state(before)
    after = opened(folder, resume=True)
    assert after is not None
    for part in ("weights", "server_state", "averaged", "selected"):
        assert tensors_digest(getattr(after, part)) == tensors_digest(getattr(before, part))
    for name in ("round", "selected_round", "history"):
        assert getattr(after, name) == getattr(before, name)
    assert after.best is not None
    assert before.best is not None
    assert (after.best.round, after.best.loss, after.best.temperature) == (best_round, 1 / 3, 2**0.25)
    assert tensors_digest(after.best.weights) == tensors_digest(before.best.weights)


def test_a_state_without_held_out_rows_is_read_back(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run")
    opened(folder, resume=False)
    folder.save_state(replace(state(), best=None))
    after = opened(folder, resume=True)
    assert after is not None
    assert after.best is None


def test_a_checkpoint_with_incomplete_notes_is_refused_and_left_unchanged(run: RunFolder) -> None:
    file = run.path / "checkpoint" / "state.safetensors"
    tensors, notes = read_tensors(file)
    del notes["best_round"]
    write_tensors(file, tensors, notes)
    before = contents(run.path)
    with pytest.raises(InputError, match=r"state\.safetensors: not a checkpoint of a run"):
        opened(run, resume=True)
    assert contents(run.path) == before


def test_metrics_have_one_line_of_json_per_round(run: RunFolder) -> None:
    lines = (run.path / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line)["round"] for line in lines] == [1, 2]


def test_the_same_run_is_refused_unless_resumed_and_not_changed(run: RunFolder) -> None:
    before = contents(run.path)
    with pytest.raises(InputError, match="already holds a run with these settings; add --resume"):
        opened(run, resume=False)
    assert contents(run.path) == before


@pytest.mark.parametrize(
    ("record", "complaint"),
    [
        (with_training(seed=1), "seed is 0 there, 1 here"),
        (replace(RECORD, data={"data": "digits", "sets": [1, 3]}), r"sets is \[1, 2\] there, \[1, 3\] here"),
        (with_training(batch_size=3), "batch-size is 32 there, 3 here"),
        (replace(RECORD, data={"data": "mnist", "sets": [1, 2]}), "data is digits there, mnist here"),
        (replace(RECORD, data_fingerprint="abd"), "data fingerprint differs"),
        (replace(RECORD, network_fingerprint="deg"), "network fingerprint differs"),
    ],
)
@pytest.mark.parametrize("resume", [True, False])
def test_a_different_run_is_refused_and_not_changed(
    run: RunFolder, record: RunRecord, complaint: str, resume: bool
) -> None:
    before = contents(run.path)
    with pytest.raises(InputError, match=f"holds a different run \\({complaint}\\); choose another --out"):
        opened(run, record, resume=resume)
    assert contents(run.path) == before


@pytest.mark.parametrize("change", [{"rounds": 9}, {"threads": 2}, {"device": "cpu"}, {"evaluate_every": 5}])
def test_settings_that_do_not_alter_finished_rounds_may_change_and_are_recorded(
    run: RunFolder, change: dict[str, Any]
) -> None:
    assert opened(run, with_training(**change), resume=True) is not None
    stored = run.stored_config()
    assert stored is not None
    assert stored.training == replace(RECORD.training, **change)


def test_another_version_of_the_software_may_resume(run: RunFolder) -> None:
    assert opened(run, replace(RECORD, software={"fedul": "0.2.0"}), resume=True) is not None


@pytest.mark.parametrize("resume", [True, False])
def test_a_folder_with_other_files_is_refused_and_not_changed(tmp_path: Path, resume: bool) -> None:
    (tmp_path / "thesis.tex").write_text("important")
    with pytest.raises(InputError, match=r"is not empty and not a run of fedul \(no config.json in it\)"):
        opened(RunFolder(tmp_path), resume=resume)
    assert contents(tmp_path) == {"thesis.tex": b"important"}


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ("{}", "config.json does not belong to a run of fedul"),
        ("[1]", "config.json does not belong to a run of fedul"),
        (
            '{"format": "fedul-run", "version": 99}',
            r"written by another version of fedul \(format 99, this one reads 3\)",
        ),
        ('{"format": "fedul-run", "version": 3}', "config.json: damaged"),
        ('{"format": "fedul-run", "version": 3, "training": {"rounds": "x"}}', "config.json: damaged"),
        ("{", "not a readable JSON file"),
    ],
)
def test_a_damaged_or_foreign_config_is_refused_and_not_changed(tmp_path: Path, content: str, complaint: str) -> None:
    (tmp_path / "config.json").write_text(content)
    with pytest.raises(InputError, match=complaint):
        opened(RunFolder(tmp_path), resume=True)
    assert contents(tmp_path) == {"config.json": content.encode()}


def test_a_file_in_the_place_of_the_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "run").write_text("important")
    with pytest.raises(InputError, match="is a file; --out takes a folder"):
        opened(RunFolder(tmp_path / "run"), resume=False)
    assert (tmp_path / "run").read_text() == "important"


def damaged(content: bytes) -> dict[str, bytes]:
    middle = len(content) // 2
    flipped = bytes([content[middle] ^ 1])
    return {"altered": content[:middle] + flipped + content[middle + 1 :], "cut": content[:-1], "empty": b""}


@pytest.mark.parametrize("damage", ["altered", "cut", "empty"])
def test_a_damaged_checkpoint_is_refused_and_not_changed(run: RunFolder, damage: str) -> None:
    file = run.path / "checkpoint" / "state.safetensors"
    file.write_bytes(damaged(file.read_bytes())[damage])
    before = contents(run.path)
    with pytest.raises(InputError, match=r"state\.safetensors: (altered since|damaged or truncated)"):
        opened(run, resume=True)
    assert contents(run.path) == before


def test_a_run_killed_before_its_first_checkpoint_starts_again(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run")
    opened(folder, resume=False)
    assert opened(folder, resume=True) is None


def test_files_of_an_interrupted_write_are_removed_on_resume(run: RunFolder) -> None:
    (run.path / "checkpoint" / f"{TEMPORARY}abc").write_bytes(b"half")
    opened(run, resume=True)
    assert not any(TEMPORARY in name for name in contents(run.path))


def checkpoint_bytes(folder: RunFolder, one: TrainingState) -> int:
    folder.save_state(one)
    return (folder.path / "checkpoint" / "state.safetensors").stat().st_size


def test_the_selected_weights_are_not_stored_twice(tmp_path: Path) -> None:
    sizes = [checkpoint_bytes(RunFolder(tmp_path / str(number)), state(2, number)) for number in (1, 2)]
    assert sizes[1] < sizes[0]


def test_without_averaging_the_weights_are_not_stored_twice(tmp_path: Path) -> None:
    plain, averaging = (checkpoint_bytes(RunFolder(tmp_path / str(on)), state(averaging=on)) for on in (False, True))
    assert plain < averaging


def test_the_classifier_is_found_in_a_run_and_in_a_bare_model_folder(run: RunFolder) -> None:
    one = Classifier(build("linear", (2,), 2, 0), "linear", ("a", "b"), (2,), np.array([0.5, 0.5]))
    run.save_classifiers(one, {})
    for folder in (run.path, run.path / "model"):
        found = RunFolder(folder).load_classifier()
        assert np.array_equal(found.predict_proba([[1.0, 2.0]]), one.predict_proba([[1.0, 2.0]]))


def test_a_folder_without_a_classifier_is_refused(run: RunFolder) -> None:
    with pytest.raises(InputError, match="no classifier in it; give the folder of a finished run"):
        run.load_classifier()


def test_the_checkpoint_of_another_run_is_refused(run: RunFolder, tmp_path: Path) -> None:
    other = RunFolder(tmp_path / "other")
    opened(other, with_training(seed=1), resume=False)
    other.save_state(state())
    target = run.path / "checkpoint" / "state.safetensors"
    target.write_bytes((other.path / "checkpoint" / "state.safetensors").read_bytes())
    with pytest.raises(InputError, match="is the checkpoint of another run"):
        opened(RunFolder(run.path), resume=True)
