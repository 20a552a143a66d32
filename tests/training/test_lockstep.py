"""Runs on parts of a federation that train together end as each of them alone."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import fedul
from fedul.core import Federation, RoundMetrics
from fedul.engines.simulation.joint import JointEngine
from fedul.errors import FedulError
from fedul.methods.base import Alternative
from fedul.methods.fedul import FedUL
from fedul.training import (
    Callback,
    CallbackList,
    CollectWarnings,
    Recipe,
    Run,
    RunFolder,
    RunInfo,
    RunResult,
    train_parts,
)

from ..factories import dense_network, gaussian_study, seeded_network

METHODS: list[tuple[str, dict[str, Any]]] = [
    ("fedul", {}),
    ("fedllp", {}),
    ("fedul-refined", {"earliest": 1, "latest": 3}),
    ("fedul-combined", {"consistency_weight": 0.3, "trust": 0.75, "earliest": 1, "latest": 3}),
    ("fedul-combined", {"soft_weight": 0.2, "common_mix": False}),
]
ALGORITHMS = ["fedavg", "fedprox", "scaffold", "fedadam", "fednova", "median"]
SETTINGS: dict[str, Any] = {
    "rounds": 6,
    "batch_size": 8,
    "learning_rate": 0.02,
    "optimizer": "adam",
    "l2": 0.01,
    "seed": 3,
}


def parts() -> list[Federation]:
    """Three parts of a federation in which clients have different numbers of rows and sets."""
    names, rows = ["north", "south", "west"], [5, 9, 14, 20, 7]
    federation = gaussian_study(names, rows=rows, sets=5, dtype=np.float64).federation
    kept = [([0, 1, 2, 3], [1, 2, 3], [0, 2, 4]), ([0, 4], [0, 1, 2, 3], [1, 2, 3]), ([1, 2], [0, 4], [0, 1, 3, 4])]
    return [
        replace(federation, clients=[c.with_sets(list(s)) for c, s in zip(federation.clients, sets, strict=True)])
        for sets in kept
    ]


def train_all(
    recipe: Recipe,
    federations: Sequence[Federation],
    *,
    out: Path | None = None,
    callback: Callback | None = None,
    resume: bool = False,
) -> list[Run]:
    folders = [None if out is None else out / str(number) for number in range(len(federations))]
    infos = [RunInfo(0, f"part {n}", n + 1, len(federations), folder=each) for n, each in enumerate(folders)]
    # Few sets cannot determine the classifier alone, which is a warning.
    callbacks = CallbackList([callback or Callback(), CollectWarnings()])
    return list(train_parts(federations, recipe, infos, callbacks, resume=resume))


def train_alone(recipe: Recipe, federations: Sequence[Federation]) -> list[Run]:
    return [train_all(recipe, [each])[0] for each in federations]


@dataclass
class CountTogether(Callback):
    """Remembers how many runs train together, and results of runs that ended."""

    def __post_init__(self) -> None:
        self.joint_runs: list[int] = []
        self.results: list[RunResult | None] = []

    def on_run_start(self, run: RunInfo) -> None:
        self.joint_runs.append(run.joint_runs)

    def on_run_end(self, run: RunInfo, result: RunResult | None) -> None:
        self.results.append(result)


def assert_same_runs(found: Sequence[Run], expected: Sequence[Run], tolerance: float = 1e-6) -> None:
    for one, other in zip(found, expected, strict=True):
        assert len(one.history) == len(other.history)
        assert one.result.selected_round == other.result.selected_round
        for mine, alone in zip(one.history, other.history, strict=True):
            assert mine.loss == pytest.approx(alone.loss, rel=tolerance)
            assert mine.held_out_loss == pytest.approx(alone.held_out_loss, rel=tolerance)
            assert (mine.clients, mine.directive) == (alone.clients, alone.directive)
        weights = other.classifier.module.state_dict()
        for name, tensor in one.classifier.module.state_dict().items():
            torch.testing.assert_close(tensor, weights[name], rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize(("method", "options"), METHODS)
@pytest.mark.parametrize("algorithm", ["fedavg", "scaffold"])
def test_parts_that_train_together_end_as_alone_under_every_method(
    method: str, options: dict[str, Any], algorithm: str
) -> None:
    settings = {**SETTINGS, "method": method, "method_option": options, "algorithm": algorithm}
    recipe, seen = Recipe.of(None, settings, model=seeded_network), CountTogether()
    runs = train_all(recipe, parts(), callback=seen)
    assert seen.joint_runs == [3, 3, 3]
    assert_same_runs(runs, train_alone(recipe, parts()))


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("participation", [1.0, 0.5])
def test_parts_that_train_together_end_as_alone_under_every_algorithm(algorithm: str, participation: float) -> None:
    settings = {**SETTINGS, "algorithm": algorithm, "participation": participation, "optimizer": "sgd"}
    recipe = Recipe.of(None, {**settings, "method": "fedul-combined", "l2": 0.01}, model=seeded_network)
    assert_same_runs(train_all(recipe, parts()), train_alone(recipe, parts()))


@pytest.mark.parametrize("workers", [1, 2])
def test_the_number_of_workers_changes_nothing(workers: int) -> None:
    recipe = Recipe.of(None, {**SETTINGS, "method": "fedul-combined", "workers": workers}, model=seeded_network)
    assert_same_runs(train_all(recipe, parts()), train_alone(recipe, parts()))


def test_a_part_that_stops_early_leaves_the_others() -> None:
    settings = {**SETTINGS, "rounds": 25, "patience": 2, "method": "fedul", "learning_rate": 0.1}
    recipe = Recipe.of(None, settings, model=seeded_network)
    runs = train_all(recipe, parts())
    assert len({len(run.history) for run in runs}) > 1
    assert_same_runs(runs, train_alone(recipe, parts()))


def test_parts_of_one_client_train_together() -> None:
    federations = [replace(part, clients=part.clients[:1]) for part in parts()]
    recipe, seen = Recipe.of(None, {**SETTINGS, "method": "fedul"}, model=seeded_network), CountTogether()
    assert_same_runs(train_all(recipe, federations, callback=seen), train_alone(recipe, federations))
    assert seen.joint_runs == [3, 3, 3]


class ModeDependent(nn.Module):
    """A network that predicts something else in evaluation mode."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(2, 3).double()

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.layer(rows)
        return logits if self.training else 2 * logits


@pytest.mark.parametrize(
    "model",
    [
        lambda shape, classes: dense_network(shape, classes, nn.Dropout()),
        lambda shape, classes: dense_network(shape, classes, nn.BatchNorm1d(6).double()),
        lambda shape, classes: ModeDependent(),
    ],
)
def test_networks_that_cannot_be_vectorized_train_one_after_another(model: Any) -> None:
    recipe, seen = Recipe.of(None, {**SETTINGS, "rounds": 1, "method": "fedul"}, model=model), CountTogether()
    train_all(recipe, parts(), callback=seen)
    assert seen.joint_runs == [1, 1, 1]


def test_runs_with_different_frozen_weights_train_one_after_another(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[nn.Module] = []

    def model(shape: tuple[int, ...], classes: int) -> nn.Module:
        made.append(dense_network(shape, classes))
        first = next(made[-1].parameters())
        first.data.fill_(len(made) / 10)
        first.requires_grad_(False)
        return made[-1]

    joined: list[object] = []
    monkeypatch.setattr(JointEngine, "train", lambda *args: joined.append(args))
    runs = train_all(Recipe.of(None, {**SETTINGS, "rounds": 1, "method": "fedul"}, model=model), parts())
    assert len(runs) == 3
    assert not joined


class Fails(Callback):
    """Raises in a round of a run."""

    def __init__(self, number: int, round_number: int, error: BaseException) -> None:
        self._number, self._round, self._error = number, round_number, error
        self.results: list[RunResult | None] = []

    def on_round_end(self, run: RunInfo, metrics: RoundMetrics) -> None:
        if (run.number, metrics.round) == (self._number, self._round):
            raise self._error

    def on_run_end(self, run: RunInfo, result: RunResult | None) -> None:
        self.results.append(result)


@pytest.mark.parametrize("error", [KeyboardInterrupt(), FedulError("diverged")])
@pytest.mark.parametrize("workers", [1, 2])
def test_an_error_in_one_part_ends_all_and_they_can_be_resumed(
    error: BaseException, workers: int, tmp_path: Path
) -> None:
    settings = {**SETTINGS, "algorithm": "scaffold", "checkpoint_every": 1, "workers": workers}
    recipe = Recipe.of(None, {**settings, "method": "fedul-combined"}, model=seeded_network)
    threads, callback = threading.active_count(), Fails(2, 3, error)
    with pytest.raises(type(error)):
        train_all(recipe, parts(), out=tmp_path, callback=callback)
    assert callback.results == [None, None, None]
    assert threading.active_count() == threads
    for number in range(3):
        RunFolder(tmp_path / str(number)).check_free()
    # The first part has had three rounds now, the others two.
    resumed = train_all(recipe, parts(), out=tmp_path, resume=True)
    assert_same_runs(resumed, train_alone(recipe, parts()))


def test_an_interrupted_batch_ends_all_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(self: JointEngine, requests: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(JointEngine, "train", interrupt)
    seen = CountTogether()
    recipe = Recipe.of(None, {**SETTINGS, "method": "fedul"}, model=seeded_network)
    with pytest.raises(KeyboardInterrupt):
        train_all(recipe, parts(), callback=seen)
    assert seen.results == [None, None, None]


def test_parts_that_are_trained_already_are_not_trained_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recipe = Recipe.of(None, {**SETTINGS, "method": "fedul"}, model=seeded_network)
    first = train_all(recipe, parts(), out=tmp_path)
    monkeypatch.setattr(JointEngine, "train", lambda *_: pytest.fail("a finished run trains"))
    assert_same_runs(train_all(recipe, parts(), out=tmp_path, resume=True), first, tolerance=0)


@dataclass(frozen=True)
class TwoRates(FedUL):
    """FedUL with two alternatives."""

    def alternatives(self, shape: tuple[int, ...], sets: int | None) -> Sequence[Alternative]:
        return [Alternative(str(rate), training={"learning_rate": rate}) for rate in (0.01, 0.1)]


def test_the_parts_of_a_choice_train_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedul.training.recipe.make_method", lambda *_: TwoRates())
    seen = CountTogether()
    study = gaussian_study(["north", "south", "west"], rows=15, sets=6)
    run = fedul.train(study, method="fedul", model="linear", rounds=2, seed=0, callbacks=[seen])
    assert run.result.choice is not None
    assert len(run.result.choice.alternatives) == 2
    assert seen.joint_runs == [3] * 6 + [1]


def test_folds_of_an_evaluation_train_together(tmp_path: Path) -> None:
    study = gaussian_study(["north", "south", "west"], rows=15, sets=6)
    run = fedul.train(study, method="fedul", model="linear", rounds=2, seed=0, out=tmp_path / "run")
    seen = CountTogether()
    fedul.evaluate(run, folds=4, callbacks=[seen])
    assert seen.joint_runs == [4] * 4
    assert all((tmp_path / "run" / "evaluation" / f"fold-{n}-of-4" / "result.json").is_file() for n in (1, 2, 3, 4))
