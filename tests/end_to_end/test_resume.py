from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from ..runs import contents
from .checks import is_one_sentence, leftovers
from .command import Fedul, Outcome, Warm

TRAIN = "train --rounds 8 --clients 3 --checkpoint-every 1 --threads 1 --out RUN --json"
CHECKPOINT = "RUN/checkpoint/state.safetensors"
METRICS = "RUN/metrics.jsonl"


@dataclass(frozen=True)
class Whole:
    """An uninterrupted run: its weights, and the seconds that it takes."""

    sha256: str
    seconds: float


@pytest.fixture(scope="module")
def whole(warm: Warm, tmp_path_factory: pytest.TempPathFactory) -> Whole:
    training = warm.start(TRAIN, tmp_path_factory.mktemp("whole"))
    began = time.monotonic()
    sha256 = training.outcome().document["weights_sha256"]
    return Whole(sha256, time.monotonic() - began)


def is_writing(folder: Path) -> bool:
    with contextlib.suppress(FileNotFoundError):
        return any(name.startswith(".") for name in os.listdir(folder))
    return False


def is_whole(folder: Path, outcome: Outcome, whole: Whole) -> bool:
    rounds = [json.loads(line)["round"] for line in (folder / METRICS).read_text().splitlines()]
    return (
        outcome.code == 0
        and outcome.document["weights_sha256"] == whole.sha256
        and rounds == list(range(1, 9))
        and leftovers(folder) == []
    )


@pytest.mark.parametrize("tenth", range(0, 10, 2))
def test_a_run_killed_at_a_random_moment_ends_with_the_same_weights_when_resumed(
    warm: Warm, tmp_path: Path, whole: Whole, tenth: int
) -> None:
    training = warm.start(TRAIN, tmp_path)
    time.sleep((tenth + random.Random(tenth).random()) / 10 * whole.seconds)
    training.send(signal.SIGKILL)
    training.outcome()
    assert is_whole(tmp_path, warm.run(f"{TRAIN} --resume", tmp_path), whole)


@pytest.mark.parametrize("part", ["RUN", "RUN/checkpoint", "RUN/model"])
def test_a_run_killed_while_it_writes_a_file_ends_with_the_same_weights_when_resumed(
    warm: Warm, tmp_path: Path, whole: Whole, part: str
) -> None:
    training = warm.start(TRAIN, tmp_path)
    training.wait_until(lambda: is_writing(tmp_path / part))
    training.send(signal.SIGKILL)
    training.outcome()
    assert is_whole(tmp_path, warm.run(f"{TRAIN} --resume", tmp_path), whole)


def test_a_run_killed_again_and_again_ends_with_the_same_weights(warm: Warm, tmp_path: Path, whole: Whole) -> None:
    for wanted in range(1, 8):
        training = warm.start(f"{TRAIN} --resume", tmp_path)
        training.wait_until(lambda wanted=wanted: rounds_done(tmp_path) >= wanted)
        training.send(signal.SIGKILL)
        training.outcome()
    assert is_whole(tmp_path, warm.run(f"{TRAIN} --resume", tmp_path), whole)


def rounds_done(folder: Path) -> int:
    metrics = folder / METRICS
    return len(metrics.read_text().splitlines()) if metrics.exists() else 0


@pytest.fixture(scope="module")
def first_round(warm: Warm, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("first")
    warm.run(TRAIN.replace("--rounds 8", "--rounds 1"), folder)
    return folder / "RUN"


@pytest.fixture
def begun(first_round: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(first_round, tmp_path / "RUN"))


def test_resume_needs_no_option_but_the_folder(fedul: Fedul, begun: Path, whole: Whole, tmp_path: Path) -> None:
    assert is_whole(tmp_path, fedul("train --resume --out RUN --rounds 8 --json"), whole)
    assert json.loads((begun / "config.json").read_text())["training"]["rounds"] == 8


def test_a_finished_run_can_be_resumed_without_effect(
    finished_run: Path, canonical: tuple[Path, Outcome], fedul: Fedul, tmp_path: Path
) -> None:
    before = contents(tmp_path)
    assert fedul("train --resume --out RUN --json").document == canonical[1].document
    weights = {"RUN/model/weights.safetensors": ""}
    assert {**contents(tmp_path), **weights} == {**before, **weights}


def test_metrics_that_a_kill_prevented_are_written_on_resume(
    finished_run: Path, canonical: tuple[Path, Outcome], fedul: Fedul
) -> None:
    metrics = (finished_run / "metrics.jsonl").read_bytes()
    (finished_run / "metrics.jsonl").write_bytes(metrics[: metrics.index(b"\n") + 1])
    shutil.rmtree(finished_run / "model")
    assert fedul("train --resume --out RUN --json").document == canonical[1].document
    assert (finished_run / "metrics.jsonl").read_bytes() == metrics
    assert (finished_run / "model/classifier.json").exists()


def test_a_run_of_another_release_with_the_same_format_can_be_resumed(finished_run: Path, fedul: Fedul) -> None:
    stored = json.loads((finished_run / "config.json").read_text())
    (finished_run / "config.json").write_text(json.dumps({**stored, "software": {"fedul": "0.0.9", "torch": "2.6"}}))
    assert fedul("train --resume --out RUN --rounds 4").code == 0


def test_leftovers_of_an_interrupted_write_are_removed_on_resume(finished_run: Path, fedul: Fedul) -> None:
    (finished_run / "checkpoint/.writing-abc").write_bytes(b"half a checkpoint")
    assert fedul("train --resume --out RUN").code == 0
    assert leftovers(finished_run) == []


def test_leftovers_of_a_kill_before_the_first_file_do_not_stay(fedul: Fedul, tmp_path: Path) -> None:
    (tmp_path / "RUN").mkdir()
    (tmp_path / "RUN/.writing-abc").write_bytes(b"{")
    assert fedul("train --resume --data digits --out RUN --rounds 1").code == 0
    assert leftovers(tmp_path) == []


def test_nothing_is_trained_where_there_is_no_run_to_continue(fedul: Fedul, tmp_path: Path) -> None:
    outcome = fedul("train --resume --out TYPO --rounds 1")
    assert (outcome.code, outcome.out) == (2, "")
    assert "TYPO: holds no run to continue; correct --out, or give the whole command." in outcome.err
    assert list(tmp_path.iterdir()) == []


def test_a_run_stopped_by_hand_says_how_to_continue(warm: Warm, tmp_path: Path) -> None:
    training = warm.start(TRAIN.replace("--rounds 8", "--rounds 200"), tmp_path)
    training.wait_until(lambda: rounds_done(tmp_path) >= 1)
    training.send(signal.SIGINT)
    stopped = training.outcome()
    assert (stopped.code, stopped.out) == (130, "")
    assert is_one_sentence(stopped.err)
    assert "--resume" in stopped.err
    rounds = rounds_done(tmp_path) + 1
    gone_on = warm.run(f"train --out RUN --resume --rounds {rounds} --json", tmp_path)
    assert (gone_on.code, gone_on.document["rounds"]) == (0, rounds)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    disk = tmp_path / "disk"
    disk.mkdir()
    mounting = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=160k", "tmpfs", str(disk)], capture_output=True)
    if mounting.returncode:
        pytest.skip("no right to mount a small disk here; the test with a limited file size covers the same code")
    try:
        yield disk
    finally:
        subprocess.run(["umount", str(disk)], check=True)


@pytest.mark.skipif(shutil.which("mount") is None, reason="this system has no mount command")
def test_a_full_disk_loses_only_the_rounds_since_the_last_checkpoint(
    warm: Warm, small_disk: Path, whole: Whole
) -> None:
    outcome = warm.run(TRAIN, small_disk)
    assert (outcome.code, outcome.out) == (1, "")
    assert is_one_sentence(outcome.err)
    assert "No space left on device" in outcome.err
    assert leftovers(small_disk) == []
    assert (small_disk / CHECKPOINT).exists()
    assert 1 <= rounds_done(small_disk) < 8

    subprocess.run(["mount", "-o", "remount,size=4m", str(small_disk)], check=True)
    assert is_whole(small_disk, warm.run(f"{TRAIN} --resume", small_disk), whole)


def test_a_checkpoint_that_cannot_be_written_leaves_the_last_one_intact(
    fedul: Fedul, tmp_path: Path, begun: Path, whole: Whole
) -> None:
    before = contents(tmp_path)
    outcome = fedul(f"{TRAIN} --resume", largest_file=32 * 1024)
    assert (outcome.code, outcome.out) == (1, "")
    assert is_one_sentence(outcome.err)
    assert "File too large" in outcome.err
    changed = {"RUN/config.json": "", "RUN/status.json": ""}  # the rounds that were asked for, and the failure
    assert {**contents(tmp_path), **changed} == {**before, **changed}

    assert is_whole(tmp_path, fedul(f"{TRAIN} --resume"), whole)
