from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from fedul.core import Matrix
from fedul.evaluation.assumption import AssumptionTest
from fedul.evaluation.label_free import estimate_accuracy
from fedul.evaluation.out_of_fold import ClientPredictions, OutOfFoldPredictions
from fedul.evaluation.sentences import headline
from fedul.evaluation.set_effects import SetEffects


def world(
    seed: int, *, sets: int = 40, rows: int = 200, distance: float = 1.0, parallel: float = 0.0, effects: float = 0.0
) -> OutOfFoldPredictions:
    """Two classes with normal scores, whose sets are moved by `parallel` times their prior and by chance."""
    generator = np.random.default_rng(seed)
    share = generator.uniform(0.1, 0.9, sets)
    number = np.repeat(np.arange(sets), rows)
    label = generator.uniform(size=len(number)) < share[number]
    moved = parallel * (share - 0.5) + effects * generator.normal(size=sets)
    score = distance * (label - 0.5) + moved[number] + generator.normal(size=len(number))
    # A classifier that learned from the differences between sets takes all of them for differences between classes.
    chance = 1 / (1 + np.exp(-(distance + parallel) * score))
    priors = np.stack([1 - share, share], axis=1)
    client = ClientPredictions(
        "a",
        [f"set {m}" for m in range(sets)],
        priors,
        number,
        np.arange(len(number)),
        np.stack([1 - chance, chance], axis=1),
        score[:, None],
        exact=False,
    )
    return OutOfFoldPredictions([client], ["no", "yes"], np.array([0.5, 0.5]))


def effects_of(predictions: OutOfFoldPredictions) -> SetEffects:
    return estimate_accuracy(predictions).effects


def test_sets_that_differ_in_their_class_mix_only_have_no_effects() -> None:
    found = [effects_of(world(seed)) for seed in range(40)]
    assert np.mean([each.visible > 0 for each in found]) < 0.2
    assert np.mean([each.run_parallel for each in found]) < 0.1
    assert np.mean([each.spread for each in found]) == pytest.approx(1.0, abs=0.25)


def test_p_values_are_uniform_where_there_are_no_effects() -> None:
    p_values = np.array([effects_of(world(seed, rows=50)).p_value for seed in range(60)])
    assert 0.35 < p_values.mean() < 0.65


def test_random_effects_are_visible_at_their_size() -> None:
    """The class mix moves the mean score by 1.0 times the prior, whose standard deviation is about 0.23."""
    found = [effects_of(world(seed, effects=0.23)) for seed in range(5)]
    assert all(0.3 < each.visible < 1.6 for each in found)


def test_spread_is_the_square_of_the_share_of_the_difference_between_classes() -> None:
    """Classes are 1 apart and sets differ by 2 per unit of prior, so lambda is 1/4."""
    found = [effects_of(world(seed, rows=4000, parallel=1.0)) for seed in range(4)]
    assert np.mean([each.spread for each in found]) == pytest.approx(0.25, abs=0.1)
    assert all(each.run_parallel for each in found)


def test_no_accuracy_is_given_where_an_effect_runs_parallel_to_the_priors() -> None:
    estimate = estimate_accuracy(world(0, rows=2000, parallel=1.0))
    evaluation = estimate.to_evaluation(AssumptionTest(0.5))
    assert evaluation.estimated_accuracy is None
    assert "run parallel to their class priors" in headline(evaluation)[0]
    assert evaluation.remedies


def test_random_effects_lower_the_interval_or_leave_no_estimate() -> None:
    calm, moved = estimate_accuracy(world(1)), estimate_accuracy(world(1, effects=0.1))
    assert calm.refusal is None
    assert moved.accuracy.low < calm.accuracy.low - 0.02
    assert estimate_accuracy(world(1, effects=1.0)).refusal is not None


def test_more_sure_than_certain_is_impossible() -> None:
    """If predictions change by more than the priors do, no classifier explains it."""
    predictions = world(2, rows=500)
    share = predictions.clients[0].priors[:, 1]
    wanted = np.clip(0.5 + 1.25 * (share - 0.5), 0, 1)
    generator = np.random.default_rng(0)
    client = predictions.clients[0]
    guess = generator.uniform(size=len(client.sets)) < wanted[client.sets]
    sure: Matrix = np.where(guess, 0.9, 0.1)
    probabilities = np.stack([1 - sure, sure], axis=1)
    bent = replace(predictions, clients=[replace(client, probabilities=probabilities)])
    refusal = estimate_accuracy(bent).refusal
    assert refusal is not None
    assert "perfect classifier" in refusal.reason or "run parallel" in refusal.reason


@pytest.mark.parametrize("sets", [2, 3, 8])
def test_few_sets_are_not_tested_for_their_spread(sets: int) -> None:
    assert effects_of(world(3, sets=sets)).spread_p_value is None


def test_an_estimate_at_the_end_is_not_given_if_the_assumption_is_rejected() -> None:
    found = estimate_accuracy(world(4, distance=6.0))
    assert found.to_evaluation(AssumptionTest(0.5)).estimated_accuracy is not None
    refused = found.to_evaluation(AssumptionTest(0.001))
    assert refused.reason is not None
    assert "reaches 100 %" in refused.reason
