"""Runs with differential privacy of whole clients: what they charge, release, leave out and refuse."""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

import fedul
from fedul.algorithms.fedavg import FedAvg
from fedul.errors import InputError
from fedul.models.weights import weights_of
from fedul.privacy.accounting import Gaussian, epsilon_of
from fedul.privacy.ledger import Charge, Ledger
from fedul.training.client_protection import PAYER, RELEASE
from fedul.training.run_files import CLIENT_LEDGER, METRICS

from ..factories import gaussian_study
from ..runs import largest_difference

SETTINGS: dict[str, Any] = {"method": "fedul", "model": "linear", "rounds": 3, "client_dp_noise": 1.0}
NAMES = [f"c{number}" for number in range(8)]


class Collect(fedul.Callback):
    """Collects warnings."""

    def __init__(self) -> None:
        self.warnings: list[str] = []

    def on_warning(self, message: str) -> None:
        self.warnings.append(message)


def train(out: Path | None = None, **settings: Any) -> fedul.Run:
    given = {**SETTINGS, "callbacks": [Collect()], **settings}
    if given.get("client_dp_epsilon") is not None:
        given.pop("client_dp_noise")
    return fedul.train(gaussian_study(NAMES), out=out, force=True, **given)


def test_epsilon_of_a_run_is_that_of_its_rounds_and_within_the_target() -> None:
    run = train(client_dp_epsilon=4.0, participation=0.5)
    spent = [metrics.client_epsilon for metrics in run.history]
    assert all(spent[i] < spent[i + 1] for i in range(2))
    assert 3.99 < spent[-1] <= 4.0
    fixed = train(client_dp_noise=1.3, participation=0.25, client_dp_quantile=0.5)
    expected = epsilon_of([Gaussian(1.3, 0.25, 3)], 1e-5)
    assert fixed.history[-1].client_epsilon == pytest.approx(expected)


def test_nothing_about_single_clients_is_published() -> None:
    run = train(participation=0.5, client_dp_quantile=0.5)
    for metrics in run.history:
        assert metrics.loss is None
        assert metrics.held_out_loss is None
        assert metrics.clients == 4  # the expected number
        assert metrics.temperature == 1
    assert run.selected_round == 3
    assert run.classifier.set_levels == ()
    assert run.result.held_out_loss is None


def test_without_noise_and_clipping_the_run_is_that_of_fedavg() -> None:
    free = train(client_dp_noise=0.0, client_dp_clip=1e6)
    usual = train(client_dp_noise=None, select="last")
    difference = largest_difference(weights_of(free.classifier.module), weights_of(usual.classifier.module))
    assert difference < 1e-5
    assert free.history[-1].client_epsilon is None


def test_without_noise_scaffold_is_unchanged() -> None:
    settings = {"algorithm": "scaffold", "optimizer": "sgd", "learning_rate": 0.1}
    free = train(client_dp_noise=0.0, client_dp_clip=1e6, **settings)
    usual = train(client_dp_noise=None, select="last", **settings)
    assert largest_difference(weights_of(free.classifier.module), weights_of(usual.classifier.module)) < 1e-5


def test_updates_are_clipped_before_they_are_averaged() -> None:
    start = train(client_dp_noise=0.0, client_dp_clip=1e-6, rounds=1, averaging=0.0)
    moved = train(client_dp_noise=0.0, client_dp_clip=0.05, rounds=1, averaging=0.0)
    pairs = [weights_of(run.classifier.module) for run in (start, moved)]
    length = math.sqrt(sum(float((pairs[1][k] - pairs[0][k]).square().sum()) for k in pairs[0]))
    assert 0.01 < length <= 0.05 + 1e-5


def test_noise_is_fresh_unless_it_is_seeded() -> None:
    one, other = train(rounds=1), train(rounds=1)
    assert largest_difference(weights_of(one.classifier.module), weights_of(other.classifier.module)) > 1e-3
    assert one.weights_sha256 != other.weights_sha256
    seeded = {train(rounds=1, dp_seeded=True, participation=0.5).weights_sha256 for _ in range(2)}
    assert len(seeded) == 1


def test_a_resumed_run_continues_its_ledger_and_is_that_of_one_never_stopped(tmp_path: Path) -> None:
    settings = {"dp_seeded": True, "participation": 0.6, "client_dp_quantile": 0.5, "client_dp_clip": 0.1}
    whole = train(tmp_path / "whole", **settings)
    train(tmp_path / "parts", **settings, rounds=1)
    resumed = train(tmp_path / "parts", **settings, resume=True)
    assert resumed.weights_sha256 == whole.weights_sha256
    assert resumed.history[-1].client_epsilon == whole.history[-1].client_epsilon
    lines = (tmp_path / "parts" / CLIENT_LEDGER).read_text().splitlines()
    assert [json.loads(line)["round"] for line in lines] == [1, 2, 3]


def test_a_repeated_round_is_charged_again_and_a_target_is_not_exceeded(tmp_path: Path) -> None:
    train(tmp_path / "run", client_dp_epsilon=4.0, checkpoint_every=1)
    ledger = Ledger(tmp_path / "run" / CLIENT_LEDGER)
    (charge, payers), *_ = ledger.entries()
    assert payers == (PAYER,)
    assert charge.release == RELEASE
    copy = tmp_path / "copy"
    shutil.copytree(tmp_path / "run", copy)
    Ledger(copy / CLIENT_LEDGER).charge({PAYER: Charge(RELEASE, charge.mechanism, 3)})  # a round that got lost
    (copy / "result.json").unlink()
    collect = Collect()
    with pytest.raises(InputError, match="budget"):
        train(copy, client_dp_epsilon=4.0, rounds=4, resume=True, callbacks=[collect])


def test_a_lost_ledger_ends_the_run(tmp_path: Path) -> None:
    train(tmp_path / "run")
    (tmp_path / "run" / CLIENT_LEDGER).unlink()
    with pytest.raises(InputError, match="does not have round 3"):
        train(tmp_path / "run", rounds=4, resume=True)


def test_the_noise_of_a_resumed_run_is_that_of_its_start(tmp_path: Path) -> None:
    train(tmp_path / "run", client_dp_epsilon=4.0)
    with pytest.raises(InputError, match="client-dp-epsilon"):
        train(tmp_path / "run", client_dp_epsilon=4.0, rounds=4, resume=True)
    further = train(tmp_path / "run", client_dp_epsilon=6.0, rounds=4, resume=True)
    assert 4.0 < further.history[-1].client_epsilon <= 6.0
    noises = {entry.mechanism.noise for entry, _ in Ledger(tmp_path / "run" / CLIENT_LEDGER).entries()}
    assert len(noises) == 1


def test_few_clients_are_warned_about_with_a_number() -> None:
    collect = Collect()
    train(rounds=1, client_dp_epsilon=8.0, callbacks=[collect])
    stated = [message for message in collect.warnings if "with 8 clients the noise that protects them" in message]
    assert stated == [] or "times as long" in stated[0]
    collect = Collect()
    train(rounds=60, client_dp_epsilon=1.0, callbacks=[collect])
    assert any("with 8 clients the noise that protects them is about" in message for message in collect.warnings)


def test_a_round_without_participants_moves_by_noise_alone() -> None:
    run = train(participation=1e-9, client_dp_noise=0.0)
    untrained = train(client_dp_noise=0.0, client_dp_clip=1e-9)
    assert largest_difference(weights_of(run.classifier.module), weights_of(untrained.classifier.module)) < 1e-6


class Prepared(FedAvg):
    """FedAvg with another `prepare`."""

    def prepare(self, weights, update):
        return update


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"algorithm": "median"}, "algorithm median: it .*noise protects a sum only"),
        ({"algorithm": "trimmed-mean"}, "algorithm trimmed-mean: it .*noise protects a sum only"),
        ({"algorithm": "fedavg", "algorithm_option": {"weighting": "rows"}}, "weighting by rows lets a large client"),
        ({"algorithm": "fedbn"}, "delivers a classifier of every client"),
        ({"algorithm": "fednova"}, "changes updates after they are clipped"),
        ({"algorithm": Prepared()}, "changes updates after they are clipped"),
        ({"client_dp_delta": 0.1, "participation": 1.0}, None),
        ({"select": "held-out-loss"}, "select held-out-loss: compares rounds on held-out rows"),
        ({"patience": 3}, "patience: compares rounds on held-out rows"),
        (
            {"client_dp_noise": None, "client_dp_quantile": 0.5},
            "client-dp-quantile: protects nothing without --client-dp-epsilon",
        ),
        ({"dp_noise": 1.0, "participation": 0.5}, "with private rows too, all clients must take part"),
    ],
)
def test_what_cannot_be_private_is_refused_with_the_reason(settings: dict[str, Any], reason: str | None) -> None:
    if reason is None:  # 0.1 is below 1 / 8
        train(rounds=1, **settings)
        return
    with pytest.raises(InputError, match=reason):
        train(rounds=1, **settings)


def test_delta_must_be_below_one_over_the_number_of_clients() -> None:
    study = gaussian_study([f"c{number}" for number in range(10)])
    with pytest.raises(InputError, match=r"0\.1 is not below 1 / clients, of which there are 10"):
        fedul.train(study, force=True, callbacks=[Collect()], **{**SETTINGS, "client_dp_delta": 0.1})


def test_batch_norm_statistics_are_private_and_usable() -> None:
    module = torch.nn.Sequential(torch.nn.Linear(2, 4), torch.nn.BatchNorm1d(4), torch.nn.Linear(4, 3))
    run = train(model=module, client_dp_noise=3.0, client_dp_clip=5.0)
    weights = weights_of(run.classifier.module)
    assert float(weights["1.running_var"].min()) >= 1e-3
    assert int(weights["1.num_batches_tracked"]) == 0
    assert run.classifier.predict_proba(torch.zeros(2, 2)).shape == (2, 3)


def test_the_result_states_what_is_guaranteed(tmp_path: Path) -> None:
    run = train(tmp_path / "run", participation=0.5, prior_epsilon=2.0)
    clients, priors = run.result.privacy
    assert (clients.unit, clients.delta, clients.guarantee) == ("client", 1e-5, True)
    assert clients.epsilon == run.history[-1].client_epsilon
    assert (priors.unit, priors.epsilon, priors.delta) == ("class of a row", 2.0, 0.0)
    last = json.loads((tmp_path / "run" / METRICS).read_text().splitlines()[-1])
    assert last["client_epsilon"] == clients.epsilon
    assert last.get("loss") is None
    assert not train(dp_seeded=True).result.privacy[0].guarantee


def test_with_secure_aggregation_the_noise_is_added_to_the_sum() -> None:
    settings = {"client_dp_noise": 0.0, "client_dp_clip": 0.05, "client_dp_quantile": 0.5}
    usual, secure = train(**settings), train(**settings, secure_aggregation=True)
    difference = largest_difference(weights_of(usual.classifier.module), weights_of(secure.classifier.module))
    assert difference < 1e-4
    assert all(metrics.clipped_values is None for metrics in secure.history)
    with pytest.raises(InputError, match="with secure-aggregation all clients must take part"):
        train(secure_aggregation=True, participation=0.5)
