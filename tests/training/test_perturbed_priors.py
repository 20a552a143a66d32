"""Class priors of a run are perturbed once; every command uses the stored draw."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedul
from fedul._utils.files import read_tensors
from fedul.errors import InputError
from fedul.training.perturbed_priors import read_perturbed
from fedul.training.run_data import load_run_data
from fedul.training.run_files import CONFIG, PERTURBED_PRIORS

from ..factories import gaussian_study

SETTINGS: dict[str, Any] = {"rounds": 1, "method": "fedul", "prior_epsilon": 2.0, "choose": "off"}


class Collect(fedul.Callback):
    """Collects warnings."""

    def __init__(self) -> None:
        self.warnings: list[str] = []

    def on_warning(self, message: str) -> None:
        self.warnings.append(message)


def train(out: Path | None = None, **settings: Any) -> fedul.Run:
    study = gaussian_study(["north", "south"], rows=20)
    return fedul.train(study, out=out, force=True, **{**SETTINGS, "callbacks": [Collect()], **settings})


def priors_of(run: fedul.Run) -> np.ndarray:
    assert run.study is not None
    return run.study.federation.columns.stacked_priors


def test_a_run_uses_the_stored_draw_and_another_folder_draws_again(tmp_path: Path) -> None:
    first = train(tmp_path / "first")
    stored = read_perturbed(tmp_path / "first")
    assert stored is not None
    assert stored.epsilon == 2.0
    assert np.array_equal(priors_of(first), stored.priors)
    resumed = train(tmp_path / "first", rounds=2, resume=True)
    assert np.array_equal(priors_of(resumed), stored.priors)
    assert not np.array_equal(priors_of(train(tmp_path / "second")), stored.priors)
    exact = gaussian_study(["north", "south"], rows=20).federation.columns.stacked_priors
    assert np.abs(exact - stored.priors).max() > 0.01


def test_the_draw_is_stored_before_anything_else(tmp_path: Path) -> None:
    first = train(tmp_path / "run")
    for file in list((tmp_path / "run").iterdir()):  # as if it was killed before the record was written
        if file.name != PERTURBED_PRIORS:
            shutil.rmtree(file) if file.is_dir() else file.unlink()
    assert np.array_equal(priors_of(train(tmp_path / "run", resume=True)), priors_of(first))


def test_another_epsilon_is_another_run(tmp_path: Path) -> None:
    train(tmp_path / "run")
    before = (tmp_path / "run" / PERTURBED_PRIORS).read_bytes()
    for epsilon, here in ((3.0, "3"), (None, "not given")):
        with pytest.raises(InputError, match=f"prior-epsilon is 2 there, {here} here"):
            train(tmp_path / "run", prior_epsilon=epsilon, resume=True)
    assert (tmp_path / "run" / PERTURBED_PRIORS).read_bytes() == before


def test_noise_follows_from_the_seed_in_a_simulation_that_says_so() -> None:
    one, other, third = (priors_of(train(dp_seeded=True, seed=seed)) for seed in (1, 1, 2))
    assert np.array_equal(one, other)
    assert not np.array_equal(one, third)


def test_data_of_a_run_is_loaded_with_its_perturbed_priors(tmp_path: Path) -> None:
    study = fedul.load("digits", clients=2, sets=10, rows=400)
    run = fedul.train(study, out=tmp_path / "run", callbacks=[Collect()], **SETTINGS)
    assert run.record is not None
    assert any("a row in several sets as a whole" in text for text in run.result.privacy[0].not_covered)
    loaded = load_run_data(run.record, tmp_path / "run")
    assert np.array_equal(loaded.federation.columns.stacked_priors, priors_of(run))
    evaluation = fedul.evaluate(tmp_path / "run", folds=2, callbacks=[Collect()])
    assert evaluation.estimated_accuracy > 0
    folds = sorted((tmp_path / "run" / "evaluation").glob(f"*/{PERTURBED_PRIORS}"))
    assert folds == []  # the folds use the perturbed priors of the run, and draw none


def test_a_damaged_draw_is_refused(tmp_path: Path) -> None:
    train(tmp_path / "run")
    file = tmp_path / "run" / PERTURBED_PRIORS
    file.write_bytes(file.read_bytes()[:-3])
    with pytest.raises(InputError, match=r"damaged|truncated|altered"):
        train(tmp_path / "run", resume=True)


def test_a_warning_states_the_noise_beside_the_sizes_of_sets(tmp_path: Path) -> None:
    collect = Collect()
    train(prior_epsilon=1.0, callbacks=[collect])
    stated = [message for message in collect.warnings if "class priors are perturbed" in message]
    assert len(stated) == 1
    assert "standard deviation of 2.8 rows" in stated[0]


def test_the_folder_holds_no_exact_priors(tmp_path: Path) -> None:
    run = train(tmp_path / "run")
    exact = gaussian_study(["north", "south"], rows=20).federation
    tensors, _ = read_tensors(tmp_path / "run" / PERTURBED_PRIORS)
    assert not np.isin(exact.columns.stacked_priors, tensors["priors"].numpy()).any()
    assert exact.fingerprint() not in (tmp_path / "run" / CONFIG).read_text()
    assert run.record is not None
    assert run.record.data_fingerprint != exact.fingerprint()
