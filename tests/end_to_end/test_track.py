"""`--track` on the command line, and how wrong options are refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from ..tracking.events import read_events, scalars
from .checks import refuses
from .command import Fedul

TRAIN = "train --data digits --clients 2 --rows 400 --method fedul --rounds 2 --seed 0"


def test_a_run_of_the_command_line_is_recorded(fedul: Fedul, tmp_path: Path) -> None:
    assert fedul(f"{TRAIN} --out RUN --track tensorboard --tracking-uri logs").code == 0
    assert [step for step, _ in scalars(read_events(tmp_path / "logs" / "RUN"), "sites/client-1/loss")] == [1, 2]
    assert fedul(f"{TRAIN} --out RUN --resume --rounds 3 --track tensorboard --tracking-uri logs").code == 0
    assert [step for step, _ in scalars(read_events(tmp_path / "logs" / "RUN"), "loss")] == [1, 2, 3]


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ("--track mlfow", "track: 'mlfow' is not one of mlflow, tensorboard"),
        ("--track mlflow --tracking-uri ftp://example.org", "'ftp://example.org' is no address of MLflow"),
        ("--track mlflow --tracking-uri http://", "'http://' is no address of MLflow"),
        ("--track mlflow --tracking-uri runs", "'runs' is no address of MLflow"),
        ("--track tensorboard --tracking-uri http://127.0.0.1", "is no folder, and tensorboard takes one"),
        ("--track tensorboard --experiment mine", "experiment: is for mlflow"),
        ("--tracking-uri runs.db", "tracking-uri: is for a tracker; add track"),
    ],
)
def test_wrong_options_of_trackers_are_refused(fedul: Fedul, tmp_path: Path, options: str, complaint: str) -> None:
    refuses(fedul, tmp_path, f"{TRAIN} --out RUN {options}", complaint)
    assert not (tmp_path / "RUN").exists()


def test_mlflow_needs_an_address(fedul: Fedul) -> None:
    refused = fedul(f"{TRAIN} --track mlflow", names={"MLFLOW_TRACKING_URI": ""})
    assert refused.code == 2
    assert "needs the address of a server or a file" in refused.err


@pytest.mark.parametrize(("name", "tracker"), [("mlflow", "MLflow"), ("tensorboard", "TensorBoard")])
def test_a_tracker_that_is_not_installed_names_its_extra(
    fresh_fedul: Fedul, tmp_path: Path, name: str, tracker: str
) -> None:
    (tmp_path / "without").mkdir()
    (tmp_path / "without" / "sitecustomize.py").write_text(f"import sys\nsys.modules['{name}'] = None\n")
    path = f"{tmp_path / 'without'}:{Path(__file__).parents[2] / 'src'}"
    refused = fresh_fedul(f"{TRAIN} --track {name} --tracking-uri runs.db", names={"PYTHONPATH": path})
    assert refused.code == 2
    assert f"{tracker} is not installed; install fedul with it: pip install 'fedul[{name}]'." in refused.err


def test_a_folder_that_cannot_be_written_ends_the_command_at_the_start(fedul: Fedul, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    refused = fedul(f"{TRAIN} --out RUN --track tensorboard --tracking-uri file/logs")
    assert refused.code == 1
    assert refused.err.strip().count("\n") == 0
    assert not (tmp_path / "RUN").exists()
