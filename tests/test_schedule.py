"""The learning rate follows its schedule: as maths, over the rounds of a run, resumed, and at sites."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import fedul
from fedul import InputError, TrainConfig
from fedul.config.schedule import SCHEDULES, rate_share
from fedul.engines.simulation.optimizers import SGD, make_optimizer
from fedul.models.weights import weights_of
from fedul.training.early_stopping import FIXED_ROUNDS, resolve_rounds

from .worlds import repeatable

SETTINGS = {"method": "fedul", "optimizer": "sgd", "momentum": 0.9, "learning_rate": 0.1, "schedule": "triangular"}


def shares(schedule: str, rounds: int) -> list[float]:
    return [rate_share(schedule, number, rounds) for number in range(1, rounds + 1)]


@repeatable
@given(st.sampled_from(SCHEDULES), st.integers(1, 300))
def test_every_round_has_a_rate_above_zero_and_one_has_the_rate_that_is_set(schedule: str, rounds: int) -> None:
    found = shares(schedule, rounds)
    assert min(found) > 0
    assert max(found) == 1


@repeatable
@given(st.integers(1, 300))
def test_a_triangular_rate_rises_to_its_peak_after_a_fifth_of_the_rounds_and_falls_to_its_last_step(
    rounds: int,
) -> None:
    found = shares("triangular", rounds)
    peak = max(1, round(rounds / 5))
    rises = [after - before for before, after in zip([0.0, *found], found, strict=False)]
    assert found[peak - 1] == 1
    assert rises[:peak] == pytest.approx([1 / peak] * peak)
    assert [*rises[peak:], -found[-1]] == pytest.approx([-1 / (rounds + 1 - peak)] * (rounds - peak + 1))


@repeatable
@given(st.integers(1, 300))
def test_a_cosine_rate_only_falls_and_is_at_half_after_half_of_the_rounds(rounds: int) -> None:
    found = shares("cosine", 2 * rounds)
    assert found == sorted(found, reverse=True)
    assert found[rounds] == pytest.approx(0.5)


def test_a_constant_rate_needs_no_number_of_rounds() -> None:
    assert TrainConfig(learning_rate=0.2).rate_in(1000) == 0.2


def test_the_optimizer_of_a_round_steps_with_the_rate_of_that_round() -> None:
    config = TrainConfig(optimizer="sgd", learning_rate=0.5, schedule="triangular", rounds=5)
    for number, expected in enumerate([0.5, 0.4, 0.3, 0.2, 0.1], 1):
        weight = torch.zeros(1, dtype=torch.float64)
        optimizer = make_optimizer(config, [weight], number)
        assert isinstance(optimizer, SGD)
        optimizer.step([weight], [torch.ones(1, dtype=torch.float64)])
        assert weight.item() == pytest.approx(-expected)


def test_the_rounds_of_a_run_have_the_rates_of_single_runs() -> None:
    study = fedul.load("digits", clients=2, rows=300)
    plain = {
        "method": "fedul",
        "optimizer": "sgd",
        "select": "last",
        "averaging": 0.0,
        "rounds": 1,
        "batch_size": "all",
    }
    moved = []
    for schedule in ("constant", "triangular"):
        start = fedul.train(study, **plain, learning_rate=0.0).classifier.module
        end = fedul.train(study, **{**plain, "rounds": 3}, learning_rate=1e-4, schedule=schedule).classifier.module
        pairs = zip(weights_of(end).values(), weights_of(start).values(), strict=True)
        moved.append(sum(float((one - other).square().sum()) for one, other in pairs))
    # With a tiny rate gradients hardly change: 1 + 2/3 + 1/3 steps in place of 3.
    assert (moved[1] / moved[0]) ** 0.5 == pytest.approx(2 / 3, rel=1e-3)


def test_without_rounds_a_schedule_has_a_fixed_number_of_them() -> None:
    resolved = resolve_rounds(TrainConfig(schedule="cosine"))
    assert (resolved.rounds, resolved.patience) == (FIXED_ROUNDS, 0)


class Stopped(Exception):
    pass


class StopAfter(fedul.Callback):
    def __init__(self, number: int) -> None:
        self.number = number

    def on_round_end(self, run: object, metrics: fedul.RoundMetrics) -> None:
        if metrics.round == self.number:
            raise Stopped


def test_a_resumed_run_continues_its_schedule_to_the_same_bits(tmp_path: Path) -> None:
    study = fedul.load("digits", clients=2, rows=300)
    settings = {**SETTINGS, "rounds": 5, "nesterov": True, "checkpoint_every": 1}
    whole = fedul.train(study, **settings)
    with pytest.raises(Stopped):
        fedul.train(study, **settings, out=tmp_path / "run", callbacks=[StopAfter(3)])
    resumed = fedul.train(study, **settings, out=tmp_path / "run", resume=True)
    assert resumed.result.weights_sha256 == whole.result.weights_sha256


def test_a_run_with_a_schedule_is_not_resumed_with_another_number_of_rounds(tmp_path: Path) -> None:
    study = fedul.load("digits", clients=2, rows=300)
    fedul.train(study, **SETTINGS, rounds=2, out=tmp_path / "run")
    with pytest.raises(InputError, match=r"rounds is 2 there, 3 here, and the learning rate of every round depends"):
        fedul.train(study, **SETTINGS, rounds=3, out=tmp_path / "run", resume=True)
    assert fedul.train(study, **SETTINGS, out=tmp_path / "run", resume=True).result.rounds == 2
