"""Whatever an algorithm keeps at the server or at clients, a run that was stopped ends as one that was not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import fedul
from fedul._utils.files import tensors_digest
from fedul.core import Study
from fedul.models.weights import weights_of
from fedul.training import Run

from ..callbacks import StopAt
from ..factories import batch_norm_network, digits
from ..runs import without_seconds

ALGORITHMS: dict[str, dict[str, Any]] = {
    "scaffold": {"algorithm": "scaffold"},
    "fedbn": {"algorithm": "fedbn", "model": batch_norm_network},
    "fedadam": {"algorithm": "fedadam"},
    "fedavgm": {"algorithm": "fedavgm"},
    "scaffold with batch norm": {"algorithm": "scaffold", "model": batch_norm_network},
}
SETTINGS: dict[str, dict[str, Any]] = {
    "plain": {"averaging": 0},
    "half of the clients and a mean over rounds": {"participation": 0.5, "averaging": 0.8},
}
every_algorithm = pytest.mark.parametrize("algorithm", ALGORITHMS.values(), ids=ALGORITHMS)
every_setting = pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS)


def train(study: Study, **settings: Any) -> Run:
    return fedul.train(study, **{"rounds": 4, "batch_size": 128, "learning_rate": 0.01, **settings})


def assert_same_run(one: Run, other: Run) -> None:
    assert one.weights_sha256 == other.weights_sha256
    assert one.selected_round == other.selected_round
    assert tensors_digest(weights_of(one.classifier.module)) == tensors_digest(weights_of(other.classifier.module))
    histories = [without_seconds(run.history) for run in (one, other)]
    assert histories[0] == histories[1]


@every_setting
@every_algorithm
def test_a_run_that_is_given_more_rounds_ends_as_one_that_had_them_from_the_start(
    tmp_path: Path, algorithm: dict[str, Any], settings: dict[str, Any]
) -> None:
    options = {**algorithm, **settings, "out": tmp_path / "run", "checkpoint_every": 1}
    train(digits(4), rounds=2, **options)
    resumed = train(digits(4), rounds=3, resume=True, **options)
    assert_same_run(resumed, train(digits(4), rounds=3, **algorithm, **settings))


@every_setting
@every_algorithm
def test_a_run_killed_between_checkpoints_ends_as_one_that_was_not(
    tmp_path: Path, algorithm: dict[str, Any], settings: dict[str, Any]
) -> None:
    options = {**algorithm, **settings, "out": tmp_path / "run", "checkpoint_every": 2}
    with pytest.raises(KeyboardInterrupt):
        train(digits(4), callbacks=[StopAt(3)], **options)
    assert_same_run(train(digits(4), resume=True, **options), train(digits(4), **algorithm, **settings))


def test_a_run_killed_before_its_first_checkpoint_starts_with_clients_without_state(tmp_path: Path) -> None:
    options = {"algorithm": "scaffold", "out": tmp_path / "run", "checkpoint_every": 3}
    with pytest.raises(KeyboardInterrupt):
        train(digits(4), callbacks=[StopAt(2)], **options)
    assert list((tmp_path / "run" / "checkpoint" / "clients").iterdir())
    assert_same_run(train(digits(4), resume=True, **options), train(digits(4), algorithm="scaffold"))


def test_a_client_state_that_was_tampered_with_is_refused(tmp_path: Path) -> None:
    options = {"algorithm": "scaffold", "out": tmp_path / "run"}
    train(digits(4), rounds=1, **options)
    for file in (tmp_path / "run" / "checkpoint" / "clients").iterdir():
        content = bytearray(file.read_bytes())
        content[-1] ^= 1
        file.write_bytes(bytes(content))
    with pytest.raises(fedul.InputError, match="altered since it was written"):
        train(digits(4), rounds=2, resume=True, **options)
