"""A run on a GPU computes what one on the CPU does, and mixes no devices; shown on a stand-in for a GPU."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import fedul
from fedul._utils.hardware import resolve_device
from fedul._utils.randomness import layer_random_states
from fedul.algorithms import ALGORITHMS
from fedul.core import Federation, Study, UnlabeledSets
from fedul.engines.simulation import evaluated_rows
from fedul.engines.simulation.layout import can_be_copied
from fedul.methods import METHODS
from fedul.models.weights import weights_of

from ...factories import IMAGE, NAMES, ResidualNetwork, batch_norm_network, dense_network, gaussian_study, random_study
from ...runs import largest_difference
from ...stand_in_gpu import GPU, stand_in_gpu

pytestmark = [
    pytest.mark.filterwarnings("ignore:fed"),  # few rounds and few clients
    pytest.mark.filterwarnings("ignore:trimmed-mean"),
    pytest.mark.filterwarnings("ignore:alone"),
]
OPTIONS: dict[str, dict[str, Any]] = {
    "fedul-refined": {"earliest": 1, "latest": 1},
    "fedul-combined": {"earliest": 1, "latest": 1, "trust": 0.75, "consistency_weight": 0.3, "soft_weight": 0.1},
    "fedllp-vat": {"ramp_rounds": 0},
    "trimmed-mean": {"trim": 0.4},
}
"""Options with which two rounds compute all that a method or an algorithm has."""


@pytest.fixture
def gpu() -> Iterator[torch.device]:
    with stand_in_gpu() as device:
        yield device


def study() -> Study:
    return gaussian_study(NAMES[:3], rows=(10, 14, 9, 12))


def train(data: Study | Federation, device: str = "cpu", **settings: Any) -> fedul.Run:
    """Return a run of two rounds; clients of `dense_network` are vectorized."""
    usual = {"model": dense_network, "rounds": 2, "batch_size": 16, "threads": 1, "precision": "float32"}
    return fedul.train(data, device=device, **{**usual, **settings})


def assert_same_run(ours: fedul.Run, expected: fedul.Run) -> None:
    assert ours.weights_sha256 == expected.weights_sha256
    assert [m.held_out_loss for m in ours.history] == [m.held_out_loss for m in expected.history]
    assert ours.test_error == expected.test_error


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("model", [dense_network, batch_norm_network])
def test_a_method_gives_the_same_weights_on_a_gpu(model: Any, method: str, gpu: torch.device) -> None:
    settings = {"model": model, "method": method, "method_option": OPTIONS.get(method, {}), "choose": "off"}
    assert_same_run(train(study(), GPU.type, **settings), train(study(), **settings))


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_an_algorithm_gives_the_same_weights_on_a_gpu_also_if_resumed(
    algorithm: str, gpu: torch.device, tmp_path: Path
) -> None:
    options = {"algorithm": algorithm, "algorithm_option": OPTIONS.get(algorithm, {}), "model": batch_norm_network}
    settings: dict[str, Any] = {"method": "fedul", **options}
    train(study(), GPU.type, rounds=1, out=tmp_path, **settings)
    resumed = train(study(), GPU.type, out=tmp_path, resume=True, **settings)
    assert_same_run(resumed, train(study(), **settings))


@pytest.mark.parametrize("mode", ["loop", "vectorized"])
@pytest.mark.parametrize(
    "settings",
    [
        {"optimizer": "adam", "l1": 0.01, "l2": 0.01},
        {"optimizer": "sgd", "momentum": 0.9, "nesterov": True},
        {"participation": 0.5},
        {"select": "held-out-error"},
    ],
)
def test_a_setting_gives_the_same_weights_on_a_gpu(settings: dict[str, Any], mode: str, gpu: torch.device) -> None:
    settings = {"method": "fedul", "engine_mode": mode, **settings}
    assert_same_run(train(study(), GPU.type, **settings), train(study(), **settings))


@pytest.mark.parametrize("model", [dense_network, ResidualNetwork])
def test_private_rows_give_the_same_weights_on_a_gpu(model: Any, gpu: torch.device) -> None:
    data = study() if model is dense_network else random_study(1, shape=IMAGE, rows=(20, 30), sets=(3, 4))
    settings = {"model": model, "method": "fedul", "dp_noise": 0.5, "dp_seeded": True, "batch_size": 8}
    ours, expected = (weights_of(train(data, device, **settings).classifier.module) for device in (GPU.type, "cpu"))
    assert largest_difference(ours, expected) < 1e-9


@pytest.mark.parametrize("augment", ["none", "rotate", "flip", "flip-crop"])
@pytest.mark.parametrize("mode", ["loop", "vectorized"])
def test_images_give_the_same_weights_on_a_gpu(mode: str, augment: str, gpu: torch.device) -> None:
    images = random_study(1, shape=IMAGE, rows=(20, 30), sets=(3, 4), held_out=0.3)
    settings = {"model": ResidualNetwork, "method": "fedul", "augment": augment, "engine_mode": mode}
    ours, expected = (weights_of(train(images, device, **settings).classifier.module) for device in (GPU.type, "cpu"))
    assert largest_difference(ours, expected) < 1e-9  # convolutions have another order of channels on a CPU


@pytest.mark.parametrize("participation", [1.0, 0.25])
def test_a_table_of_clients_gives_the_same_weights_on_a_gpu(
    participation: float, gpu: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(evaluated_rows, "FEWEST_EVALUATED", 20)  # with few clients a round, a sample is evaluated
    generator = np.random.default_rng(0)
    clients = Federation.from_arrays(
        inputs=generator.normal(size=(400, 2)),
        sets=np.arange(400) % 40,
        priors=generator.dirichlet(np.ones(3), 40),
        clients=[f"client-{c % 8}" for c in range(40)],
        classes="abc",
    )
    settings = {"method": "fedul", "participation": participation}
    assert_same_run(train(clients, GPU.type, **settings), train(clients, **settings))


def test_the_network_computes_on_the_gpu(gpu: torch.device) -> None:
    devices = set()

    class Watched(nn.Sequential):
        def forward(self, inputs: torch.Tensor) -> torch.Tensor:
            devices.add((inputs.device.type, next(self.parameters()).device.type))
            logits: torch.Tensor = super().forward(inputs)
            return logits

    train(study().federation, GPU.type, model=lambda shape, classes: Watched(dense_network(shape, classes)))
    assert (GPU.type, GPU.type) in devices
    assert devices <= {(GPU.type, GPU.type), ("cpu", "cpu")}  # before the first round and after the last one


def test_dropout_on_a_gpu_does_not_depend_on_what_was_drawn_before(gpu: torch.device) -> None:
    def network(shape: tuple[int, ...], classes: int) -> nn.Module:
        return dense_network(shape, classes, nn.Dropout())

    weights = set()
    for rows in (1, 1000):
        torch.rand(rows, device=gpu)
        before = layer_random_states(gpu)
        weights.add(train(study(), GPU.type, model=network, method="fedul").weights_sha256)
        assert all(map(torch.equal, layer_random_states(gpu), before))
    assert len(weights) == 1


def test_a_network_with_dropout_on_a_gpu_is_not_copied_for_several_workers(gpu: torch.device) -> None:
    with_dropout, without = dense_network((2,), 3, nn.Dropout()).to(gpu), dense_network().to(gpu)
    before = layer_random_states(gpu)
    assert not can_be_copied(with_dropout, (2,))
    assert can_be_copied(without, (2,))
    assert all(map(torch.equal, layer_random_states(gpu), before))


def test_a_classifier_on_a_gpu_predicts_as_on_the_cpu(gpu: torch.device, tmp_path: Path) -> None:
    classifier, rows = train(study(), method="fedul").classifier, np.ones((3, 2), np.float32)
    expected = classifier.predict_proba(rows)
    classifier.module.to(gpu)
    assert np.array_equal(classifier.predict_proba(rows), expected)
    assert np.array_equal(classifier.predict_proba(torch.from_numpy(rows).to(gpu)), expected)
    classifier.save(tmp_path)
    assert np.array_equal(fedul.Classifier.load(tmp_path, model=dense_network).predict_proba(rows), expected)


def test_inputs_may_be_on_a_gpu(gpu: torch.device) -> None:
    def federation(device: torch.device) -> Federation:
        generator = torch.Generator().manual_seed(0)
        sets = torch.arange(60) % 3
        clients = []
        for name in NAMES[:2]:
            inputs = torch.randn(60, 2, generator=generator).to(device)
            priors = [[0.8, 0.1, 0.1], [0.1, 0.8, 0.1], [0.1, 0.1, 0.8]]
            clients.append(UnlabeledSets.from_arrays(name, inputs, sets.to(device), priors))
        return Federation(clients, "abc")

    ours, expected = federation(gpu), federation(torch.device("cpu"))
    assert ours.fingerprint() == expected.fingerprint()
    assert str(fedul.check(ours)) == str(fedul.check(expected))
    for device in (GPU.type, "cpu"):
        assert_same_run(train(ours, device, method="fedul"), train(expected, method="fedul"))


def test_a_run_on_a_gpu_is_evaluated_on_a_machine_without_one(tmp_path: Path) -> None:
    data = study()
    with stand_in_gpu():
        run = train(data, GPU.type, method="fedul", model="linear", out=tmp_path)
        expected = fedul.evaluate(run, folds=2)
    assert fedul.evaluate(tmp_path, folds=2, study=data).to_dict() == expected.to_dict()


@pytest.mark.parametrize("name", ["cuda:99", "meta", "mps:9", "hpu", "privateuseone", "gpu", ""])
def test_a_device_that_does_not_exist_is_refused_in_one_sentence(name: str) -> None:
    with pytest.raises(fedul.InputError, match=f"^device: '{name}' is not available; use auto or cpu.$"):
        resolve_device(name)


def test_the_stand_in_refuses_what_a_gpu_refuses(gpu: torch.device) -> None:
    on_gpu, on_cpu = torch.ones(3, device=gpu), torch.ones(3)
    assert (on_gpu + torch.tensor(1.0)).tolist() == [2, 2, 2]
    assert on_gpu[torch.tensor([0, 1])].device == gpu
    with pytest.raises(RuntimeError, match="same device"):
        on_gpu + on_cpu
    with pytest.raises(RuntimeError, match="same device"):
        torch.cat([on_gpu, on_cpu])
    with pytest.raises(RuntimeError, match="positions on the GPU"):
        on_cpu[torch.tensor([0, 1], device=gpu)]
    with pytest.raises(RuntimeError, match="generator"):
        torch.randperm(3, device=gpu, generator=torch.Generator())
    with pytest.raises(TypeError, match="numpy"):
        np.asarray(on_gpu)
