"""Class-prior matrices: what is refused, how they are drawn and disturbed, and what they are worth."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from fedul.config import NOISE_FORMULAS, PRIOR_RECIPES
from fedul.core import SUM_TOLERANCE, Matrix, prior_ranks, validate_priors, validate_test_prior
from fedul.core import priors as prior_tools
from fedul.core.priors import class_information, diagnose_priors, joint_rank, perturb_priors, sample_priors
from fedul.errors import InputError

from ..worlds import random_priors, random_shares, repeatable, seeds

EPSILON = np.finfo(np.float64).eps
sizes = st.integers(1, 8)


@pytest.mark.parametrize(
    ("priors", "complaint"),
    [
        ([[0.5, 0.5], [float("nan"), 1]], "row 2 has a value that is missing or infinite"),
        ([[None, 1]], "row 1 has a value that is missing or infinite"),
        ([[float("inf"), 0]], "row 1 has a value that is missing or infinite"),
        ([[1, 0], [0, 1], [float("-inf"), 0]], "row 3 has a value that is missing or infinite"),
        ([[-0.1, 1.1]], r"row 1 has a negative value \(-0.1\)"),
        ([[20, 80]], r"row 1 has a value above 1 \(80\).*not percentages"),
        ([[1e308, 1e308]], "row 1 has a value above 1"),
        ([[0.5, 0.4]], "row 1 sums to 0.9, not to 1"),
        ([[0.5, 0.5], [0.6, 0.6]], "row 2 sums to 1.2, not to 1"),
        ([[0, 0]], "row 1 sums to 0, not to 1"),
        ([[0.5, 0.5], [1]], "not a table of numbers"),
        ([["half", "half"]], "not a table of numbers"),
        ("half", "not a table of numbers"),
        ({"a": 1}, "not a table of numbers"),
        ([], r"got shape \(0,\)"),
        ([[]], r"got shape \(1, 0\)"),
        ([0.5, 0.5], r"got shape \(2,\)"),
        ([[[0.5, 0.5]]], r"got shape \(1, 1, 2\)"),
    ],
)
def test_priors_that_are_no_proportions_are_refused_and_the_row_is_named(priors: Any, complaint: str) -> None:
    with pytest.raises(InputError, match=f"^sets of north: .*{complaint}"):
        validate_priors(priors, where="sets of north")


def test_a_wrong_number_of_columns_is_refused_with_the_names_of_the_classes() -> None:
    with pytest.raises(InputError, match=r"2 columns for 3 classes.* cat, dog, owl"):
        validate_priors([[0.5, 0.5]], classes=["cat", "dog", "owl"])


@repeatable
@given(seeds, sizes, sizes, st.floats(-0.99, 0.99))
def test_rounded_rows_are_accepted_and_made_to_sum_to_one(seed: int, sets: int, classes: int, off: float) -> None:
    exact = random_priors(np.random.default_rng(seed), sets, classes, zeros=0.3)
    rounded = exact * (1 + off * SUM_TOLERANCE)
    priors = validate_priors(rounded)
    assert np.abs(priors.sum(axis=1) - 1).max() <= classes * EPSILON
    assert_allclose(priors, exact, rtol=1e-13)


@repeatable
@given(seeds, sizes, sizes)
def test_validating_twice_gives_the_same_bits_as_once(seed: int, sets: int, classes: int) -> None:
    once = validate_priors(random_priors(np.random.default_rng(seed), sets, classes) * 1.0005)
    assert_array_equal(validate_priors(once), once)


def test_sums_within_the_tolerance_are_accepted_and_beyond_it_refused() -> None:
    validate_priors([[0.5, 0.4991]])
    with pytest.raises(InputError, match=r"sums to 0.9989"):
        validate_priors([[0.5, 0.4989]])


def test_validating_leaves_what_it_was_given_alone() -> None:
    given_priors = np.array([[0.5, 0.5004]])
    validate_priors(given_priors)[0, 0] = 0
    assert_array_equal(given_priors, [[0.5, 0.5004]])


@pytest.mark.parametrize(
    ("prior", "complaint"),
    [
        ([0.5, 0.3, 0.1], "sums to 0.9"),
        ([0.5, 0.5], "2 columns for 3 classes"),
        ([0.5, 0.5, 0], "class 'owl' has share 0"),
        (
            [[0.2, 0.3, 0.5], [0.2, 0.3, 0.5]],
            r"got shape \(2, 3\); give one proportion for each of cat, dog, owl",
        ),
        ("uniform", "not a table of numbers; give one proportion for each of cat, dog, owl"),
        ([0.5, float("nan"), 0.5], "missing or infinite"),
        ([0.5, -0.1, 0.6], "negative"),
        ([], r"got shape \(0,\)"),
        (1.0, r"got shape \(\)"),
    ],
)
def test_test_priors_that_are_not_positive_shares_are_refused(prior: Any, complaint: str) -> None:
    with pytest.raises(InputError, match=f"^test prior: .*{complaint}"):
        validate_test_prior(prior, ["cat", "dog", "owl"])


def test_a_test_prior_comes_back_as_a_vector_that_sums_to_one() -> None:
    assert_allclose(validate_test_prior([0.2, 0.3, 0.5004], ["a", "b", "c"]), np.array([2, 3, 5.004]) / 10.004)


@repeatable
@given(seeds, sizes, sizes, st.sampled_from(PRIOR_RECIPES))
def test_sampled_priors_are_valid_and_repeat_with_their_seed(seed: int, sets: int, classes: int, recipe: str) -> None:
    priors = sample_priors(recipe, sets, classes, np.random.default_rng(seed))
    assert priors.shape == (sets, classes)
    assert_array_equal(validate_priors(priors), priors)
    assert_array_equal(sample_priors(recipe, sets, classes, np.random.default_rng(seed)), priors)


@repeatable
@given(seeds, sizes, sizes)
def test_text_priors_span_at_most_a_ninefold_range_within_a_set(seed: int, sets: int, classes: int) -> None:
    priors = sample_priors("text", sets, classes, np.random.default_rng(seed))
    assert (priors.max(axis=1) / priors.min(axis=1)).max() < 9 + 1e-12


@repeatable
@given(seeds, sizes, st.integers(2, 8))
def test_boosted_priors_favour_class_m_mod_k_and_span_at_most_a_tenfold_range_beside_it(
    seed: int, sets: int, classes: int
) -> None:
    priors = sample_priors("boosted", sets, classes, np.random.default_rng(seed))
    favoured = np.arange(sets) % classes
    assert_array_equal(priors.argmax(axis=1), favoured)
    others = np.delete(priors, np.arange(sets) * classes + favoured).reshape(sets, classes - 1)
    assert (others.max(axis=1) / others.min(axis=1)).max() < 10 + 1e-12


@pytest.mark.parametrize(("recipe", "low", "high"), [("boosted", 5, 7.5), ("text", 80, 170)])
def test_boosted_priors_are_an_order_of_magnitude_better_conditioned_than_the_texts(
    recipe: str, low: float, high: float
) -> None:
    generator = np.random.default_rng(0)
    conditions = [diagnose_priors(sample_priors(recipe, 10, 10, generator)).condition for _ in range(200)]
    assert low < np.median(conditions) < high


def test_an_unknown_recipe_is_refused_with_the_nearest_known_one() -> None:
    with pytest.raises(InputError, match="unknown prior recipe 'boost': did you mean 'boosted'"):
        sample_priors("boost", 2, 2, np.random.default_rng(0))


@pytest.mark.parametrize(("formula", "clean"), [("intended", 0.0), ("printed", 0.5)])
@repeatable
@given(seed=seeds, sets=sizes, classes=sizes)
def test_noise_at_its_clean_level_changes_no_bit(
    formula: str, clean: float, seed: int, sets: int, classes: int
) -> None:
    generator = np.random.default_rng(seed)
    priors = validate_priors(random_priors(generator, sets, classes, zeros=0.3))
    assert_array_equal(perturb_priors(priors, clean, generator, formula=formula), priors)


@repeatable
@given(
    seeds,
    sizes,
    sizes,
    st.sampled_from(NOISE_FORMULAS),
    st.sampled_from([0.0, 0.2, 0.5, 0.8, 1.0, 1.6, 50.0, 1e9]),
)
def test_disturbed_priors_are_still_valid_priors(
    seed: int, sets: int, classes: int, formula: str, epsilon: float
) -> None:
    generator = np.random.default_rng(seed)
    priors = validate_priors(random_priors(generator, sets, classes, zeros=0.3))
    before = priors.copy()
    noisy = perturb_priors(priors, epsilon, generator, formula=formula)
    assert noisy.shape == priors.shape
    assert noisy.min() >= 0
    assert noisy.max() <= 1
    assert np.abs(noisy.sum(axis=1) - 1).max() <= classes * EPSILON
    assert_array_equal(priors, before)


@repeatable
@given(seeds, sizes, sizes, st.floats(0.01, 0.9))
def test_intended_noise_moves_the_ratio_of_two_classes_by_at_most_its_own_range(
    seed: int, sets: int, classes: int, epsilon: float
) -> None:
    generator = np.random.default_rng(seed)
    priors = validate_priors(random_priors(generator, sets, classes, zeros=0.3))
    noisy = perturb_priors(priors, epsilon, generator)
    present = priors > 0
    assert_array_equal(noisy > 0, present)
    factors = np.divide(noisy, priors, out=np.ones_like(priors), where=present)
    spread = factors.max(axis=1, where=present, initial=0) / factors.min(axis=1, where=present, initial=np.inf)
    assert spread.max() <= (1 + epsilon) / (1 - epsilon) * (1 + 1e-12)


@pytest.mark.parametrize(
    ("formula", "factor"),
    [
        ("intended", lambda epsilon, gamma: 1 + epsilon * (2 * gamma - 1)),
        ("printed", lambda epsilon, gamma: (2 * epsilon - 1) * gamma + 1),
    ],
)
def test_noise_follows_its_formula(formula: str, factor: Callable[[float, Matrix], Matrix]) -> None:
    priors = sample_priors("text", 5, 4, np.random.default_rng(0))
    gamma = np.random.default_rng(1).uniform(size=priors.shape)
    expected = priors * factor(0.2, gamma)
    noisy = perturb_priors(priors, 0.2, np.random.default_rng(1), formula=formula)
    assert_allclose(noisy, expected / expected.sum(axis=1, keepdims=True), rtol=1e-14)


def test_noise_grows_with_epsilon_as_intended_and_not_as_printed() -> None:
    priors = sample_priors("text", 200, 10, np.random.default_rng(0))

    def distance(epsilon: float, formula: str) -> float:
        return float(np.abs(perturb_priors(priors, epsilon, np.random.default_rng(1), formula=formula) - priors).mean())

    intended = [distance(epsilon, "intended") for epsilon in (0, 0.2, 0.4, 0.8)]
    printed = [distance(epsilon, "printed") for epsilon in (0, 0.2, 0.4, 0.5)]
    assert intended == sorted(intended)
    assert printed == sorted(printed, reverse=True)


def test_a_set_whose_every_prior_is_wiped_out_by_noise_says_nothing() -> None:
    noisy = perturb_priors(np.tile([1.0, 0, 0], (40, 1)), 1e6, np.random.default_rng(0))
    wiped = noisy[:, 0] < 1
    assert 0 < wiped.sum() < 40
    assert_allclose(noisy[wiped], 1 / 3)


@pytest.mark.parametrize("epsilon", [-0.1, float("nan"), float("inf")])
def test_noise_that_is_no_size_is_refused(epsilon: float) -> None:
    with pytest.raises(InputError, match=r"epsilon is .*; give a number from 0 upwards"):
        perturb_priors(np.eye(2), epsilon, np.random.default_rng(0))


def test_an_unknown_noise_formula_is_refused_with_the_nearest_known_one() -> None:
    with pytest.raises(InputError, match="unknown noise formula 'print': did you mean 'printed'"):
        perturb_priors(np.eye(2), 0.1, np.random.default_rng(0), formula="print")


def mixed_with_uniform(purity: float, classes: int) -> Matrix:
    return purity * np.eye(classes) + (1 - purity) / classes


@pytest.mark.parametrize(
    ("priors", "rank", "smallest", "condition"),
    [
        (np.eye(4), 4, 1, 1),
        (np.vstack([np.eye(3)] * 4), 3, 2, 1),
        (np.array([[0.9, 0.1], [0.1, 0.9]]), 2, 0.8, 1.25),
        (mixed_with_uniform(0.1, 10), 10, 0.1, 10),
        (np.full((5, 3), 1 / 3), 1, 0, np.inf),
        (np.array([[0.2, 0.3, 0.5]]), 1, 0, np.inf),
        (np.eye(3)[:2], 2, 0, np.inf),
        (np.array([[0.5, 0.5, 0], [0.1, 0.9, 0], [0.3, 0.7, 0]]), 2, 0, np.inf),
        (np.array([[0.5, 0.5], [0.5 + 1e-9, 0.5 - 1e-9]]), 1, 1e-9, np.inf),
    ],
)
def test_known_matrices_get_their_known_diagnosis(priors: Matrix, rank: int, smallest: float, condition: float) -> None:
    diagnosis = diagnose_priors(priors)
    assert (diagnosis.sets, diagnosis.classes) == priors.shape
    assert diagnosis.rank == rank
    assert diagnosis.sufficient == (rank == priors.shape[1])
    assert diagnosis.smallest_singular_value == pytest.approx(smallest, rel=1e-6, abs=1e-15)
    assert diagnosis.condition == pytest.approx(condition)


@pytest.mark.parametrize("copies", [1, 100])
@pytest.mark.parametrize("purity", [0.5, 1e-3, 3e-6, 3e-7, 1e-9])
def test_a_client_alone_is_identifiable_exactly_when_its_diagnosis_is_sufficient(purity: float, copies: int) -> None:
    priors = np.tile(mixed_with_uniform(purity, 4), (copies, 1))
    assert (joint_rank([priors]) == priors.shape[1] - 1) == diagnose_priors(priors).sufficient == (purity > 1e-6)


def test_a_sufficient_client_stays_sufficient_in_large_and_useless_company() -> None:
    barely = mixed_with_uniform(3e-6, 3)
    useless = np.tile([0.2, 0.3, 0.5], (400, 1))
    assert joint_rank([useless] * 50) == 0
    assert joint_rank([*[useless] * 50, barely]) == barely.shape[1] - 1


@repeatable
@given(seeds, st.integers(2, 7), st.lists(st.integers(1, 8), min_size=1, max_size=6))
def test_generic_clients_determine_one_direction_fewer_than_their_sets_each(
    seed: int, classes: int, sets: list[int]
) -> None:
    generator = np.random.default_rng(seed)
    federation = [random_priors(generator, m, classes) for m in sets]
    assert joint_rank(federation) == min(classes - 1, sum(min(m, classes) - 1 for m in sets))


@repeatable
@given(seeds, st.integers(2, 6), st.lists(st.integers(1, 4), min_size=2, max_size=4), st.randoms())
def test_the_order_and_the_repetition_of_clients_and_sets_leave_the_joint_rank_as_it_is(
    seed: int, classes: int, sets: list[int], random: Any
) -> None:
    generator = np.random.default_rng(seed)
    federation = [random_priors(generator, m, classes, zeros=0.3) for m in sets]
    shuffled = [generator.permutation(priors) for priors in federation] + federation
    random.shuffle(shuffled)
    assert joint_rank(shuffled) == joint_rank(federation)


@repeatable
@given(st.lists(st.integers(1, 9), min_size=1, max_size=30), st.integers(2, 6), st.integers(1, 200), seeds)
def test_ranks_do_not_depend_on_how_many_clients_are_computed_in_one_batch(
    sets: list[int], classes: int, entries: int, seed: int
) -> None:
    generator = np.random.default_rng(seed)
    federation = [random_priors(generator, m, classes) for m in sets]
    federation += [np.repeat(priors[:1], 4, axis=0) for priors in federation[:2]]
    at_once = joint_rank(federation)
    with pytest.MonkeyPatch.context() as changed:
        changed.setattr(prior_tools, "STACKED_ENTRIES", entries)
        assert joint_rank(federation) == at_once
        assert prior_ranks(federation).tolist() == [diagnose_priors(priors).rank for priors in federation]


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -0.1, 1.1, 0.1])
def test_the_first_wrong_row_is_named_however_many_there_are(bad: float) -> None:
    priors = np.full((5_000, 4), 0.25)
    priors[[3_999, 4_500], 2] = bad
    with pytest.raises(InputError, match="row 4000 "):
        validate_priors(priors)


def test_identity_priors_carry_all_information_and_equal_rows_none() -> None:
    set_priors = np.array([0.2, 0.3, 0.5])
    assert class_information(np.eye(3), set_priors) == pytest.approx(1, abs=1e-12)
    assert class_information(np.tile([0.1, 0.2, 0.7], (3, 1)), set_priors) == pytest.approx(0, abs=1e-12)


def test_a_symmetric_channel_carries_one_minus_its_relative_entropy() -> None:
    noise = -(0.9 * np.log2(0.9) + 0.1 * np.log2(0.1))
    share = class_information(np.array([[0.9, 0.1], [0.1, 0.9]]), np.array([0.5, 0.5]))
    assert share == pytest.approx(1 - noise, abs=1e-12)


@repeatable
@given(seeds, sizes)
def test_sets_of_a_single_class_carry_no_information_about_it(seed: int, sets: int) -> None:
    only_one_class = np.tile([1.0, 0.0], (sets, 1))
    assert class_information(only_one_class, random_shares(np.random.default_rng(seed), sets)) == 0


@repeatable
@given(seeds, st.integers(2, 8), st.integers(2, 8))
def test_information_is_a_share_that_renaming_keeps_and_merging_sets_cannot_raise(
    seed: int, sets: int, classes: int
) -> None:
    generator = np.random.default_rng(seed)
    priors = random_priors(generator, sets, classes, zeros=0.3)
    set_priors = random_shares(generator, sets)
    share = class_information(priors, set_priors)
    assert 0 <= share <= 1

    renamed, reordered = generator.permutation(sets), generator.permutation(classes)
    assert class_information(priors[renamed][:, reordered], set_priors[renamed]) == pytest.approx(share, abs=1e-12)

    together = set_priors[:2] / set_priors[:2].sum() @ priors[:2]
    merged = np.vstack([together, priors[2:]])
    assert class_information(merged, np.r_[set_priors[:2].sum(), set_priors[2:]]) <= share + 1e-12
