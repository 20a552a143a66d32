from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from fedul.evaluation.assumption import CONTRADICTION, MIXES_DIFFER, ROWS_DIFFER, check_assumption
from fedul.evaluation.lack_of_fit import LackOfFit
from fedul.evaluation.out_of_fold import ClientPredictions, OutOfFoldPredictions
from fedul.evaluation.set_means import SetMeans, rounding_error, summarize_sets
from fedul.evaluation.set_noise import SetNoise

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
    world = mixture(3).predictions
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


@pytest.mark.parametrize("clients", [1, 2])
def test_too_few_sets_give_a_reason_instead_of_a_p_value(clients: int) -> None:
    found = check_assumption(mixture(5, clients=clients, sets=4 // clients).predictions)
    assert found.p_value is None
    assert found.reason
    assert found.misfits == ()


def test_sets_of_one_row_give_a_reason_instead_of_a_p_value() -> None:
    found = check_assumption(mixture(5, rows=1).predictions)
    assert found.p_value is None
    assert "more rows" in (found.reason or "")


def named(world: OutOfFoldPredictions) -> OutOfFoldPredictions:
    return replace(world, columns=("age", "height", "colour"))


def shifted(world: OutOfFoldPredictions, column: int, amount: float = 0.8) -> OutOfFoldPredictions:
    return changed(world, features=client_two(world).features + amount * np.eye(3)[column])


@pytest.mark.parametrize("exact", [True, False])
def test_the_column_that_differs_is_named_with_its_difference(exact: bool) -> None:
    found = check_assumption(shifted(named(mixture(7, rows=120, exact=exact).predictions), 1))
    assert [(misfit.client, misfit.set, misfit.why) for misfit in found.misfits] == [("client-2", None, ROWS_DIFFER)]
    (column,) = found.columns
    assert (column.column, column.client, column.set) == ("height", "client-2", None)
    assert column.difference == pytest.approx(0.8, abs=0.25)
    assert column.p_value < 0.05


def test_inputs_of_one_column_are_reported_once() -> None:
    world = replace(mixture(7, rows=120).predictions, columns=("age", "colour", "colour"))
    found = check_assumption(shifted(shifted(world, 1), 2, -0.5))
    assert [each.column for each in found.columns] == ["colour"]


def test_rows_without_columns_name_none() -> None:
    found = check_assumption(shifted(mixture(7, rows=120).predictions, 1))
    assert found.misfits
    assert found.columns == ()


def test_wrong_priors_of_a_client_are_not_blamed_on_columns() -> None:
    world = named(mixture(1).predictions)
    found = check_assumption(changed(world, priors=np.roll(client_two(world).priors, 1, axis=1)))
    assert found.misfits[0].why == MIXES_DIFFER
    assert found.columns == ()


def test_clients_that_all_differ_are_not_all_named() -> None:
    world = named(mixture(8, clients=6, rows=120).predictions)
    generator = np.random.default_rng(0)
    clients = [replace(c, features=c.features + np.array([0, 0, generator.normal()])) for c in world.clients]
    found = check_assumption(replace(world, clients=clients))
    assert found.p_value is not None
    assert found.p_value < 0.05
    assert found.misfits == ()
    assert [each.column for each in found.columns] == ["colour"]


def test_two_clients_are_said_to_contradict_each_other() -> None:
    found = check_assumption(shifted(mixture(4, clients=2, rows=120).predictions, 0, 1.5))
    assert {misfit.why for misfit in found.misfits} == {CONTRADICTION}


def test_the_p_value_does_not_depend_on_units_and_directions_of_features() -> None:
    world = mixture(9).predictions
    mixed = np.array([[3.0, 1.0, 0.0], [0.0, 0.2, 0.1], [1.0, 0.0, 50.0]])
    clients = [replace(client, features=client.features @ mixed - 7) for client in world.clients]
    first, second = (LackOfFit.of(sets, 0) for sets in map(summarize, (world, replace(world, clients=clients))))
    assert first is not None
    assert second is not None
    assert second.observed["all"] == pytest.approx(first.observed["all"], rel=0.1)
    assert second.observed["client"] == pytest.approx(first.observed["client"], rel=0.1)


def test_predictions_do_not_affect_the_test() -> None:
    world = mixture(10).predictions
    clients = [replace(client, probabilities=client.probabilities[::-1]) for client in world.clients]
    assert check_assumption(world) == check_assumption(replace(world, clients=clients))


def summarize(world: OutOfFoldPredictions) -> SetMeans:
    sets = summarize_sets(world)
    assert sets is not None
    return sets


def noise_of(world: OutOfFoldPredictions) -> SetNoise:
    return SetNoise.of(summarize(world), np.random.default_rng(0))


@pytest.mark.parametrize("exact", [True, False])
def test_the_noise_of_a_mean_is_that_within_classes_and_for_a_population_that_of_classes_too(exact: bool) -> None:
    world, rows, classes = mixture(11, rows=2000, exact=exact), 2000, 4
    noise = noise_of(world.predictions)
    features = np.concatenate([client.features for client in world.predictions.clients])
    labels = np.concatenate(world.labels)
    centres = np.stack([features[labels == k].mean(axis=0) for k in range(classes)])
    priors = noise.sets.priors
    between = priors @ centres**2 - (priors @ centres) ** 2  # (S, 3), and the classes have unit variance
    units = noise.deviations * features.std(axis=0)  # features are compared in standard units
    assert noise.variances * units**2 == pytest.approx(1 + (0 if exact else between), rel=0.25)
    drawn = noise.draw(4000, np.random.default_rng(1))
    assert rows * drawn.var(axis=2) == pytest.approx(noise.variances, rel=0.15)


def test_rounding_adds_to_the_noise_by_the_distance_of_classes() -> None:
    world = mixture(12, rows=2000, exact=True, classes=2).predictions
    rounded = replace(world, clients=[replace(client, rounding=0.05) for client in world.clients])
    before, after = noise_of(world), noise_of(rounded)
    fit = LackOfFit.of(before.sets, 0)
    assert fit is not None
    mu = fit.inverse @ ((before.sets.priors.T * fit.weights) @ fit.means)
    expected = 2000 * 0.05**2 / 3 * np.square(mu[0] - mu[1])
    assert np.median(after.variances - before.variances, axis=0) == pytest.approx(expected, rel=0.1)


def test_uncertain_priors_add_to_the_noise() -> None:
    world = mixture(13).predictions

    def draw(generator: np.random.Generator) -> list[np.ndarray]:
        return [np.stack([generator.dirichlet(20 * own + 0.5) for own in client.priors]) for client in world.clients]

    sure, unsure = noise_of(world), noise_of(replace(world, draw_priors=draw))
    assert (unsure.variances.mean(axis=0) > 1.5 * sure.variances.mean(axis=0)).all()


@pytest.mark.parametrize(
    ("priors", "sampling", "declared", "error"),
    [
        ([[0.25, 0.75], [0.5, 0.5]], 1.0, 0.0, 0.005),
        ([[0.254, 0.746], [0.5, 0.5]], 1.0, 0.0, 0.0005),
        ([[33 / 99, 66 / 99], [0.5, 0.5]], 1.0, 0.0, 0.005),  # 33 % and 66 %, divided by their sum
        ([[0.2512345678, 0.7487654322], [0.5, 0.5]], 1.0, 0.0, 0.0),
        ([[0.25, 0.75], [0.5, 0.5]], 0.0, 0.0, 0.0),  # counts of these rows
        ([[0.25, 0.75], [0.5, 0.5]], 0.0, 0.05, 0.05),
    ],
)
def test_rounding_is_that_declared_or_else_that_of_the_numbers(
    priors: list[list[float]], sampling: float, declared: float, error: float
) -> None:
    client = ClientPredictions(
        "north",
        ["a", "b"],
        np.array(priors),
        np.array([0, 1]),
        np.arange(2),
        np.full((2, 2), 0.5),
        np.zeros((2, 1)),
        False,
        sampling=sampling,
        rounding=declared,
    )
    assert rounding_error(client) == error


def test_whole_percents_of_many_rows_are_not_taken_for_a_violation() -> None:
    world = mixture(14, rows=5000, exact=False).predictions
    clients = [replace(client, priors=client.priors.round(2)) for client in world.clients]
    clients = [replace(c, priors=c.priors / c.priors.sum(axis=1, keepdims=True), rounding=0.005) for c in clients]
    p_value = check_assumption(replace(world, clients=clients)).p_value
    assert p_value is not None
    assert p_value > 0.05


def test_sets_that_share_all_rows_count_once() -> None:
    world = mixture(15, sets=6).predictions
    clients = [
        replace(
            client,
            set_names=[*client.set_names, *(f"{name} again" for name in client.set_names)],
            priors=np.tile(client.priors, (2, 1)),
            sets=np.concatenate([client.sets, client.sets + 6]),
            rows=np.tile(client.rows, 2),
            probabilities=np.tile(client.probabilities, (2, 1)),
            features=np.tile(client.features, (2, 1)),
        )
        for client in world.clients
    ]
    p_value = check_assumption(replace(world, clients=clients)).p_value
    assert p_value is not None
    assert p_value > 0.05
