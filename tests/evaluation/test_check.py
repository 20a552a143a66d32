"""`fedul check` before training: verdict, forecast, problems, and advice for each of them."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from hypothesis import given
from numpy.testing import assert_allclose

from fedul.core import UnlabeledSets
from fedul.core.priors import class_information
from fedul.evaluation.check import check

from ..factories import make_client, make_federation, make_rows
from ..worlds import random_priors, repeatable, seeds

ILLNESSES = ("flu", "cold", "well")


def test_labelled_rows_are_worth_themselves() -> None:
    found = check(make_federation(make_client("north", np.eye(3), [40, 50, 60])))
    assert found.verdict == "enough"
    assert (found.forecast.labels_worth_low, found.forecast.labels_worth_high) == (150, 150)
    assert found.clients[0].efficiency == pytest.approx(1)
    assert found.advice == ("No problem was found: train, and compare the metrics of the run with this forecast.",)


def test_sets_with_equal_mixes_are_not_enough_and_worth_nothing() -> None:
    found = check(make_federation(make_client("north", [[0.3, 0.7], [0.3, 0.7]], 5000)))
    assert (found.identifiable, found.verdict, found.forecast.labels_worth_high) == (False, "not enough", 0)
    assert "do not determine a classifier" in found.advice[0]


def test_clients_with_one_set_each_are_advised_to_split() -> None:
    found = check(make_federation(make_client("north", [[0.9, 0.1]], 100), make_client("south", [[0.1, 0.9]], 100)))
    assert not found.identifiable
    assert found.totals.rank == 0
    assert "Every client has one set" in found.advice[1]
    assert "into 2 sets" in found.advice[1]


def test_classes_that_no_comparison_tells_apart_are_named() -> None:
    north = make_client("north", [[0.3, 0.3, 0.4], [0.1, 0.1, 0.8]], 100)
    found = check(make_federation(north, classes=ILLNESSES))
    assert found.totals.rank == 1
    assert (found.pairs[0].first, found.pairs[0].second, found.pairs[0].high) == ("flu", "cold", pytest.approx(0))
    assert "Not told apart: 'flu' and 'cold'" in found.advice[1]
    assert "1 more set" in found.advice[1]


def test_the_set_to_split_is_the_large_one_with_both_classes_of_the_worst_pair() -> None:
    north = make_client(
        "north",
        [[0.4, 0.4, 0.2], [0.1, 0.1, 0.8], [0.35, 0.45, 0.2]],
        [900, 900, 90],
        set_names=("May", "June", "July"),
    )
    south = make_client("south", [[0.4, 0.4, 0.2], [0.2, 0.2, 0.6]], 90)
    found = check(make_federation(north, south, classes=ILLNESSES))
    assert found.split is not None
    assert (found.split.client, found.split.name, found.split.rows) == ("north", "May", 900)
    assert found.split.high > found.pairs[0].high
    assert any("Splitting set 'May' of client 'north' (900 rows)" in sentence for sentence in found.advice)


def test_where_no_single_set_matters_all_are_to_be_split() -> None:
    generator = np.random.default_rng(0)
    clients = [make_client(f"client-{c}", random_priors(generator, 4, 3, purity=0.2), 100) for c in range(30)]
    found = check(make_federation(*clients))
    assert found.split is not None
    assert found.split.client is None
    assert any(sentence.startswith("Splitting every set (12,000 rows)") for sentence in found.advice)


def test_where_no_set_has_both_classes_there_is_nothing_to_split() -> None:
    apart = make_federation(make_client("north", [[1.0, 0.0]], 100), make_client("south", [[0.0, 1.0]], 100))
    assert check(apart).split is None


def test_contrasts_that_are_small_cost_much() -> None:
    found = check(make_federation(make_client("north", [[0.55, 0.45], [0.45, 0.55]], 5000)))
    assert found.verdict == "costly"
    assert found.forecast.share_high == pytest.approx(0.01, rel=1e-3)  # (0.55 - 0.45)^2, as for noisy labels
    assert found.pairs[0].contrast == pytest.approx(0.05)


def test_few_rows_are_not_enough_however_good_the_priors_are() -> None:
    found = check(make_federation(make_client("north", [[0.9, 0.1], [0.1, 0.9]], 5)))
    assert found.identifiable
    assert found.verdict == "not enough"
    assert any("may be worth as few as" in sentence for sentence in found.advice)


def test_a_client_with_one_set_is_named_if_others_have_more() -> None:
    found = check(make_federation(make_client("north", np.eye(2), 100), make_client("south", [[0.5, 0.5]], 70)))
    assert any("1 client with one set only ('south'; 70 rows)" in sentence for sentence in found.advice)


def test_equal_sets_are_named_and_different_ones_are_not() -> None:
    north = make_client("north", [[0.5, 0.5], [0.503, 0.497], [0.1, 0.9]], 9000, set_names=("April", "May", "June"))
    found = check(make_federation(north))
    (pair,) = found.near_duplicates
    assert (pair.client, pair.first, pair.second) == ("north", "April", "May")
    assert pair.distance == pytest.approx(0.003)
    assert any("same class mix: 'April' and 'May' of client 'north'" in sentence for sentence in found.advice)


def test_small_sets_that_differ_by_chance_are_named_as_such() -> None:
    found = check(make_federation(make_client("north", [[0.5, 0.5], [0.55, 0.45], [0.0, 1.0]], 20)))
    (pair,) = found.near_duplicates
    assert pair.distance < pair.chance
    assert any("class mixes differ by no more than chance explains" in sentence for sentence in found.advice)


def test_the_distance_by_chance_is_what_draws_of_one_population_have() -> None:
    shares = np.array([0.5, 0.3, 0.2])
    (pair,) = check(make_federation(make_client("north", [shares, shares], [300, 500]))).near_duplicates
    generator = np.random.default_rng(0)
    first, second = (generator.multinomial(n, shares, 20_000) / n for n in (300, 500))
    assert pair.chance == pytest.approx(np.abs(first - second).sum(axis=1).mean() / 2, rel=0.02)


def test_ten_thousand_equal_sets_are_checked() -> None:
    found = check(make_federation(make_client("north", np.full((10_000, 2), 0.5), 1)))
    assert not found.identifiable
    assert found.near_duplicates


@pytest.mark.parametrize(
    ("priors", "rows", "why", "value"),
    [
        ([[0.5, 0.49, 0.01], [0.2, 0.8, 0.0]], 9000, "rare", 0.01),
        ([[0.5, 0.3, 0.2], [0.2, 0.61, 0.19]], 9000, "alike", 0.01),
        ([[0.5, 0.4, 0.1], [0.2, 0.8, 0.0]], 100, "few rows", 10),
    ],
)
def test_a_class_with_little_support_is_named_with_the_reason(
    priors: list[list[float]], rows: int, why: str, value: float
) -> None:
    found = check(make_federation(make_client("north", priors, rows), classes=ILLNESSES))
    (weak,) = found.weak_classes
    assert (weak.name, weak.why, weak.value) == ("well", why, pytest.approx(value))
    assert any("'well' (" in sentence for sentence in found.advice)


def test_sets_with_hardly_any_rows_are_named() -> None:
    found = check(make_federation(make_client("north", [[0.9, 0.1], [0.1, 0.9], [0.5, 0.5]], [300, 300, 2])))
    assert [(small.name, small.rows) for small in found.small_sets] == [("3", 2)]


def test_a_row_in_several_sets_is_one_row_that_is_worth_more_but_no_more_than_a_label() -> None:
    priors = np.array([[0.9, 0.1], [0.1, 0.9]])
    train = make_rows(torch.arange(400) // 2, torch.arange(400) % 2)
    found = check(make_federation(UnlabeledSets("north", torch.zeros(200, 1), train, make_rows(), priors)))
    assert (found.totals.rows, found.forecast.rows) == (400, 200)
    assert found.forecast.labels_worth_high <= 200
    assert found.forecast.share_low > check(make_federation(make_client("north", priors, 100))).forecast.share_low


@repeatable
@given(seeds)
def test_the_order_of_clients_changes_neither_forecast_nor_advice_figures(seed: int) -> None:
    generator = np.random.default_rng(seed)
    clients = [make_client(f"client-{m}", random_priors(generator, m, 3), 50) for m in (2, 3, 4)]
    one, other = check(make_federation(*clients)), check(make_federation(*clients[::-1]))
    assert one.verdict == other.verdict
    ends = ("share_low", "share_high")
    assert_allclose(*([getattr(each.forecast, end) for end in ends] for each in (one, other)), rtol=1e-6, atol=1e-12)


def test_figures_of_a_client_are_those_of_its_priors() -> None:
    north = make_client("north", [[0.8, 0.2], [0.3, 0.7]], [100, 300])
    found = check(make_federation(north)).clients[0]
    assert (found.rows, found.sets, found.rank) == (400, 2, 2)
    assert found.information == class_information(north.priors, north.set_priors)


def test_a_check_can_be_written_as_json() -> None:
    shared = make_federation(
        make_client("north", [[0.9, 0.1], [0.1, 0.9]], 100), make_client("south", [[0.5, 0.5]], 100)
    )
    document = json.loads(json.dumps(check(shared).to_dict(), allow_nan=False))
    assert {"identifiable", "verdict", "summary", "advice", "clients", "totals", "forecast", "pairs"} <= set(document)
    assert document["clients"][1]["condition"] is None
    assert document["forecast"]["labels_worth_high"] > 0


@pytest.mark.parametrize(
    ("priors", "rows", "words"),
    [
        ([[0.9, 0.1], [0.1, 0.9]], 500, "Enough: the 1,000 rows are worth about"),
        ([[0.55, 0.45], [0.45, 0.55]], 5000, "Enough, but costly:"),
        ([[0.5, 0.5], [0.5, 0.5]], 500, "Not enough: with these class priors"),
        ([[0.9, 0.1], [0.1, 0.9]], 4, "fewer than 5 per class"),
    ],
)
def test_the_verdict_is_a_plain_sentence(priors: list[list[float]], rows: int, words: str) -> None:
    assert words in check(make_federation(make_client("north", priors, rows))).summary


def test_a_test_prior_weighs_the_pairs_by_how_common_they_are() -> None:
    clients = [make_client("north", [[0.8, 0.1, 0.1], [0.1, 0.45, 0.45], [0.1, 0.4, 0.5]], 100)]
    rare, common = (
        check(make_federation(*clients, classes=ILLNESSES, test_prior=np.array(prior))).forecast.share_high
        for prior in ([0.9, 0.05, 0.05], [0.1, 0.45, 0.45])
    )
    assert rare > common  # 'cold' and 'well' are hard to tell apart, and seldom meet where nearly all is 'flu'
