"""The class mix of a population is found without a label, and the classifier at that mix errs less."""

from __future__ import annotations

import numpy as np
import pytest

import fedul
from fedul.core import Matrix
from fedul.errors import InputError
from fedul.evaluation.class_mix import estimate_class_mix

UNIFORM = np.full(3, 1 / 3)


def posteriors(mix: Matrix, rows: int, generator: np.random.Generator) -> Matrix:
    """Of rows of three normal classes, 1.5 standard deviations apart, as if classes were equally common."""
    inputs = 1.5 * generator.choice(3, rows, p=mix) + generator.normal(size=rows)
    likelihood = np.exp(-((inputs[:, None] - 1.5 * np.arange(3)) ** 2) / 2)
    return likelihood / likelihood.sum(axis=1, keepdims=True)


def test_intervals_cover_as_often_as_they_say_where_probabilities_are_right() -> None:
    generator, mix = np.random.default_rng(0), np.array([0.6, 0.3, 0.1])
    found = [estimate_class_mix(posteriors(mix, 300, generator), UNIFORM) for _ in range(100)]
    assert np.mean([one.shares for one in found], axis=0) == pytest.approx(mix, abs=0.02)
    assert 0.9 < np.mean([(one.low <= mix) & (mix <= one.high) for one in found]) < 0.99


def test_the_prior_that_probabilities_were_made_for_does_not_matter() -> None:
    rows = posteriors(np.array([0.2, 0.3, 0.5]), 500, np.random.default_rng(1))
    prior = np.array([0.7, 0.2, 0.1])
    moved = rows * prior / (rows * prior).sum(axis=1, keepdims=True)
    assert estimate_class_mix(moved, prior).shares == pytest.approx(estimate_class_mix(rows, UNIFORM).shares, abs=1e-6)


def test_no_rows_are_refused() -> None:
    with pytest.raises(InputError, match="no rows"):
        estimate_class_mix(np.zeros((0, 3)), UNIFORM)


def test_on_shifted_digits_the_estimated_mix_is_nearly_as_good_as_the_known_one() -> None:
    study = fedul.load("digits", clients=5, sets=10, sets_overlap=False, seed=3)
    classifier = fedul.train(study, rounds=12, evaluate_every=0, seed=3).classifier
    inputs, labels = study.truth.test_inputs, study.truth.test_labels
    counts = (170 * 0.6 ** np.arange(9, -1, -1)).astype(int)  # from one nought to 170 nines
    rows = np.concatenate([np.flatnonzero(labels == k)[:count] for k, count in enumerate(counts)])
    mix = counts / counts.sum()
    estimate = estimate_class_mix(classifier.predict_proba(inputs[rows]), classifier.prior).shares

    def error(prior: Matrix) -> float:
        predicted = classifier.with_prior(prior).predict_proba(inputs[rows]).argmax(axis=1)
        return float(np.mean(predicted != labels[rows]))

    trained, known, estimated = error(classifier.prior), error(mix), error(estimate)
    assert np.abs(estimate - mix).max() < 0.05
    assert known < trained
    assert abs(estimated - known) < abs(estimated - trained)
