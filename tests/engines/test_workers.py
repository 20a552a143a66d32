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
from fedul.engines.inprocess import InProcess
from fedul.engines.local import Broadcast
from fedul.federation import Federation
from fedul.methods.base import Predict, Step
from fedul.methods.fedul import FedUL
from fedul.models.weights import weights_of

from .stacks import IMAGE, Case, assert_alike, copied, dense, random_study, residual, with_layout

STUDY = random_study(3, clients=7, rows=(3, 30))
IMAGES = random_study(3, clients=7, rows=(3, 30), shape=IMAGE)
KEEPING = Case(STUDY, ("fedul-refined", {"earliest": 1, "latest": 1}), ("scaffold", {}), settings={"batch_size": 4})


def fedul_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith("fedul")]


@pytest.fixture(autouse=True)
def no_thread_is_left_behind() -> Iterator[None]:
    threads = torch.get_num_threads()
    yield
    assert fedul_threads() == []
    assert torch.get_num_threads() == threads


@pytest.mark.parametrize("workers", [2, 3, 20])
@pytest.mark.parametrize("mode", ["loop", "stacked"])
def test_the_result_does_not_depend_on_the_number_of_workers(mode: str, workers: int) -> None:
    store = KEEPING.store()
    several = with_layout(KEEPING.engine(store, engine_mode=mode, workers=workers), 1 if mode == "loop" else 2)
    assert_alike(KEEPING.ran(several, store), KEEPING.loop(workers=1), 1e-12)


@pytest.mark.parametrize("mode", ["loop", "stacked"])
def test_several_workers_may_share_a_network_that_torch_vectorises(mode: str) -> None:
    case = replace(KEEPING, study=IMAGES, model=residual)
    store = case.store()
    several = with_layout(case.engine(store, engine_mode=mode, workers=3), 1)
    assert_alike(case.ran(several, store), case.loop(workers=1))


@pytest.mark.parametrize("training", [True, False])
def test_a_network_that_draws_at_random_repeats_on_several_workers(training: bool) -> None:
    def model() -> nn.Module:
        torch.manual_seed(0)
        layers = nn.Linear(3, 16), nn.Dropout(0.5), nn.Tanh(), nn.Linear(16, 3)
        return nn.Sequential(*layers).double().train(training)

    case = replace(KEEPING, model=model, settings={"batch_size": 2, "epochs": 3})
    assert_alike(case.loop(workers=3), case.loop(workers=1), 0.0)


def test_a_hook_on_a_weight_is_heard_by_all_workers() -> None:
    def model() -> nn.Module:
        module = dense()
        module.get_parameter("1.weight").register_hook(lambda gradient: gradient.clamp(-0.01, 0.01))
        return module

    case = replace(KEEPING, model=model)
    assert_alike(case.loop(workers=3), case.loop(workers=1), 1e-12)


@pytest.mark.parametrize("model", [dense, residual], ids=["dense", "convolution"])
@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("mode", ["auto", "loop", "stacked"])
def test_torchs_own_generator_is_left_as_it_was(mode: str, workers: int, model: Callable[[], nn.Module]) -> None:
    case = replace(KEEPING, study=STUDY if model is dense else IMAGES)
    module = model()
    start = copied(weights_of(module))
    before = torch.random.get_rng_state()
    engine = replace(case, model=lambda: module).engine(engine_mode=mode, workers=workers)
    list(with_layout(engine, 2).train(Broadcast(1, start), case.names))
    assert torch.equal(torch.random.get_rng_state(), before)


class Broken(Exception):
    """What a method of a user raises."""


@dataclass(frozen=True)
class Breaking(FedUL):
    """Fails at rows of the value that marks them."""

    def loss(self, predict: Predict, step: Step) -> Tensor:
        if bool((step.inputs > 1e5).any()):
            raise Broken
        return super().loss(predict, step)


@pytest.mark.parametrize("position", [0, 3, 6])
@pytest.mark.parametrize("mode", ["loop", "stacked"])
def test_what_one_worker_raises_reaches_the_caller(mode: str, position: int) -> None:
    clients = list(STUDY.federation.clients)
    clients[position] = replace(clients[position], inputs=torch.full_like(clients[position].inputs, 1e6))
    federation = replace(STUDY.federation, clients=clients)
    config = TrainConfig(batch_size=2, engine_mode=mode, workers=2)
    module = dense()
    engine = with_layout(InProcess(federation, Breaking(), FedAvg(), module, config), 1)
    updates = engine.train(Broadcast(1, copied(weights_of(module))), KEEPING.names)
    before = torch.random.get_rng_state()
    assert [next(updates).client for _ in range(position)] == KEEPING.names[:position]
    with pytest.raises(Broken):
        next(updates)
    assert fedul_threads() == []
    assert torch.equal(torch.random.get_rng_state(), before)


def test_after_a_failure_the_engine_goes_on() -> None:
    engine = with_layout(KEEPING.engine(engine_mode="loop", workers=2), 1)
    start = copied(weights_of(dense()))
    broken = {**start, "1.weight": start["1.weight"][:1, :2]}
    with pytest.raises(RuntimeError):
        list(engine.train(Broadcast(1, broken), KEEPING.names))
    assert [update.client for update in engine.train(Broadcast(1, start), KEEPING.names)] == KEEPING.names


@dataclass(frozen=True)
class Counting(FedUL):
    """Notes every step."""

    steps: list[int] = field(default_factory=list)

    def loss(self, predict: Predict, step: Step) -> Tensor:
        self.steps.append(1)
        return super().loss(predict, step)


@pytest.mark.parametrize("mode", ["loop", "stacked"])
def test_whoever_stops_listening_stops_the_workers(mode: str) -> None:
    first, *_ = random_study(0, rows=(4, 4)).federation.clients
    _, *others = random_study(0, rows=(400, 400)).federation.clients
    federation = Federation([first, *others], "abc")
    method, module = Counting(), dense()
    config = TrainConfig(batch_size=2, epochs=20, engine_mode=mode, workers=2)
    engine = with_layout(InProcess(federation, method, FedAvg(), module, config), 1)
    updates = engine.train(Broadcast(1, copied(weights_of(module))), [client.name for client in federation.clients])
    before = torch.random.get_rng_state()
    assert next(updates).steps == 20 * 2
    assert fedul_threads()
    updates.close()
    assert fedul_threads() == []
    assert torch.equal(torch.random.get_rng_state(), before)
    assert len(method.steps) < 20 * 200, "not even one of the others was trained to its end"
