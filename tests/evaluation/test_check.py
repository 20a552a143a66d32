"""`fedul check` before training: verdict, forecast, problems, and advice for each of them."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from numpy.testing import assert_allclose

from fedul.core import PriorScope, UnlabeledSets
from fedul.core.priors import class_information
from fedul.data.load import load
from fedul.evaluation.check import check
from fedul.evaluation.check_result import CheckResult

from ..factories import make_client, make_federation, make_rows
from ..worlds import random_priors, repeatable, seeds

ILLNESSES = ("flu", "cold", "well")


def test_labelled_rows_are_worth_themselves() -> None:
    found = check(make_federation(make_client("north", np.eye(3), [40, 50, 60])))
    assert found.verdict == "enough"
    assert (found.forecast.labels_worth_low, found.forecast.labels_worth_high) == (150, 150)
    assert found.clients[0].efficiency == pytest.approx(1)
    assert found.advice[0] == "No problem was found: train, and compare the metrics of the run with this forecast."


def test_sets_with_equal_mixes_are_not_enough_and_worth_nothing() -> None:
    found = check(make_federation(make_client("north", [[0.3, 0.7], [0.3, 0.7]], 5000)))
    assert (found.identifiable, found.verdict, found.forecast.labels_worth_high) == (False, "not enough", 0)
    assert "do not determine a classifier" in found.advice[0]


def test_clients_with_one_set_each_are_advised_to_split() -> None:
    apart = make_federation(make_client("north", [[0.9, 0.1]], 100), make_client("south", [[0.1, 0.9]], 100))
    found = check(apart, method="fedul")
    assert not found.identifiable
    assert found.totals.rank == 0
    assert "Every client has one set" in found.advice[1]
    assert "into 2 sets" in found.advice[1]


def test_sets_of_all_clients_are_compared_where_the_method_does_so() -> None:
    apart = make_federation(make_client("north", [[0.9, 0.1]], 100), make_client("south", [[0.1, 0.9]], 100))
    alone, default = check(apart, method="fedul"), check(apart)
    assert (alone.compared, default.compared) == ("sets of a client", "all sets")
    assert (alone.verdict, default.verdict) == ("not enough", "enough")
    one = check(make_federation(make_client("both", [[0.9, 0.1], [0.1, 0.9]], 100)))
    assert default.forecast == one.forecast
    for found in (alone, default):
        assert found.pooled is not None
        assert found.within_clients is not None
        assert (found.pooled.forecast, found.pooled.rank) == (one.forecast, 1)
        assert (found.within_clients.verdict, found.within_clients.identifiable) == ("not enough", False)
    assert any("given as one client, they are worth about 50 to 128" in sentence for sentence in alone.advice)
    assert any("(--method fedul, or sites on Flower without class-mix)" in sentence for sentence in default.advice)


def test_images_are_compared_within_clients_by_default() -> None:
    found = check(load("digits", clients=2, rows=400, sets=3))
    assert found.compared == "sets of a client"
    assert not any("linear model" in sentence for sentence in found.advice)


def test_with_few_sets_a_linear_model_is_announced() -> None:
    few, many = (check(make_federation(make_client("north", np.eye(3)[np.arange(n) % 3], 50))) for n in (9, 12))
    assert any("linear model is trained: 9 sets can be left out" in sentence for sentence in few.advice)
    assert not any("linear model" in sentence for sentence in many.advice)


def test_a_class_with_few_rows_makes_the_verdict_weak_and_with_hardly_any_not_enough() -> None:
    for rows, verdict in ((600, "weak"), (150, "not enough"), (12_000, "enough")):
        priors = [[0.89, 0.1, 0.01], [0.1, 0.88, 0.02]]
        priors.append([0.45, 0.55, 0.0])
        found = check(make_federation(make_client("north", priors, rows // 3), classes=ILLNESSES))
        assert found.verdict == verdict, found.summary
        assert ("of class 'well'" in found.summary) == (verdict != "enough")


def test_equal_shares_do_not_vary_and_small_differences_have_two_digits() -> None:
    for priors, words in (
        ([[0.3, 0.3, 0.4], [0.1, 0.1, 0.8]], "among the two does not vary;"),
        ([[0.502, 0.498], [0.498, 0.502]], "among the two varies by 0.002 ("),
    ):
        found = check(make_federation(make_client("north", priors, 100)))
        assert any(words in sentence for sentence in found.advice), found.advice


def test_coarse_priors_are_pointed_out() -> None:
    scope = PriorScope("population", rounding=0.005)
    for priors, coarse in (([[0.51, 0.49], [0.50, 0.50]], True), ([[0.9, 0.1], [0.1, 0.9]], False)):
        client = replace(make_client("north", priors, 100), prior_scope=scope)
        found = check(make_federation(client))
        assert any("rounded to 1 %, and shares differ by" in each for each in found.advice) == coarse


def test_what_was_read_is_part_of_the_result() -> None:
    north = make_client("north", [[0.9, 0.1], [0.1, 0.9]], [100, 300])
    found = check(make_federation(north, classes=("flu", "cold"), test_prior=np.array([0.2, 0.8])))
    flu = found.classes[0]
    assert (flu.name, flu.share, flu.rows, flu.test_share) == ("flu", *map(pytest.approx, (0.3, 120, 0.2)))
    assert found.priors is not None
    assert (found.priors.unit, found.priors.of, found.priors.rounding) == ("", ("population",), 0.0)


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
    assert any("If set 'May' of client 'north' (900 rows) were split in two" in each for each in found.advice)


def test_where_no_single_set_matters_all_are_to_be_split() -> None:
    generator = np.random.default_rng(0)
    clients = [make_client(f"client-{c}", random_priors(generator, 4, 3, purity=0.2), 100) for c in range(30)]
    found = check(make_federation(*clients))
    assert found.split is not None
    assert found.split.client is None
    assert any(sentence.startswith("If all 120 sets were split in two by") for sentence in found.advice)


def test_where_no_set_has_both_classes_there_is_nothing_to_split() -> None:
    apart = make_federation(make_client("north", [[1.0, 0.0]], 100), make_client("south", [[0.0, 1.0]], 100))
    assert check(apart).split is None


def test_contrasts_that_are_small_cost_much() -> None:
    found = check(make_federation(make_client("north", [[0.55, 0.45], [0.45, 0.55]], 5000)))
    assert found.verdict == "weak"
    assert found.forecast.share_high == pytest.approx(0.01, rel=1e-3)  # (0.55 - 0.45)^2, as for noisy labels
    assert found.pairs[0].contrast == pytest.approx(0.05)


def test_few_rows_are_not_enough_however_good_the_priors_are() -> None:
    found = check(make_federation(make_client("north", [[0.9, 0.1], [0.1, 0.9]], 5)))
    assert found.identifiable
    assert found.verdict == "not enough"
    assert any("may be worth as few as" in sentence for sentence in found.advice)


def test_a_client_with_one_set_is_named_if_others_have_more() -> None:
    shared = make_federation(make_client("north", np.eye(2), 100), make_client("south", [[0.5, 0.5]], 70))
    found = check(shared, method="fedul")
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


def test_a_document_of_an_earlier_version_is_read() -> None:
    document = check(make_federation(make_client("north", [[0.9, 0.1], [0.1, 0.9]], 100))).to_dict()
    for name in ("compared", "pooled", "within_clients", "classes", "priors", "columns"):
        del document[name]
    old = CheckResult.from_dict({**document, "verdict": "costly", "summary": "Enough, but costly: ..."})
    assert (old.verdict, old.pooled, old.classes) == ("costly", None, ())
    assert str(old).startswith("Enough, but costly")


@pytest.mark.parametrize(
    ("priors", "rows", "words"),
    [
        ([[0.9, 0.1], [0.1, 0.9]], 500, "Enough: the 1,000 rows are worth about"),
        ([[0.55, 0.45], [0.45, 0.55]], 5000, "Weak: the 10,000 rows are worth about 19 to 100 labelled ones"),
        ([[0.5, 0.5], [0.5, 0.5]], 500, "Not enough: with these class priors"),
        ([[0.55, 0.45], [0.45, 0.55]], 50, "labelled ones (0.19 to 1 %), fewer than 10 (5 per class)"),
        ([[0.9, 0.1], [0.1, 0.9]], 4, "only about 4 rows can be of class 'class 0'"),
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
