from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest


from fedul.evaluation.assumption import check_assumption
from fedul.evaluation.out_of_fold import ClientPredictions, OutOfFoldPredictions

from .mixtures import mixture




def changed(world: OutOfFoldPredictions, **changes: object) -> OutOfFoldPredictions:
    """The same with another client-2."""
    clients = [replace(c, **changes) if c.name == "client-2" else c for c in world.clients]  # type: ignore[arg-type]
    return replace(world, clients=clients)


def client_two(world: OutOfFoldPredictions) -> ClientPredictions:
    return world.clients[1]


@pytest.mark.parametrize("exact", [True, False])
def test_what_holds_is_seldom_rejected(exact: bool) -> None:
    found = [check_assumption(mixture(seed, exact=exact).predictions).p_value for seed in range(12)]
    assert sum(p is not None and p < 0.05 for p in found) <= 2
    assert 0.3 < np.mean([p for p in found if p is not None]) < 0.75


def test_client_whose_rows_look_different_is_named() -> None:
    world = mixture(0).predictions
    found = check_assumption(changed(world, features=1 - client_two(world).features))
    assert found.p_value is not None
    assert found.p_value < 0.05
    assert [(misfit.client, misfit.set) for misfit in found.misfits] == [("client-2", None)]


def test_client_with_permuted_priors_is_named() -> None:
    world = mixture(1).predictions
    found = check_assumption(changed(world, priors=np.roll(client_two(world).priors, 1, axis=1)))
    assert [(misfit.client, misfit.set) for misfit in found.misfits] == [("client-2", None)]
    assert "mixtures" in found.misfits[0].why


def test_set_with_wrong_priors_is_named() -> None:
    world = mixture(2).predictions
    priors = client_two(world).priors.copy()
    priors[3] = np.roll(priors[3], 1)
    found = check_assumption(changed(world, priors=priors))
    assert [(misfit.client, misfit.set) for misfit in found.misfits] == [("client-2", "set 3")]


def test_set_of_a_single_client_is_named() -> None:
    world = mixture(3, clients=1, sets=16, rows=200).predictions
    priors = world.clients[0].priors.copy()
    priors[5] = np.roll(priors[5], 1)
    found = check_assumption(replace(world, clients=[replace(world.clients[0], priors=priors)]))
    assert ("client-1", "set 5") in [(misfit.client, misfit.set) for misfit in found.misfits]


def test_two_clients_that_do_not_fit_together_are_both_named() -> None:
    world = mixture(4, clients=2).predictions
    found = check_assumption(changed(world, features=1 - client_two(world).features))
    assert [misfit.client for misfit in found.misfits] == ["client-1", "client-2"]


@pytest.mark.parametrize(("clients", "sets"), [(1, 4), (2, 3)])
def test_too_few_sets_give_a_reason_instead_of_a_p_value(clients: int, sets: int) -> None:
    found = check_assumption(mixture(5, clients=clients, sets=sets).predictions)
    assert found.p_value is None
    assert found.reason
    assert found.misfits == ()


def test_large_sets_are_drawn_by_their_moments() -> None:
    world = mixture(6, rows=300).predictions
    assert check_assumption(world).p_value is not None
    strange = changed(world, features=1 - client_two(world).features)
    assert [misfit.client for misfit in check_assumption(strange).misfits] == ["client-2"]
