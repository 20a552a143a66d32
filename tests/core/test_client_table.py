"""Federations made from arrays: the same as those of one object per client."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import fedul
from fedul.core import Federation, Scaling, UnlabeledSets, check_identifiability
from fedul.core.client_table import ClientTable
from fedul.engines import held_out_evaluator
from fedul.engines.simulation import evaluated_rows
from fedul.errors import InputError

CLASSES = ["x", "y", "z"]
ROWS, SETS = 600, 40
GENERATOR = np.random.default_rng(3)
CLIENTS = np.array([f"client-{c}" for c in GENERATOR.permutation(np.arange(SETS) % 11)])  # 3 or 4 sets each
SET_OF_ROW = GENERATOR.permutation(np.append(np.arange(SETS), GENERATOR.integers(0, SETS, ROWS - SETS)))
PRIORS = GENERATOR.dirichlet(np.ones(3), SETS)
INPUTS = GENERATOR.integers(0, 256, (ROWS, 5), np.uint8)
ARRAYS: dict[str, Any] = {
    "inputs": INPUTS,
    "sets": SET_OF_ROW,
    "priors": PRIORS,
    "clients": CLIENTS,
    "classes": CLASSES,
}


class _Quiet(fedul.Callback):
    def on_warning(self, message: str) -> None:
        pass


SETTINGS: dict[str, Any] = {"method": "fedul", "model": "mlp", "rounds": 3, "seed": 2, "callbacks": [_Quiet()]}


def table(**changed: Any) -> Federation:
    return Federation.from_arrays(**{**ARRAYS, "scaling": Scaling(1 / 255), **changed})


def objects(held_out: float = 0.2, seed: int = 0) -> Federation:
    """One object per client, in the order of the names."""
    clients = []
    for name in np.unique(CLIENTS):
        own = np.flatnonzero(name == CLIENTS)
        rows = np.flatnonzero(np.isin(SET_OF_ROW, own))
        numbers = np.searchsorted(own, SET_OF_ROW[rows])
        clients.append(
            UnlabeledSets.from_arrays(str(name), INPUTS, numbers, PRIORS[own], rows=rows, held_out=held_out, seed=seed)
        )
    return Federation(clients, CLASSES, scaling=Scaling(1 / 255))


@pytest.mark.parametrize(("held_out", "seed"), [(0.2, 0), (0.5, 7), (0.0, 0)])
def test_clients_of_a_table_are_those_made_one_by_one(held_out: float, seed: int) -> None:
    found, expected = table(held_out=held_out, seed=seed), objects(held_out, seed)
    assert repr(found) == repr(expected)
    assert found.fingerprint() == expected.fingerprint()
    assert found.spec.class_mix is not None
    assert np.array_equal(found.spec.class_mix, np.asarray(expected.spec.class_mix))
    assert check_identifiability(found) == check_identifiability(expected)
    for one, other in zip(found.clients, expected.clients, strict=True):
        assert (one.name, one.set_names, one.prior_scope) == (other.name, other.set_names, other.prior_scope)
        assert np.array_equal(one.priors, other.priors)
        for rows, others in ((one.train, other.train), (one.held_out, other.held_out)):
            assert torch.equal(rows.index, others.index)
            assert torch.equal(rows.sets, others.sets)


@pytest.mark.parametrize("settings", [{}, {"participation": 0.4}, {"participation": 0.4, "algorithm": "scaffold"}])
def test_training_on_a_table_gives_the_same_bits(settings: dict[str, Any]) -> None:
    runs = [
        fedul.train(
            federation, method="fedul", model="mlp", rounds=3, seed=2, choose="off", callbacks=[_Quiet()], **settings
        )
        for federation in (table(), objects())
    ]
    assert runs[0].result.weights_sha256 == runs[1].result.weights_sha256
    assert runs[0].result.data == runs[1].result.data
    for one, other in zip(runs[0].history, runs[1].history, strict=True):
        assert (one.loss, one.held_out_loss, one.temperature) == (other.loss, other.held_out_loss, other.temperature)


def test_held_out_rows_are_sampled_in_the_same_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evaluated_rows, "FEWEST_EVALUATED", 30)
    monkeypatch.setattr(held_out_evaluator, "GRID_ROWS", 20)
    test_training_on_a_table_gives_the_same_bits({"participation": 0.2})
    config = fedul.TrainConfig(participation=0.2).resolved()
    found, expected = (evaluated_rows.held_out_rows(each, config) for each in (table(), objects()))
    count = int(table().columns.train_rows.sum() * 2 / 11)
    assert len(found.sets) == len(expected.sets) == count
    assert torch.equal(torch.cat([at for _, at in found.parts]), torch.cat([at for _, at in expected.parts]))
    for name in ("joint", "marginal"):
        assert torch.equal(getattr(found, name)[found.sets], getattr(expected, name)[expected.sets])
    every = evaluated_rows.held_out_rows(table(), fedul.TrainConfig().resolved())
    assert len(every.sets) == table().columns.held_out_rows.sum()


def test_a_run_on_one_is_resumed_on_the_other(tmp_path: Path) -> None:
    settings: dict[str, Any] = {**SETTINGS, "out": tmp_path / "run"}
    first = fedul.train(table(), **settings)
    again = fedul.train(objects(), **settings, resume=True)
    assert again.result.weights_sha256 == first.result.weights_sha256


def test_clients_may_be_numbers_and_parts_of_a_table_are_lists() -> None:
    clients = table(clients=np.arange(SETS) // 4).clients
    assert isinstance(clients, ClientTable)
    assert [client.name for client in clients[1:3]] == ["1", "2"]
    assert clients[-1].name == "9"
    with pytest.raises(IndexError):
        clients[10]


def changed(values: np.ndarray[Any, Any], at: Any, value: float) -> np.ndarray[Any, Any]:
    result = values.copy()
    result[at] = value
    return result


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"priors": changed(PRIORS, (5, 0), -0.1)}, rf"class priors of client '{CLIENTS[5]}': row \d has a negative"),
        ({"priors": PRIORS * 100}, "not percentages or counts"),
        ({"priors": PRIORS[1:]}, "give one row for each of 40 sets"),
        ({"priors": "many"}, "give one row for each of 40 sets"),
        ({"sets": changed(SET_OF_ROW, 4, SETS)}, r"sets must lie in 0\.\.39"),
        ({"sets": SET_OF_ROW[1:]}, "one for each of 600 rows"),
        ({"sets": SET_OF_ROW / 2}, "sets must be whole numbers"),
        (
            {"sets": np.where(SET_OF_ROW == 3, 4, SET_OF_ROW)},
            rf"client '{CLIENTS[3]}': set 3 \(numbers start from 0\) has no rows to train",
        ),
        ({"sets": [[0], [1, 2]]}, "sets must be whole numbers from 0, one for each of 600 rows"),
        ({"clients": [None] * SETS}, r"clients: set 0 \(numbers start from 0\) has no client"),
        ({"clients": [*range(SETS - 1), float("nan")]}, r"clients: set 39 \(numbers start from 0\) has no client"),
        ({"inputs": np.zeros((ROWS, 0))}, r"its rows have no values \(shape \(600, 0\)\); give at least one column"),
        ({"clients": CLIENTS[:, None]}, "clients is a list with the client of every set"),
        ({"clients": np.where(CLIENTS == "client-1", "", CLIENTS)}, "a client has an empty name"),
        ({"inputs": np.zeros(ROWS)}, "its rows are not a table of numbers"),
        (
            {"inputs": changed(INPUTS.astype(np.float32), (9, 2), np.nan)},
            rf"client '{CLIENTS[SET_OF_ROW[9]]}': row 10 of its inputs \(number 9 from 0\) has a value that is missing",
        ),
        ({"held_out": 1}, "held_out is a share"),
        ({"classes": ["x", "y"]}, "3 columns for 2 classes"),
        ({"priors": np.tile([0.5, 0.5, 0.0], (SETS, 1))}, "class 'z' has prior 0 in every set"),
    ],
)
def test_arrays_that_do_not_fit_are_refused_in_one_sentence(arrays: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        table(**arrays)
    assert "\n" not in str(caught.value)
