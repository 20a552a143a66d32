"""Clients with private rows: what their steps compute, what leaves them, and what is refused."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

import fedul
from fedul.algorithms import make_algorithm
from fedul.config import TrainConfig
from fedul.core import Rows, Study, Update
from fedul.engines.base import Broadcast
from fedul.engines.simulation.engine import SimulationEngine
from fedul.engines.simulation.local_steps import ClientJob, LoopWorker
from fedul.engines.simulation.private_client import PrivateClient
from fedul.errors import FedulError, InputError
from fedul.methods import METHODS, make_method
from fedul.methods.fedul import FedUL
from fedul.methods.operations import prior_shift
from fedul.methods.row_private import make_row_private
from fedul.privacy.dp_sgd.row_gradients import row_gradients
from fedul.privacy.dp_sgd.stream import RandomStream
from fedul.privacy.row_privacy import RowPrivacy
from fedul.training.check_fit import small_batch_warnings

from ...factories import IMAGE, dense_network, digits, random_study, seeded_network
from ...runs import copy_update, copy_weights

STUDY = random_study(3, clients=3, rows=(12, 30), shape=(3,))
UNLIMITED = {"dp_noise": 0.0, "dp_clip": 1e6, "dp_delta": 1e-6}
PRIVATE = {"dp_noise": 1.5, "dp_clip": 0.5, "dp_delta": 1e-6, "dp_seeded": True}


def engine_of(
    study: Study = STUDY,
    method: str = "fedul",
    algorithm: str = "fedavg",
    module: nn.Module | None = None,
    **settings: Any,
) -> SimulationEngine:
    config = TrainConfig(**{"optimizer": "sgd", "learning_rate": 0.1, "batch_size": 8, "rounds": 3, **settings})
    made = make_method(method, {}, study.truth)
    if config.protects_rows:
        made, _ = make_row_private(made)
    network = seeded_network((3,), 3) if module is None else module
    return SimulationEngine(study.federation, made, make_algorithm(algorithm, {}), network, config)


def rounds(engine: SimulationEngine, count: int = 2) -> list[Update]:
    """Return the updates of all clients in several rounds."""
    weights, state, updates = copy_weights(engine.module), {}, list[Update]()
    for number in range(1, count + 1):
        broadcast = Broadcast(number, weights, engine.algorithm.broadcast(state))
        found = [copy_update(update) for update in engine.train(broadcast, engine.names)]
        weights, state = engine.algorithm.aggregate(weights, state, found, len(engine.names))
        updates += found
    return updates


def assert_same_updates(found: list[Update], expected: list[Update]) -> None:
    for ours, theirs in zip(found, expected, strict=True):
        assert (ours.client, ours.rows, ours.steps) == (theirs.client, theirs.rows, theirs.steps)
        for group in ("delta", "message"):
            assert_close(getattr(ours, group), getattr(theirs, group), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("algorithm", ["fedavg", "fedprox", "scaffold", "fednova", "fedadam"])
@pytest.mark.parametrize(
    "settings",
    [{}, {"l1": 0.01, "l2": 0.02}, {"optimizer": "adam"}, {"momentum": 0.9, "epochs": 3}],
    ids=["sgd", "penalties", "adam", "momentum"],
)
def test_without_noise_and_limit_all_rows_in_every_step_are_plain_training(
    algorithm: str, settings: Mapping[str, Any]
) -> None:
    common = {"algorithm": algorithm, "batch_size": "all", "engine_mode": "loop", **settings}
    expected = rounds(engine_of(**common))
    found = rounds(engine_of(**common, **UNLIMITED))
    assert_same_updates(found, expected)


@pytest.mark.parametrize("method", ["soft-labels", "soft-em", "rcm", "easyllp", "fedul-combined"])
def test_methods_without_noise_and_limit_are_plain_training(method: str) -> None:
    common = {"method": method, "batch_size": "all", "engine_mode": "loop"}
    private = engine_of(**common, **UNLIMITED)
    plain = engine_of(**common)
    plain = SimulationEngine(plain.federation, private.method, plain.algorithm, plain.module, plain.config)
    assert_same_updates(rounds(private), rounds(plain))


def test_a_private_update_has_no_loss_and_no_buffers() -> None:
    for update in rounds(engine_of(**PRIVATE)):
        assert update.loss is None
        assert update.buffers == {}


def test_rows_and_steps_of_a_private_update_do_not_depend_on_the_batches() -> None:
    one, other = (rounds(engine_of(**PRIVATE, seed=seed)) for seed in (0, 1))
    assert [(u.client, u.rows, u.steps) for u in one] == [(u.client, u.rows, u.steps) for u in other]


def test_seeded_noise_repeats_and_differs_between_clients_rounds_and_seeds() -> None:
    first, again, other = (rounds(engine_of(**PRIVATE, seed=seed)) for seed in (0, 0, 1))
    assert_same_updates(first, again)
    biases = [update.delta["3.bias"] for update in (*first, *other)]
    assert len({tuple(bias.tolist()) for bias in biases}) == len(biases)


def test_noise_of_the_operating_system_never_repeats() -> None:
    settings = {**PRIVATE, "dp_seeded": False}
    one, other = (rounds(engine_of(**settings), 1) for _ in range(2))
    for a, b in zip(one, other, strict=True):
        assert all(not torch.equal(a.delta[name], b.delta[name]) for name in a.delta)


def zero_gradient_network() -> nn.Module:
    """Return a network whose logits are all zero, for rows with zero gradients: only the noise moves it."""
    module = seeded_network((3,), 3)
    for parameter in module.parameters():
        parameter.data.zero_()
    return module


@dataclass(frozen=True)
class Nothing(FedUL):
    """A loss without gradients."""

    def loss(self, predict: Any, step: Any) -> Tensor:
        return step.mean(0 * predict(step.inputs).sum(-1))


def test_the_noise_of_a_step_has_the_stated_deviation_on_every_weight() -> None:
    noise, clip, steps = 1.5, 0.5, 400
    client = STUDY.federation.clients[0]
    task = FedUL().task(client, STUDY.federation.spec)
    privacy = RowPrivacy(noise, clip, rate=0.25, steps=steps)
    private = PrivateClient(row_gradients(seeded_network((3,), 3)), privacy, task, RandomStream.from_seed(5))
    expected = 0.25 * len(task)
    drawn = [private.differentiate(Nothing().loss, step).gradients for step in private.steps("none")]
    values = torch.cat([torch.cat([g.flatten() for g in each if g is not None]) for each in drawn]) * expected
    count = len(values)  # 400 steps of 45 weights
    # 5 standard errors of mean and variance: either fails with probability 6e-7 for another seed.
    deviation = noise * clip
    assert abs(float(values.mean())) < 5 * deviation / count**0.5
    assert abs(float(values.var()) / deviation**2 - 1) < 5 * (2 / count) ** 0.5


def test_an_empty_batch_is_a_step_of_noise_alone() -> None:
    task = FedUL().task(STUDY.federation.clients[0], STUDY.federation.spec)
    privacy = RowPrivacy(noise=1.0, clip=0.5, rate=1e-9, steps=3)
    private = PrivateClient(row_gradients(seeded_network((3,), 3)), privacy, task, RandomStream.from_seed(0))
    steps = list(private.steps("none"))
    assert [len(step.inputs) for step in steps] == [0, 0, 0]
    for step in steps:
        parameters, gradients, loss = private.differentiate(FedUL().loss, step)
        assert loss is None
        assert all(g is not None and bool(g.isfinite().all() and g.any()) for g in gradients)
        assert len(parameters) == len(gradients)


def _in_several_sets(study: Study) -> Study:
    """Return the study with the first row of the first client in three sets."""
    first, *rest = study.federation.clients
    index = first.train.index.clone()
    index[1:3] = index[0]
    return replace(
        study,
        federation=replace(study.federation, clients=[replace(first, train=Rows(index, first.train.sets)), *rest]),
    )


@pytest.mark.parametrize("algorithm", ["fedavg", "fedprox", "scaffold"])
@pytest.mark.parametrize("settings", [{}, {"l1": 0.5, "l2": 0.5}, {"epochs": 2}])
@pytest.mark.parametrize("original", [STUDY, _in_several_sets(STUDY)], ids=["one set", "several sets"])
def test_one_row_moves_a_sum_of_gradients_by_at_most_the_limit(
    algorithm: str, settings: Mapping[str, Any], original: Study
) -> None:
    """Without noise and with one sgd step, the update differs by rate * clip / expected rows if one row is another."""
    clip = 0.05
    study, other = original, _with_other_row(original)
    common = {
        "algorithm": algorithm,
        "batch_size": "all",
        "dp_noise": 0.0,
        "dp_clip": clip,
        "dp_seeded": True,
        **settings,
    }
    if settings.get("epochs"):
        common["learning_rate"] = 1e-9  # the second step is from the same weights
    one, two = (rounds(engine_of(data, **common), 1) for data in (study, other))
    rate = TrainConfig(learning_rate=common.get("learning_rate", 0.1)).rate
    ours, theirs = one[0], two[0]
    moved = torch.cat([(ours.delta[name] - theirs.delta[name]).flatten() for name in ours.delta]).norm()
    steps = settings.get("epochs", 1)
    # Adding a row and removing one: both rows contribute up to the limit.
    assert 0 < float(moved) <= 2 * steps * rate * clip / ours.rows * (1 + 1e-6)
    if algorithm == "scaffold":
        message = torch.cat([(ours.message[name] - theirs.message[name]).flatten() for name in ours.message]).norm()
        assert 0 < float(message) <= 2 * clip / ours.rows * (1 + 1e-6)


def _with_other_row(study: Study) -> Study:
    """Return the study with the first row of the first client replaced by an extreme one."""
    first, *rest = study.federation.clients
    inputs = first.inputs.clone()
    inputs[int(first.train.index[0])] = 1e4
    return replace(study, federation=replace(study.federation, clients=[replace(first, inputs=inputs), *rest]))


def test_control_variates_of_scaffold_are_means_of_noisy_gradients() -> None:
    engine = engine_of(algorithm="scaffold", module=zero_gradient_network(), batch_size="all", **PRIVATE)
    update = rounds(engine, 1)[0]
    for name, change in update.delta.items():  # one step of sgd with rate 0.1
        assert_close(update.message[name], -change / 0.1)


def test_private_clients_train_in_a_loop() -> None:
    engine = engine_of(engine_mode="vectorized", **PRIVATE)
    assert not engine.layout.vectorized
    assert engine.warnings == ["engine-mode vectorized: private rows cannot be vectorized, so this is loop."]


def test_a_client_without_its_parameters_does_not_train() -> None:
    engine = engine_of(**PRIVATE)
    worker = LoopWorker(engine.module, engine.method, engine.algorithm, engine.config)
    jobs = [ClientJob("client-0", FedUL().task(STUDY.federation.clients[0], STUDY.federation.spec), {})]
    with pytest.raises(FedulError, match="would train without the protection of its rows"):
        worker.train(jobs, Broadcast(1, copy_weights(engine.module)), lambda: False)


@pytest.mark.parametrize("method", sorted(METHODS))
def test_every_method_is_private_or_refused_with_the_reason(method: str) -> None:
    refused = {
        "fedllp": "mean predictions over whole sets",
        "fedllp-vat": "mean predictions over whole sets",
        "fedpl": "mixes pairs of rows",
        "fedul-refined": "sums over whole sets",
        "llp-pvc": "all rows of a set",
    }
    made = make_method(method, {}, STUDY.truth)
    if method in refused:
        with pytest.raises(InputError, match=refused[method]):
            make_row_private(made)
    else:
        private, _ = make_row_private(made)
        assert make_row_private(private)[0] == private


def test_a_method_that_does_not_define_its_private_form_is_refused() -> None:
    with pytest.raises(InputError, match="method Nothing: it does not define row_private"):
        make_row_private(Nothing())


def test_terms_of_several_rows_are_left_out_and_named() -> None:
    options = {"trust": 0.5, "consistency_weight": 0.1, "soft_weight": 0.2}
    private, notes = make_row_private(make_method("fedul-combined", options))
    assert [getattr(private, name) for name in ("proportion_weight", "consistency_weight", "trust")] == [0, 0, 0]
    assert private.soft_weight == 0.2  # type: ignore[attr-defined]
    assert len(notes) == 1
    assert all(name in notes[0] for name in ("proportion_weight", "trust", "consistency_weight"))
    with pytest.raises(InputError, match="nothing of it is left"):
        make_row_private(make_method("fedul-combined", {"set_weight": 0}))


@pytest.mark.parametrize("method", [name for name in sorted(METHODS) if name not in ("fedllp", "fedllp-vat")])
def test_the_loss_of_a_private_method_is_the_mean_of_terms_of_single_rows(method: str) -> None:
    """The gradient of the logits of a row, times the number of rows, is the same for the row alone."""
    try:
        private, _ = make_row_private(make_method(method, {}, STUDY.truth))
    except InputError:
        return
    client = STUDY.federation.clients[0]
    engine = engine_of(method=method, **UNLIMITED)
    task = private.task(client, STUDY.federation.spec)
    if private.needs_logits({}):
        logits = torch.randn(len(task.index), 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
        task = replace(task, targets=private.begin_round(task.targets, logits, {}, {})[0])
    private_client = PrivateClient(
        row_gradients(engine.module), RowPrivacy(0.0, 1.0, 1.0, 1), task, RandomStream.from_seed(1)
    )
    (step,) = private_client.steps("none")
    together = _gradients_of_logits(private, step) * len(step.inputs)
    for i in range(len(step.inputs)):
        row = slice(i, i + 1)
        alone = replace(step, inputs=step.inputs[row], targets={k: v[row] for k, v in step.targets.items()})
        assert_close(_gradients_of_logits(private, alone), together[row], rtol=1e-9, atol=1e-12)


def _gradients_of_logits(method: Any, step: Any) -> Tensor:
    logits = (step.inputs @ torch.ones(3, 3, dtype=torch.float64) * torch.arange(3)).requires_grad_()
    (gradient,) = torch.autograd.grad(method.loss(lambda inputs: logits, step), logits)
    return gradient


@pytest.mark.filterwarnings("ignore:fedul-combined")
def test_private_rows_have_settings_of_their_own_unless_others_are_given() -> None:
    study = digits(2, rows=200)
    other = {"model": "small-mlp", "optimizer": "adam", "learning_rate": 0.01}
    for given, expected in (({}, ("linear", "sgd", 1.0)), (other, tuple(other.values()))):
        config = fedul.train(study, rounds=1, **given, **PRIVATE).recipe.config
        assert (config.model, config.optimizer, config.learning_rate) == expected


def test_small_batches_are_warned_about() -> None:
    study = digits(2, rows=600)
    assert small_batch_warnings(study.federation, TrainConfig(batch_size=32, **PRIVATE)) == []
    (message,) = small_batch_warnings(study.federation, TrainConfig(batch_size=4, **PRIVATE))
    assert "batches of 4 of" in message
    assert small_batch_warnings(study.federation, TrainConfig(batch_size=4)) == []
    assert small_batch_warnings(study.federation, TrainConfig(batch_size="all", **PRIVATE)) == []


def test_private_supervised_learning_takes_the_class_mix_from_the_priors() -> None:
    private, _ = make_row_private(make_method("supervised", {}, STUDY.truth))
    client = STUDY.federation.clients[0]
    task = private.task(client, STUDY.federation.spec)
    expected = prior_shift(client.class_mix, STUDY.federation.spec.test_prior)
    assert_close(task.targets.client["offset"], expected)


def test_rows_in_several_sets_are_trained_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    study = _in_several_sets(STUDY)
    settings = {"batch_size": "all", "dp_seeded": True, **UNLIMITED}
    whole = rounds(engine_of(study, **settings), 1)
    monkeypatch.setattr("fedul.privacy.dp_sgd.chain.DENSE_CHUNK", 5)
    assert_same_updates(rounds(engine_of(study, **settings), 1), whole)


def batch_norm() -> nn.Module:
    return dense_network((3,), 3, nn.BatchNorm1d(6))


def dropout() -> nn.Module:
    return dense_network((3,), 3, nn.Dropout(0.5))


class Centred(nn.Module):
    """A layer that subtracts the mean of the rows."""

    def forward(self, inputs: Tensor) -> Tensor:
        return inputs - inputs.mean(0)


class Counting(nn.Module):
    """A layer with a buffer that changes."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("seen", torch.zeros((), dtype=torch.float64))

    def forward(self, inputs: Tensor) -> Tensor:
        self.seen += inputs.sum()
        return inputs


@pytest.mark.parametrize(
    ("module", "message"),
    [
        (batch_norm(), "has batch norm"),
        (dropout(), "draws random numbers"),
        (dense_network((3,), 3, Centred()), "depends on the other rows"),
        (dense_network((3,), 3, Counting()), "a buffer of it changes"),
    ],
    ids=["batch norm", "dropout", "rows that interact", "buffer"],
)
def test_networks_whose_rows_cannot_be_private_are_refused(module: nn.Module, message: str) -> None:
    with pytest.raises(InputError, match=message):
        fedul.train(STUDY, method="fedul", model=module, rounds=1, select="last", **PRIVATE)


@pytest.mark.parametrize("model", ["paper-cnn", "resnet9"])
def test_networks_with_batch_norm_are_refused_by_name(model: str) -> None:
    with pytest.raises(InputError, match=f"model '{model}': has batch norm"):
        fedul.train(digits(2, rows=200), model=model, rounds=1, **PRIVATE)


@pytest.mark.parametrize("precision", ["float16", "bfloat16"])
def test_16_bits_are_refused(precision: str) -> None:
    with pytest.raises(InputError, match="too coarse"):
        fedul.train(digits(2, rows=200), rounds=1, precision=precision, **PRIVATE)


def test_a_frozen_batch_norm_and_group_norm_are_accepted() -> None:
    frozen = batch_norm()
    frozen[2].eval()
    for module in (frozen, dense_network((3,), 3, nn.GroupNorm(2, 6))):
        engine = engine_of(module=module, **PRIVATE)
        assert all(update.buffers == {} for update in rounds(engine, 1))


def test_images_are_augmented_and_trained_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    study = random_study(1, clients=2, rows=(30, 40), shape=IMAGE)

    def first_round(**settings: Any) -> list[Update]:
        module = fedul.models.build("small-cnn", IMAGE, 3, 0).double()
        return rounds(engine_of(study, module=module, batch_size="all", **UNLIMITED, **settings), 1)

    together = first_round()
    monkeypatch.setattr("fedul.privacy.dp_sgd.chain.CONVOLUTION_CHUNK", 7)
    assert_same_updates(first_round(), together)
    for update in first_round(augment="rotate", dp_seeded=True):
        assert all(bool(change.isfinite().all()) for change in update.delta.values())
