"""Whatever an algorithm keeps at the server or at clients, a run that was stopped ends as one that was not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from torch import nn

import fedul
from fedul.files import tensors_digest
from fedul.models.weights import weights_of
from fedul.training import Run
from fedul.truth import Study

from ..stopping import StopAt


def with_batch_norm(shape: tuple[int, ...], classes: int) -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, classes))


ALGORITHMS: dict[str, dict[str, Any]] = {
    "scaffold": {"algorithm": "scaffold"},
    "fedbn": {"algorithm": "fedbn", "model": with_batch_norm},
    "fedadam": {"algorithm": "fedadam"},
    "fedavgm": {"algorithm": "fedavgm"},
    "scaffold with batch norm": {"algorithm": "scaffold", "model": with_batch_norm},
}
SETTINGS: dict[str, dict[str, Any]] = {
    "plain": {"averaging": 0},
    "half of the clients and a mean over rounds": {"participation": 0.5, "averaging": 0.8},
}
every_algorithm = pytest.mark.parametrize("algorithm", ALGORITHMS.values(), ids=ALGORITHMS)
every_setting = pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS)


@pytest.fixture(scope="module")
def digits() -> Study:
    return fedul.load("digits", clients=4)


def train(study: Study, **settings: Any) -> Run:
    return fedul.train(study, **{"rounds": 4, "batch_size": 128, "learning_rate": 0.01, **settings})


def assert_same_run(one: Run, other: Run) -> None:
    assert one.weights_sha256 == other.weights_sha256
    assert one.selected_round == other.selected_round
    assert tensors_digest(weights_of(one.classifier.module)) == tensors_digest(weights_of(other.classifier.module))
    figures = [[{k: v for k, v in line.items() if k != "seconds"} for line in run.history] for run in (one, other)]
    assert figures[0] == figures[1]


@every_setting
@every_algorithm
def test_a_run_that_is_given_more_rounds_ends_as_one_that_had_them_from_the_start(
    digits: Study, tmp_path: Path, algorithm: dict[str, Any], settings: dict[str, Any]
) -> None:
    options = {**algorithm, **settings, "out": tmp_path / "run", "checkpoint_every": 1}
    train(digits, rounds=2, **options)
    resumed = train(digits, rounds=3, resume=True, **options)
    assert_same_run(resumed, train(digits, rounds=3, **algorithm, **settings))


@every_setting
@every_algorithm
def test_a_run_killed_between_checkpoints_ends_as_one_that_was_not(
    digits: Study, tmp_path: Path, algorithm: dict[str, Any], settings: dict[str, Any]
) -> None:
    options = {**algorithm, **settings, "out": tmp_path / "run", "checkpoint_every": 2}
    with pytest.raises(KeyboardInterrupt):
        train(digits, reporter=StopAt(3), **options)
    assert_same_run(train(digits, resume=True, **options), train(digits, **algorithm, **settings))


def test_a_run_killed_before_its_first_checkpoint_starts_with_clients_that_kept_nothing(
    digits: Study, tmp_path: Path
) -> None:
    options = {"algorithm": "scaffold", "out": tmp_path / "run", "checkpoint_every": 3}
    with pytest.raises(KeyboardInterrupt):
        train(digits, reporter=StopAt(2), **options)
    assert list((tmp_path / "run" / "checkpoint" / "clients").iterdir())
    assert_same_run(train(digits, resume=True, **options), train(digits, algorithm="scaffold"))


def test_what_a_client_kept_and_someone_tampered_with_is_refused(digits: Study, tmp_path: Path) -> None:
    options = {"algorithm": "scaffold", "out": tmp_path / "run"}
    train(digits, rounds=1, **options)
    for file in (tmp_path / "run" / "checkpoint" / "clients").iterdir():
        content = bytearray(file.read_bytes())
        content[-1] ^= 1
        file.write_bytes(bytes(content))
    with pytest.raises(fedul.InputError, match="altered since it was written"):
        train(digits, rounds=2, resume=True, **options)
