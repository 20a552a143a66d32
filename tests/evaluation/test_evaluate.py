"""`fedul.evaluate` takes a run from memory or from its folder, and gives the same answer."""

from __future__ import annotations

from pathlib import Path

import pytest

import fedul
from fedul.methods.fedul import FedUL

from ..factories import digits

STUDY = digits(rows=500)


def test_a_run_in_memory_is_evaluated_as_one_in_a_folder_and_nothing_is_written(tmp_path: Path) -> None:
    stored = fedul.train(STUDY, rounds=2, seed=0, out=tmp_path / "RUN")
    in_memory = fedul.train(STUDY, rounds=2, seed=0)
    expected = fedul.evaluate(stored, folds=2)
    assert fedul.evaluate(in_memory, folds=2) == expected
    assert fedul.evaluate(tmp_path / "RUN", folds=2) == expected
    assert [path.name for path in tmp_path.iterdir()] == ["RUN"]


def test_a_run_from_arrays_is_evaluated_from_its_folder_if_its_data_is_given(tmp_path: Path) -> None:
    fedul.train(STUDY.federation, rounds=2, seed=0, out=tmp_path / "RUN")
    with pytest.raises(fedul.InputError, match="does not record its data"):
        fedul.evaluate(tmp_path / "RUN", folds=2)
    evaluation = fedul.evaluate(tmp_path / "RUN", study=fedul.Study(STUDY.federation, None), folds=2)
    assert 0 < evaluation.estimated_accuracy < 1
    other = digits(rows=400, seed=1)
    with pytest.raises(fedul.InputError, match="its data has changed"):
        fedul.evaluate(tmp_path / "RUN", study=other, folds=2)


class Renamed(FedUL):
    """A method that no registry knows."""


def test_a_method_object_is_remembered_by_the_run_and_asked_for_by_its_folder(tmp_path: Path) -> None:
    run = fedul.train(STUDY, method=Renamed(), rounds=1, seed=0, out=tmp_path / "RUN")
    expected = fedul.evaluate(run, folds=2)
    assert fedul.evaluate(tmp_path / "RUN", method=Renamed(), folds=2) == expected
    with pytest.raises(fedul.InputError, match="Renamed"):
        fedul.evaluate(tmp_path / "RUN", folds=2)
    with pytest.raises(fedul.InputError, match="give the objects it was trained with"):
        fedul.evaluate(tmp_path / "RUN", method=FedUL(), folds=2)
