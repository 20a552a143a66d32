"""Several workers give what one gives; whatever ends a round leaves no thread behind."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

import pytest
import torch
from torch import Tensor, nn

from fedul.algorithms.fedavg import FedAvg
from fedul.config import TrainConfig
from fedul.core import Federation
from fedul.engines.base import Broadcast
from fedul.engines.simulation.engine import SimulationEngine
from fedul.methods.fedul import FedUL
from fedul.methods.task import Predict, Step

from ...factories import IMAGE, ResidualNetwork, random_study
from ...runs import copy_weights
from .comparison import Case, assert_same_result, table_network, with_layout

STUDY = random_study(3, clients=7, rows=(3, 30))
IMAGES = random_study(3, clients=7, rows=(3, 30), shape=IMAGE)
STATEFUL = Case(STUDY, ("fedul-refined", {"earliest": 1, "latest": 1}), ("scaffold", {}), settings={"batch_size": 4})


def fedul_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith("fedul")]


@pytest.fixture(autouse=True)
def no_thread_is_left_behind() -> Iterator[None]:
    threads = torch.get_num_threads()
    yield
    assert fedul_threads() == []
    assert torch.get_num_threads() == threads


@pytest.mark.parametrize("workers", [2, 3, 20])
@pytest.mark.parametrize("mode", ["loop", "vectorized"])
def test_the_result_does_not_depend_on_the_number_of_workers(mode: str, workers: int) -> None:
    store = STATEFUL.store()
    several = with_layout(STATEFUL.engine(store, engine_mode=mode, workers=workers), 1 if mode == "loop" else 2)
    assert_same_result(STATEFUL.run(several, store), STATEFUL.loop(workers=1), 1e-12)


def test_the_result_does_not_depend_on_the_threads_that_share_a_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    many = replace(STATEFUL, study=random_study(3, clients=40, rows=(300, 400)), settings={"batch_size": 0})
    alone = many.vectorized(threads=1)
    monkeypatch.setattr("fedul.engines.simulation.layout.MIN_SHARED_WEIGHTS", 0)
    monkeypatch.setattr("fedul.engines.simulation.layout.available_cores", lambda: 4)
    store = many.store()
    engine = many.engine(store, engine_mode="vectorized", workers=1)
    assert engine.layout.thread_options == [1, 2, 4]
    assert_same_result(many.run(engine, store), alone, 1e-12)


def test_a_small_network_in_16_bits_is_said_to_train_one_client_after_another() -> None:
    case = replace(STATEFUL, study=random_study(3, clients=3, dtype=torch.float32), model=lambda: nn.Linear(3, 3))
    engine = case.engine(precision="bfloat16")
    assert not engine.layout.vectorized
    assert "clients of this small network train one after another in it" in engine.warnings[0]
    assert case.engine(precision="auto").warnings == []


def test_threads_that_the_user_gives_are_not_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedul.engines.simulation.layout.MIN_SHARED_WEIGHTS", 0)
    assert STATEFUL.engine(engine_mode="vectorized", threads=2).layout.thread_options == ()


@pytest.mark.parametrize("mode", ["loop", "vectorized"])
def test_several_workers_may_share_a_network_that_is_vectorized_by_vmap(mode: str) -> None:
    case = replace(STATEFUL, study=IMAGES, model=ResidualNetwork)
    store = case.store()
    several = with_layout(case.engine(store, engine_mode=mode, workers=3), 1)
    assert_same_result(case.run(several, store), case.loop(workers=1))


@pytest.mark.parametrize("training", [True, False])
def test_a_network_that_draws_at_random_repeats_on_several_workers(training: bool) -> None:
    def model() -> nn.Module:
        torch.manual_seed(0)
        layers = nn.Linear(3, 16), nn.Dropout(0.5), nn.Tanh(), nn.Linear(16, 3)
        return nn.Sequential(*layers).double().train(training)

    case = replace(STATEFUL, model=model, settings={"batch_size": 2, "epochs": 3})
    assert_same_result(case.loop(workers=3), case.loop(workers=1), 0.0)


def test_a_hook_on_a_weight_is_called_by_all_workers() -> None:
    def model() -> nn.Module:
        module = table_network()
        module.get_parameter("1.weight").register_hook(lambda gradient: gradient.clamp(-0.01, 0.01))
        return module

    case = replace(STATEFUL, model=model)
    assert_same_result(case.loop(workers=3), case.loop(workers=1), 1e-12)


@pytest.mark.parametrize("model", [table_network, ResidualNetwork], ids=["dense", "convolution"])
@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("mode", ["auto", "loop", "vectorized"])
def test_the_global_generator_of_torch_is_unchanged(mode: str, workers: int, model: Callable[[], nn.Module]) -> None:
    case = replace(STATEFUL, study=STUDY if model is table_network else IMAGES)
    module = model()
    start = copy_weights(module)
    before = torch.random.get_rng_state()
    engine = replace(case, model=lambda: module).engine(engine_mode=mode, workers=workers)
    list(with_layout(engine, 2).train(Broadcast(1, start), case.names))
    assert torch.equal(torch.random.get_rng_state(), before)


class Broken(Exception):
    """Error raised by a method of a user."""


@dataclass(frozen=True)
class Breaking(FedUL):
    """Fails at rows of the value that marks them."""

    def loss(self, predict: Predict, step: Step) -> Tensor:
        if bool((step.inputs > 1e5).any()):
            raise Broken
        return super().loss(predict, step)


@pytest.mark.parametrize("position", [0, 3, 6])
@pytest.mark.parametrize("mode", ["loop", "vectorized"])
def test_what_one_worker_raises_reaches_the_caller(mode: str, position: int) -> None:
    clients = list(STUDY.federation.clients)
    clients[position] = replace(clients[position], inputs=torch.full_like(clients[position].inputs, 1e6))
    federation = replace(STUDY.federation, clients=clients)
    config = TrainConfig(batch_size=2, engine_mode=mode, workers=2)
    module = table_network()
    engine = with_layout(SimulationEngine(federation, Breaking(), FedAvg(), module, config), 1)
    updates = engine.train(Broadcast(1, copy_weights(module)), STATEFUL.names)
    before = torch.random.get_rng_state()
    assert [next(updates).client for _ in range(position)] == STATEFUL.names[:position]
    with pytest.raises(Broken):
        next(updates)
    assert fedul_threads() == []
    assert torch.equal(torch.random.get_rng_state(), before)


def test_after_a_failure_the_engine_can_train_again() -> None:
    engine = with_layout(STATEFUL.engine(engine_mode="loop", workers=2), 1)
    start = copy_weights(table_network())
    broken = {**start, "1.weight": start["1.weight"][:1, :2]}
    with pytest.raises(RuntimeError):
        list(engine.train(Broadcast(1, broken), STATEFUL.names))
    assert [update.client for update in engine.train(Broadcast(1, start), STATEFUL.names)] == STATEFUL.names


@dataclass(frozen=True)
class Counting(FedUL):
    """Notes every step."""

    steps: list[int] = field(default_factory=list)

    def loss(self, predict: Predict, step: Step) -> Tensor:
        self.steps.append(1)
        return super().loss(predict, step)


@pytest.mark.parametrize("mode", ["loop", "vectorized"])
def test_workers_stop_when_updates_are_no_longer_requested(mode: str) -> None:
    first, *_ = random_study(0, rows=(4, 4)).federation.clients
    _, *others = random_study(0, rows=(400, 400)).federation.clients
    federation = Federation([first, *others], "abc")
    method, module = Counting(), table_network()
    config = TrainConfig(batch_size=2, epochs=20, engine_mode=mode, workers=2)
    engine = with_layout(SimulationEngine(federation, method, FedAvg(), module, config), 1)
    updates = engine.train(Broadcast(1, copy_weights(module)), [client.name for client in federation.clients])
    before = torch.random.get_rng_state()
    assert next(updates).steps == 20 * 2
    assert fedul_threads()
    updates.close()
    assert fedul_threads() == []
    assert torch.equal(torch.random.get_rng_state(), before)
    assert len(method.steps) < 20 * 200, "not even one of the others was trained to its end"
