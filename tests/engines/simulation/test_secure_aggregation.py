"""Runs of the simulation with secure aggregation: as plain ones, from sums over the participating clients."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import nn
from torch.testing import assert_close

import fedul
from fedul.algorithms import make_algorithm
from fedul.algorithms.mean import mean_update
from fedul.config import TrainConfig
from fedul.core import RoundSums, Update, Weights
from fedul.engines.base import Broadcast
from fedul.engines.held_out import HeldOutSums, Reference
from fedul.engines.secure_sums import HELD_OUT_FIELDS, held_out_sums, held_out_values
from fedul.engines.simulation.engine import SimulationEngine
from fedul.errors import InputError
from fedul.methods.fedul import FedUL
from fedul.privacy.secure_aggregation.layout import VectorLayout
from fedul.training import RunFolder
from fedul.training.result import AggregationResult

from ...callbacks import Recorder
from ...factories import batch_norm_network, digits, random_federation, seeded_network
from ...runs import copy_update, copy_weights

LINEAR = ["fedavg", "fedprox", "fednova", "scaffold", "fedbn", "fedavgm", "fedadam", "fedyogi"]
FEDERATION = random_federation(5)
NAMES = sorted(FEDERATION.columns.names)


def engine(name: str = "fedavg", module: nn.Module | None = None, **settings: Any) -> SimulationEngine:
    config = TrainConfig(method="fedul", threads=1, batch_size=8, seed=0, **settings)
    module = seeded_network((2,), 3) if module is None else module
    return SimulationEngine(FEDERATION, FedUL(), make_algorithm(name, {}), module, config)


def sums(one: SimulationEngine, broadcast: Broadcast) -> RoundSums:
    answer = one.train(broadcast, NAMES)
    assert isinstance(answer, RoundSums)
    return answer


@pytest.mark.parametrize("mode", ["loop", "vectorized"])
@pytest.mark.parametrize("name", LINEAR)
def test_the_mean_of_a_round_is_the_plain_one_within_one_quantisation_step(name: str, mode: str) -> None:
    algorithm = make_algorithm(name, {})
    middle = [nn.BatchNorm1d(6)] if name == "fedbn" and mode == "loop" else []
    plain, secure = (
        engine(name, seeded_network((2,), 3, *middle), engine_mode=mode, secure_aggregation=on) for on in (False, True)
    )
    weights = copy_weights(plain.module)
    assert_close(weights, copy_weights(secure.module))
    broadcast = Broadcast(1, weights, algorithm.broadcast({}))
    updates = [copy_update(update) for update in plain.train(broadcast, NAMES)]  # type: ignore[union-attr]
    expected = mean_update([algorithm.prepare(weights, update) for update in updates], "uniform")
    found = sums(secure, broadcast)
    step = 2.0**-25  # 5 clients with changes up to 4 in 32 bits
    assert_close(found.mean.delta, expected.delta, rtol=0, atol=step)
    for name_, tensor in expected.buffers.items():
        assert_close(found.mean.buffers[name_], tensor.double(), rtol=1e-6, atol=1e-6)
    assert_close(found.mean.message, expected.message, rtol=1e-6, atol=1e-6)
    assert found.mean.steps == pytest.approx(expected.steps)
    rows = sum(update.rows for update in updates)
    assert found.loss == pytest.approx(sum(update.loss * update.rows for update in updates) / rows)
    assert (found.rows, found.clipped) == (rows, 0)


@pytest.mark.parametrize("weighted", [False, True])
def test_held_out_sums_are_those_of_all_participating_clients(weighted: bool) -> None:
    plain, secure = (engine(secure_aggregation=on) for on in (False, True))
    weights = copy_weights(plain.module)
    other = {name: tensor + 0.1 for name, tensor in weights.items()}
    reference = Reference(1, 1.0, 1.0, other) if weighted else None
    (expected,) = plain.evaluate_held_out(weights, reference).values()
    (found,) = secure.evaluate_held_out(weights, reference).values()
    assert found.rows == expected.rows > 0
    assert found.numbers == pytest.approx(expected.numbers, rel=1e-5, abs=1e-5)


def test_clients_that_did_not_take_part_do_not_evaluate() -> None:
    secure = engine(secure_aggregation=True, participation=0.6)
    weights = copy_weights(secure.module)
    (everyone,) = secure.evaluate_held_out(weights).values()
    chosen = NAMES[:3]
    secure.train(Broadcast(1, weights), chosen)
    (found,) = secure.evaluate_held_out(weights).values()
    rows = dict(zip(FEDERATION.columns.names, FEDERATION.columns.held_out_rows.tolist(), strict=True))
    assert found.rows == sum(rows[name] for name in chosen) < everyone.rows == sum(rows.values())


def test_infinite_held_out_losses_are_clipped_to_the_declared_range() -> None:
    infinite = HeldOutSums(losses=(float("inf"),) * 25, rows=10)
    layout = VectorLayout(HELD_OUT_FIELDS, 1)
    found = held_out_sums(layout.decode(layout.encode(held_out_values(infinite)).words))
    assert found.losses == pytest.approx((640.0,) * 25)


@pytest.mark.parametrize("name", ["median", "trimmed-mean"])
def test_algorithms_that_need_single_updates_are_refused_with_the_reason(name: str) -> None:
    with pytest.raises(InputError, match=f"algorithm {name} needs every single update: it orders the updates"):
        fedul.train(digits(3, sets=10, rows=600), algorithm=name, secure_aggregation=True, rounds=1, model="linear")


def test_an_algorithm_of_a_user_that_needs_single_updates_is_refused() -> None:
    @dataclass(frozen=True)
    class First(fedul.Algorithm):
        """The model of the first client."""

        def aggregate(
            self, weights: Weights, server_state: Weights, updates: Iterable[Update], clients: int
        ) -> tuple[Weights, Weights]:
            return dict(weights), server_state

    with pytest.raises(InputError, match="its class overrides aggregate"):
        fedul.train(digits(3, sets=10, rows=600), algorithm=First(), secure_aggregation=True, rounds=1, model="linear")


@pytest.mark.parametrize(("clients", "participation"), [(2, 1.0), (5, 0.4)])
def test_fewer_than_three_clients_in_a_round_are_refused(clients: int, participation: float) -> None:
    with pytest.raises(InputError, match="a sum over 2 clients hides no single one"):
        fedul.train(
            digits(clients, sets=10, rows=600), secure_aggregation=True, participation=participation, method="fedul"
        )


def test_a_run_with_secure_aggregation_reports_clipped_values_and_can_be_resumed(tmp_path: Any) -> None:
    study = digits(3, sets=10, rows=600)
    settings = {"method": "fedul", "secure_aggregation": True, "model": "linear", "threads": 1, "seed": 0}
    whole = fedul.train(study, rounds=3, **settings)
    fedul.train(study, rounds=1, out=tmp_path / "run", **settings)
    resumed = fedul.train(study, rounds=3, out=tmp_path / "run", resume=True, **settings)
    assert resumed.weights_sha256 == whole.weights_sha256, "masks are random, sums are not"
    assert [metrics.clipped_values for metrics in whole.history] == [0, 0, 0]
    assert RunFolder(tmp_path / "run").result().secure_aggregation == AggregationResult(3, 0)
    assert "sums of updates over at least 3 clients" in fedul.report(tmp_path / "run").read_text()
    with pytest.warns(UserWarning, match=r"in round 1, \d+ values of updates were larger than .* 0.001, and were cl"):
        narrow = fedul.train(study, rounds=2, aggregation_range=1e-3, **settings)
    assert narrow.history[0].clipped_values > 100
    plain = fedul.train(study, rounds=1, **{**settings, "secure_aggregation": False})
    assert plain.history[0].clipped_values is None
    assert plain.result.secure_aggregation is None
    assert "clipped_values" not in plain.history[0].to_dict()


def test_runs_whose_clients_train_together_are_summed_each_for_itself() -> None:
    study = digits(3, sets=10, rows=600)
    settings = {"rounds": 1, "seed": 0, "threads": 1, "secure_aggregation": True}
    chosen = fedul.train(study, method="fedul-combined", **settings)
    assert chosen.result.choice is not None, "several runs were trained to choose the settings"
    assert chosen.history[0].clipped_values == 0


def test_the_number_of_clipped_values_is_not_released_if_clients_are_private() -> None:
    study = digits(5, sets=10, rows=600)
    run = fedul.train(
        study,
        method="fedul",
        model="linear",
        rounds=2,
        threads=1,
        secure_aggregation=True,
        client_dp_noise=0.5,
        callbacks=[Recorder()],
    )
    assert run.result.secure_aggregation == AggregationResult(5, None)
    assert run.result.secure_aggregation.sentence.endswith("and no single update.")
    assert run.history[0].clipped_values is None


def test_an_update_that_is_not_finite_stops_the_run() -> None:
    study = digits(3, sets=10, rows=600)
    with pytest.raises(fedul.FedulError, match=r"update of client 'client-\d' in round \d+ is not finite"):
        fedul.train(
            study,
            method="fedul",
            secure_aggregation=True,
            optimizer="sgd",
            learning_rate=1e30,
            rounds=3,
            model="mlp",
            threads=1,
        )


@pytest.mark.long
@pytest.mark.parametrize("name", LINEAR)
def test_the_error_after_ten_rounds_is_within_a_fifth_of_a_point_of_the_plain_one(name: str) -> None:
    """The mean of three seeds: rounding alone changes the error of a single run by up to half a point."""
    study = digits(5, sets=10)
    settings = {"algorithm": name, "method": "fedul", "rounds": 10, "select": "last", "threads": 1}
    settings |= {"callbacks": [Recorder()], "model": batch_norm_network if name == "fedbn" else None}
    differences = []
    for seed in range(3):
        secure, plain = (fedul.train(study, seed=seed, secure_aggregation=on, **settings) for on in (True, False))
        assert secure.test_error is not None
        assert plain.test_error is not None
        differences.append(secure.test_error - plain.test_error)
    assert abs(sum(differences)) / 3 <= 0.002


def test_sums_do_not_depend_on_the_device_of_the_weights() -> None:
    secure = engine(secure_aggregation=True)
    weights = copy_weights(secure.module)
    found = sums(secure, Broadcast(1, weights))
    assert {tensor.device for tensor in found.mean.delta.values()} == {torch.device("cpu")}
