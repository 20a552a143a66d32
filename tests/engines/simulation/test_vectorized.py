"""Vectorized clients compute the same as clients in a loop: the same updates, weights and states."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from fedul.engines.base import Broadcast
from fedul.engines.client_store import DiskStore
from fedul.engines.simulation import shared_inputs

from ...factories import IMAGE, random_study, seeded_network
from ...runs import copy_update, copy_weights
from ...worlds import repeatable, seeds
from .comparison import Case, Result, assert_near, assert_same_result, table_network, with_layout

METHODS: dict[str, tuple[str, dict[str, Any]]] = {
    "fedul-log": ("fedul", {"score": "log"}),
    "fedul-brier": ("fedul", {"score": "brier"}),
    "fedul-authors": ("fedul", {"score": "authors"}),
    "fedul-refined": ("fedul-refined", {"earliest": 1, "latest": 1}),
    "supervised": ("supervised", {}),
    "supervised-half": ("supervised", {"labels": 0.5}),
    "fedpl": ("fedpl", {}),
    "fedllp-full": ("fedllp", {"mean": "full"}),
    "fedllp-batch": ("fedllp", {"mean": "batch"}),
    "fedllp-vat": ("fedllp-vat", {"ramp_rounds": 2, "norm": 0.5}),
    "soft-labels": ("soft-labels", {}),
    "soft-em": ("soft-em", {}),
    "rcm": ("rcm", {}),
    "llpfc-approx": ("llpfc", {"noisy_prior": "approx", "groupings": 3}),
    "llpfc-uniform": ("llpfc", {"noisy_prior": "uniform", "groupings": 2}),
    "easyllp": ("easyllp", {}),
    "llp-pvc": ("llp-pvc", {}),
}
ALGORITHMS: dict[str, tuple[str, dict[str, Any]]] = {
    "fedavg": ("fedavg", {}),
    "fedavg-rows": ("fedavg", {"weighting": "rows"}),
    "fedprox": ("fedprox", {"mu": 0.1}),
    "fednova": ("fednova", {}),
    "fednova-rows": ("fednova", {"weighting": "rows"}),
    "scaffold": ("scaffold", {}),
    "fedavgm": ("fedavgm", {}),
    "fedadam": ("fedadam", {}),
    "fedyogi": ("fedyogi", {}),
    "median": ("median", {}),
    "trimmed-mean": ("trimmed-mean", {"trim": 0.3}),
}
OPTIMISERS: list[dict[str, Any]] = [
    {"optimizer": "sgd", "learning_rate": 0.03},
    {"optimizer": "sgd", "learning_rate": 0.01, "momentum": 0.8},
    {"optimizer": "sgd", "learning_rate": 0.01, "momentum": 0.8, "nesterov": True, "schedule": "cosine", "rounds": 3},
    {"optimizer": "adam", "learning_rate": 0.01},
]
"""With steps that are small: under large ones a difference of 1e-15 at the start of a loop is one of 1 at its end."""


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("method", METHODS)
def test_every_pair_of_method_and_algorithm_gives_the_same_result_vectorized_as_in_the_loop(
    method: str, algorithm: str
) -> None:
    study = random_study(7, clients=4, rows=(3, 20))
    chosen = {"batch_size": 7, "epochs": 2, **OPTIMISERS[len(method + algorithm) % len(OPTIMISERS)]}
    case = Case(study, METHODS[method], ALGORITHMS[algorithm], settings=chosen)
    assert_same_result(case.vectorized(), case.loop())


def drawn_participants(seed: int, names: list[str], share: float) -> list[list[str]]:
    """Some clients in each of three rounds: in the later ones new clients among old ones."""
    generator, count = np.random.default_rng(seed), max(1, round(share * len(names)))
    return [sorted(generator.choice(names, count, replace=False).tolist()) for _ in range(3)]


@st.composite
def cases(draw: st.DrawFn, batch_sizes: Sequence[int | str] = ("all", 1, 2, 5, 8, 13, 39), **fixed: Any) -> Case:
    """Any federation with any method, algorithm and settings."""
    seed, augment = draw(seeds), draw(st.sampled_from(["none", "none", "rotate", "flip", "flip-crop"]))
    classes = draw(st.integers(2, 4))
    shape = IMAGE if augment != "none" else (3,)
    drawn: dict[str, Any] = {"clients": draw(st.integers(2, 9)), "shared": draw(st.booleans())}
    study = random_study(seed, classes=classes, shape=shape, **drawn, **fixed)
    chosen = {
        "batch_size": draw(st.sampled_from(batch_sizes)),
        "epochs": draw(st.integers(1, 3)),
        "l1": draw(st.sampled_from([0.0, 1e-3])),
        "augment": augment,
        **draw(st.sampled_from(OPTIMISERS)),
    }
    participants: list[list[str]] = [[], [], []]
    if draw(st.booleans()):
        chosen["participation"] = 0.6
        participants = drawn_participants(seed, [client.name for client in study.federation.clients], 0.6)
    method, algorithm = (draw(st.sampled_from(list(every.values()))) for every in (METHODS, ALGORITHMS))
    return Case(study, method, algorithm, partial(seeded_network, shape, classes), chosen, participants)


@settings(repeatable, max_examples=15)
@given(cases())
def test_on_any_federation_vectorized_clients_end_as_those_in_the_loop(case: Case) -> None:
    assert_same_result(case.vectorized(), case.loop())


def change(ran: Result, start: dict[str, Tensor]) -> Tensor:
    return torch.cat([(ran.weights[name] - start[name]).flatten().double() for name in start])


@pytest.mark.parametrize("precision", [torch.float32, torch.uint8])
@settings(repeatable, max_examples=12)
@given(st.data())
def test_in_single_precision_they_end_there_by_norm(precision: torch.dtype, data: st.DataObject) -> None:
    # From a single set nothing is to be learned under fedul, and Adam makes steps of rounding errors. In steps of a
    # single row the loss of fedllp has gradients of up to 1e4, which multiply them.
    case = data.draw(cases(dtype=precision, sets=(2, 5), rows=(6, 40), batch_sizes=("all", 5, 8, 13, 39)))
    case = replace(case, model=lambda model=case.model: model().float())
    start = copy_weights(case.model())
    expected = change(case.loop(), start)
    assert (change(case.vectorized(), start) - expected).norm() <= 1e-3 * expected.norm()


RAGGED = random_study(3, clients=7, rows=(3, 30))
"""Seven clients, each with other rows and sets."""
STATEFUL = Case(RAGGED, METHODS["fedul-refined"], ALGORITHMS["scaffold"], settings={"epochs": 2, "batch_size": 4})
"""The algorithm keeps something at every client."""


@pytest.mark.parametrize("optimiser", OPTIMISERS, ids=["sgd", "momentum", "nesterov", "adam"])
def test_a_client_that_has_finished_does_not_change_while_others_train(optimiser: dict[str, Any]) -> None:
    case = replace(STATEFUL, settings={"batch_size": 4, **optimiser})
    broadcast = Broadcast(1, copy_weights(case.model()))
    updates = [copy_update(update) for update in case.engine(engine_mode="vectorized").train(broadcast, case.names)]
    assert len({update.steps for update in updates}) > 2
    for update in updates:
        (alone,) = case.engine(engine_mode="vectorized").train(broadcast, [update.client])
        assert_near(update.delta, alone.delta, 1e-13)
        assert_near(update.message, alone.message, 1e-13)
        assert update.loss == pytest.approx(alone.loss, rel=1e-13)


@pytest.mark.parametrize("clients", [1, 2, 3, 5, 100])
def test_the_result_does_not_depend_on_how_clients_are_grouped(clients: int) -> None:
    store = STATEFUL.store()
    engine = with_layout(STATEFUL.engine(store, engine_mode="vectorized"), clients)
    assert_same_result(STATEFUL.run(engine, store), STATEFUL.vectorized(), 1e-12)


def test_the_result_does_not_depend_on_the_order_of_clients() -> None:
    names = [STATEFUL.names[i] for i in (4, 0, 6, 2, 1, 5, 3)]
    other = replace(STATEFUL, participants=[names] * 3).vectorized()
    assert_same_result(by_client(other), by_client(STATEFUL.vectorized()), 1e-12)


def test_updates_come_in_the_requested_order() -> None:
    names = [STATEFUL.names[i] for i in (4, 0, 6, 2, 1, 5, 3)]
    assert [update.client for update in replace(STATEFUL, participants=[names]).vectorized().updates] == names


def by_client(ran: Result) -> Result:
    return replace(ran, updates=sorted(ran.updates, key=lambda update: update.client))


def test_new_clients_among_old_ones_start_without_state() -> None:
    first, second, third = STATEFUL.names[:4], STATEFUL.names[2:6], STATEFUL.names
    case = replace(STATEFUL, participants=[first, second, third], settings={"participation": 0.5})
    assert_same_result(case.vectorized(), case.loop())


def test_client_states_on_disk_equal_those_in_memory(tmp_path: Path) -> None:
    numbers = count()
    on_disk = replace(STATEFUL, store=lambda: DiskStore(tmp_path / str(next(numbers))))
    assert_same_result(on_disk.vectorized(), STATEFUL.loop())


def test_the_state_of_a_client_does_not_keep_the_memory_of_others() -> None:
    for state in STATEFUL.vectorized().client_states.values():
        for tensor in state.values():
            assert tensor.untyped_storage().nbytes() == tensor.nbytes


def test_inputs_that_are_too_large_to_be_pooled_give_the_same_result(monkeypatch: pytest.MonkeyPatch) -> None:
    expected = STATEFUL.loop()
    monkeypatch.setattr(shared_inputs, "POOL_BYTES", 0)
    assert_same_result(STATEFUL.vectorized(), expected)


@pytest.mark.parametrize("other", [0, 1, 2])
def test_clients_may_store_their_rows_as_different_types(other: int) -> None:
    study = random_study(1, clients=3, dtype=torch.uint8)
    clients = list(study.federation.clients)
    clients[other] = replace(clients[other], inputs=clients[other].inputs.float() + 0.5)
    study = replace(study, federation=replace(study.federation, clients=clients))
    case = Case(study, model=lambda: table_network().float())
    assert_same_result(case.vectorized(), case.loop(), 1e-5)
