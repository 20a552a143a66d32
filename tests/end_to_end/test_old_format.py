"""Files of an older version are refused by every command in one sentence that names both versions."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from fedul.experiments.comparison_record import VERSION as COMPARISON_VERSION
from fedul.training.run_record import VERSION as RUN_VERSION

from .checks import refuses
from .command import Fedul

OLD_RUN = {
    "format": "fedul-run",
    "version": 2,
    "software": {"fedul": "0.1.0", "torch": "2.6.0"},
    "data": {"data": "digits", "clients": 2, "validation": 0.2},
    "training": {"method": "fedul", "rounds": 3, "select": "validation"},
}


@pytest.fixture
def old_run(tmp_path: Path, finished_run: Path) -> Path:
    """A finished run, whose config.json is that of format 2."""
    (finished_run / "config.json").write_text(json.dumps(OLD_RUN))
    np.save(tmp_path / "rows.npy", np.zeros((3, 64)))
    return finished_run


@pytest.mark.usefixtures("old_run")
@pytest.mark.parametrize(
    "line",
    [
        "train --out RUN --resume --rounds 5",
        "train --out RUN",
        "evaluate RUN",
        "evaluate RUN --json",
        "report RUN",
        "predict RUN rows.npy",
        "predict RUN rows.npy --out predictions.csv",
        "export RUN --format onnx",
        "export RUN --format card",
    ],
)
def test_a_run_of_an_older_version_is_refused(fedul: Fedul, tmp_path: Path, line: str) -> None:
    refuses(fedul, tmp_path, line, f"RUN: written by another version of fedul (format 2, this one reads {RUN_VERSION})")


@pytest.mark.parametrize("line", ["compare --out OLD --resume", "compare --out OLD --resume --seeds 5 --json"])
def test_a_comparison_of_an_older_version_is_refused(fedul: Fedul, tmp_path: Path, line: str) -> None:
    (tmp_path / "OLD").mkdir()
    document = {"format": "fedul-comparison", "version": 1, "data": {"data": "digits"}, "training": {}}
    (tmp_path / "OLD/comparison.json").write_text(json.dumps(document))
    refuses(fedul, tmp_path, line, f"(format 1, this one reads {COMPARISON_VERSION})")
