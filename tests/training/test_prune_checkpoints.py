"""Checkpoints of the last and the best rounds are kept, and others deleted."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import fedul
from fedul.errors import InputError
from fedul.training.prune_checkpoints import kept_rounds, load_round

from ..factories import gaussian_study

SETTINGS = {"method": "fedul", "model": "linear", "rounds": 6, "checkpoint_every": 1}


def test_the_last_and_the_best_checkpoints_are_kept(tmp_path: Path) -> None:
    prune = fedul.PruneCheckpoints(keep_last=2, keep_best=1)
    run = fedul.train(gaussian_study(), **SETTINGS, learning_rate=0.3, out=tmp_path / "run", callbacks=[prune])
    losses = [metrics.held_out_loss for metrics in run.history]
    best = 1 + int(np.argmin(losses))
    assert kept_rounds(tmp_path / "run") == sorted({5, 6, best})


def test_a_kept_round_is_a_classifier_as_a_run_of_that_many_rounds_delivers(tmp_path: Path) -> None:
    study, prune = gaussian_study(), fedul.PruneCheckpoints(keep_last=3, keep_best=0)
    fedul.train(study, **SETTINGS, out=tmp_path / "run", callbacks=[prune])
    short = fedul.train(study, **{**SETTINGS, "rounds": 4}, select="last")
    rows = np.zeros((3, 2), dtype=np.float32) + np.arange(3, dtype=np.float32)[:, None]
    found = load_round(tmp_path / "run", 4).predict_proba(rows)
    assert np.allclose(found, short.classifier.predict_proba(rows), atol=1e-6)
    with pytest.raises(InputError, match=r"no checkpoint of round 2 is kept \(there are: 4, 5, 6\)"):
        load_round(tmp_path / "run", 2)


def test_a_resumed_run_prunes_what_it_kept_before(tmp_path: Path) -> None:
    study = gaussian_study()
    for rounds in (3, 6):
        prune = fedul.PruneCheckpoints(keep_last=2, keep_best=0)
        changed = {**SETTINGS, "rounds": rounds}
        fedul.train(study, **changed, out=tmp_path / "run", resume=True, callbacks=[prune])
    assert kept_rounds(tmp_path / "run") == [5, 6]


def test_a_finished_run_can_be_pruned_to_its_result(tmp_path: Path) -> None:
    prune = fedul.PruneCheckpoints(0, 0, when_finished=True)
    run = fedul.train(gaussian_study(), **SETTINGS, algorithm="scaffold", out=tmp_path / "run", callbacks=[prune])
    assert not list((tmp_path / "run" / "checkpoint").rglob("*.safetensors"))
    assert fedul.Classifier.load(tmp_path / "run" / "model").classes == run.classifier.classes


def test_numbers_of_checkpoints_are_checked() -> None:
    with pytest.raises(InputError, match="keep_last: expected a number of checkpoints"):
        fedul.PruneCheckpoints(keep_last=-1)
