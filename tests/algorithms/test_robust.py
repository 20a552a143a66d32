"""Median and trimmed mean equal NumPy's, in any order of clients, and withstand a client that sends wrong updates."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from scipy.stats import trim_mean

import fedul
from fedul._utils.files import tensors_digest
from fedul.algorithms import make_algorithm
from fedul.core import Matrix, Study, Update, Weights
from fedul.engines.base import Broadcast
from fedul.engines.simulation.engine import SimulationEngine
from fedul.errors import EnvironmentFailure, FedulError, InputError
from fedul.training import Run

from ..factories import digits, make_update, random_updates, random_weights
from ..worlds import repeatable, seeds

robust = pytest.mark.parametrize("name", ["median", "trimmed-mean"])


def changes_of(updates: Sequence[Update], part: str) -> Matrix:
    return np.stack([{**u.delta, **u.buffers}[part].numpy() for u in updates])


@repeatable
@given(seeds, st.integers(1, 9), st.floats(0, 2))
def test_the_median_is_numpys_in_every_coordinate(seed: int, clients: int, step: float) -> None:
    generator = np.random.default_rng(seed)
    start = random_weights(generator)
    updates = random_updates(generator, start, clients)
    found, state = make_algorithm("median", {"step": step}).aggregate(start, {}, updates, clients)
    for part, times in (("a", step), ("b", step), ("level", 1.0)):
        expected = start[part].numpy() + times * np.median(changes_of(updates, part), axis=0)
        assert_allclose(found[part], expected, rtol=1e-12, atol=1e-12)
    assert found["count"] == round(start["count"].item() + np.median(changes_of(updates, "count")))
    assert state == {}


@repeatable
@given(seeds, st.integers(1, 11), st.sampled_from([0.0, 0.1, 0.2, 0.25, 0.3, 0.4, 0.49]), st.floats(0, 2))
def test_the_trimmed_mean_is_that_of_what_is_left_in_every_coordinate(
    seed: int, clients: int, trim: float, step: float
) -> None:
    generator = np.random.default_rng(seed)
    start = random_weights(generator)
    updates = random_updates(generator, start, clients)
    algorithm = make_algorithm("trimmed-mean", {"trim": trim, "step": step})
    found, state = algorithm.aggregate(start, {}, updates, clients)
    cut = (round(100 * trim) * clients) // 100
    for part, times in (("a", step), ("b", step), ("level", 1.0)):
        left = np.sort(changes_of(updates, part), axis=0)[cut : clients - cut]
        assert_allclose(found[part], start[part].numpy() + times * left.mean(0), rtol=1e-12, atol=1e-12)
    assert state == {}


@pytest.mark.parametrize(("trim", "clients"), [(0.2, 5), (0.3, 10), (0.1, 10), (0.4, 5), (0.25, 7), (0.49, 2)])
def test_as_many_are_trimmed_as_scipy_trims(trim: float, clients: int) -> None:
    values = np.random.default_rng(0).normal(size=(clients, 4)) ** 3
    updates = [make_update(str(c), {"w": torch.from_numpy(value)}) for c, value in enumerate(values)]
    start = {"w": torch.zeros(4).double()}
    found, _ = make_algorithm("trimmed-mean", {"trim": trim}).aggregate(start, {}, updates, clients)
    assert_allclose(found["w"], trim_mean(values, trim), atol=1e-12)


def test_a_share_of_the_clients_is_counted_as_it_is_written() -> None:
    updates = [make_update(str(c), {"w": torch.tensor([float(c >= 71)])}) for c in range(100)]
    found, _ = make_algorithm("trimmed-mean", {"trim": 0.29}).aggregate({"w": torch.zeros(1)}, {}, updates, 100)
    assert int(0.29 * 100) == 28
    assert found["w"] == 0


@repeatable
@given(seeds, st.integers(1, 9), st.sampled_from(["median", "trimmed-mean"]), st.randoms(use_true_random=False))
def test_the_order_of_clients_does_not_matter_to_the_bit(seed: int, clients: int, name: str, chance: Any) -> None:
    generator = np.random.default_rng(seed)
    start = random_weights(generator)
    updates = random_updates(generator, start, clients)
    mixed = list(updates)
    chance.shuffle(mixed)
    one, other = (make_algorithm(name, {}).aggregate(start, {}, some, clients)[0] for some in (updates, mixed))
    assert tensors_digest(one) == tensors_digest(other)


@repeatable
@given(seeds, st.sampled_from(["median", "trimmed-mean"]), st.floats(-1e12, 1e12))
def test_one_client_of_five_cannot_move_the_model_beyond_what_the_others_say(
    seed: int, name: str, nonsense: float
) -> None:
    generator = np.random.default_rng(seed)
    start = random_weights(generator, buffers=False)
    honest = random_updates(generator, start, 4)
    liar = make_update("liar", {part: torch.full_like(tensor, nonsense) for part, tensor in start.items()})
    found, _ = make_algorithm(name, {}).aggregate(start, {}, [*honest, liar], 5)
    for part in ("a", "b"):
        moved, sent = (found[part] - start[part]).numpy(), changes_of(honest, part)
        assert (moved >= sent.min(0) - 1e-9).all()
        assert (moved <= sent.max(0) + 1e-9).all()


@robust
def test_a_buffer_that_is_left_out_of_an_update_did_not_change(name: str) -> None:
    start: Weights = {"level": torch.zeros(1)}
    changed = make_update("a", buffers={"level": torch.tensor([3.0])})
    others = [make_update(client) for client in "bcde"]
    found, _ = make_algorithm(name, {}).aggregate(start, {}, [*others[:2], changed, *others[2:]], 5)
    assert torch.equal(found["level"], torch.zeros(1))


@robust
def test_updates_are_copied_before_the_next_is_requested(name: str) -> None:
    memory = {"w": torch.zeros(2)}

    def updates() -> Iterator[Update]:
        for value in (1.0, 2.0, 6.0):
            memory["w"].fill_(value)
            yield make_update(str(value), memory)
            memory["w"].fill_(float("nan"))

    found, _ = make_algorithm(name, {}).aggregate({"w": torch.zeros(2)}, {}, updates(), 3)
    assert_allclose(found["w"], [2.0 if name == "median" else 3.0] * 2, rtol=1e-6)


@robust
def test_clients_cannot_count_by_their_rows(name: str) -> None:
    with pytest.raises(InputError, match="weighting: 'rows' is not possible, because all clients count the same"):
        make_algorithm(name, {"weighting": "rows"})


@robust
def test_a_round_without_an_update_is_an_environment_failure(name: str) -> None:
    with pytest.raises(EnvironmentFailure, match="no client sent an update in this round"):
        make_algorithm(name, {}).aggregate({"w": torch.zeros(1)}, {}, [], 3)


def test_half_of_the_clients_cannot_be_trimmed_at_either_end() -> None:
    with pytest.raises(InputError, match=r"trim: must be at most 0\.49"):
        make_algorithm("trimmed-mean", {"trim": 0.5})


@pytest.fixture
def poisoned(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first client of every round sends its update a hundredfold, with the sign turned."""
    original = SimulationEngine.train

    def poison(self: SimulationEngine, broadcast: Broadcast, clients: Sequence[str]) -> Iterator[Update]:
        for update in original(self, broadcast, clients):
            turned = {name: -100 * tensor for name, tensor in update.delta.items()}
            yield replace(update, delta=turned) if update.client == min(clients) else update

    monkeypatch.setattr(SimulationEngine, "train", poison)


def trained(study: Study, name: str) -> Run:
    settings = {"rounds": 5, "epochs": 2, "learning_rate": 0.006, "averaging": 0}
    return fedul.train(study, algorithm=name, select="last", evaluate_every=0, **settings)


@pytest.mark.usefixtures("poisoned")
def test_one_poisoned_client_of_five_ruins_fedavg() -> None:
    with pytest.raises(FedulError, match="the training diverged"):
        trained(digits(5), "fedavg")


@robust
@pytest.mark.usefixtures("poisoned")
def test_one_poisoned_client_of_five_does_not_ruin(name: str) -> None:
    error = trained(digits(5), name).test_error
    assert error is not None
    assert error < 0.15
