"""A trained classifier leaves fedul as a file for other programs and as a card for people, as a user types it."""

from __future__ import annotations

import json
import subprocess
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from fedul.data import read_source
from fedul.exporting.onnx import silent_runtime

from ..runs import contents
from .checks import leftovers, refuses
from .command import COMMAND, Fedul, environment

with_onnx = pytest.mark.skipif(
    find_spec("onnx") is None or find_spec("onnxruntime") is None, reason="the extra fedul[onnx] is not installed"
)


@with_onnx
def test_the_file_predicts_as_the_command_does(fedul: Fedul, finished_run: Path) -> None:
    rows = read_source("digits").test_inputs[:20].numpy()
    np.save(finished_run.parent / "rows.npy", rows)
    mix = "0=0.91," + ",".join(f"{k}=0.01" for k in range(1, 10))
    outcome = fedul(f"export RUN --format onnx --prior {mix} --out new/digits.onnx --json")
    assert (outcome.code, outcome.err) == (0, "")
    assert outcome.document["files"] == ["new/digits.onnx"]
    assert outcome.document["largest_difference"] <= 1e-5
    document = fedul(f"predict RUN rows.npy --prior {mix} --json").document
    file = finished_run.parent / "new/digits.onnx"
    session = silent_runtime().InferenceSession(file, providers=["CPUExecutionProvider"])
    names, probabilities = session.run(None, {"X": rows.astype(np.float32)})
    assert list(names) == document["class"]
    np.testing.assert_allclose(probabilities, document["probabilities"], atol=1e-5)
    assert leftovers(finished_run.parent) == []


def test_a_card_is_written_as_json_and_as_markdown_and_may_be_written_again(fedul: Fedul, finished_run: Path) -> None:
    for _ in range(2):
        outcome = fedul("export RUN --format card")
        assert (outcome.code, outcome.err) == (0, "")
        assert "RUN/model-card.json and RUN/model-card.md" in outcome.out
    card = json.loads((finished_run / "model-card.json").read_text())
    assert card["training_data"]["source"] == "digits"
    assert card["figures_with_labels"]["test_error"] < 1
    assert "## Limits" in (finished_run / "model-card.md").read_text()
    assert fedul("export RUN --format card --out card.md --prior uniform --json").document["card"] == card
    assert fedul("train --out RUN --resume --rounds 4").code == 0


@with_onnx
def test_the_comparison_leaves_nothing_in_the_home_of_the_user(finished_run: Path) -> None:
    home = finished_run.parent / "home"
    home.mkdir()
    own = environment(HOME=str(home), XDG_CACHE_HOME=str(home / "cache"))
    line = [*COMMAND, *["export", "RUN", "--format", "onnx"]]
    done = subprocess.run(line, cwd=finished_run.parent, env=own, check=True, capture_output=True)
    assert done.stderr == b""
    assert not [path for path in home.rglob("*") if "onnx" in path.name.lower()]


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("export RUN --format onyx", "unknown format 'onyx': did you mean 'onnx'?"),
        ("export NOWHERE --format card", "no classifier in it"),
        ("export RUN/model --format card", "holds no run"),
        ("export RUN --format onnx --out RUN/config.json", "an ONNX file ends in .onnx"),
        ("export RUN --format card --out RUN/config.json", "exists already and is not a model card"),
        ("export RUN --format card --out card.pdf", "a model card is a .json and a .md"),
        ("export RUN --format card --prior 0=1", "no share for class '1'"),
    ],
)
def test_what_cannot_be_exported_is_refused_and_nothing_is_written(
    fedul: Fedul, finished_run: Path, line: str, complaint: str
) -> None:
    refuses(fedul, finished_run.parent, line, complaint)


@with_onnx
def test_an_export_that_does_not_fit_on_the_disk_leaves_nothing(fedul: Fedul, finished_run: Path) -> None:
    before = contents(finished_run.parent)
    outcome = fedul("export RUN --format onnx", largest_file=1000)
    assert outcome.code == 1
    assert "could not write RUN/model.onnx" in outcome.err
    assert contents(finished_run.parent) == before
