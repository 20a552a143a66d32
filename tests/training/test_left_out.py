"""Sets left out of training judge a classifier without labels, by a proper loss."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from numpy.testing import assert_allclose

import fedul
from fedul.core import UnlabeledSets
from fedul.training.left_out import FOLDS, TEMPERATURES, _log_ratios, assign_folds, score_left_out, without_sets

from ..factories import gaussian_study
from ..worlds import repeatable, seeds


def test_every_set_is_left_out_once_and_clients_with_few_sets_leave_none_out() -> None:
    small = UnlabeledSets.from_arrays("small", torch.rand(8, 2), [0, 1] * 4, [[0.5, 0.5, 0], [0.1, 0.2, 0.7]])
    large = gaussian_study(["large"], rows=5, sets=7).federation.clients[0]
    folds = assign_folds([small, large], seed=0)
    assert (folds[0] == -1).all()
    assert set(folds[1].tolist()) == set(range(FOLDS))
    assert (folds[1] >= 0).all()


def test_labelled_sets_are_never_left_out() -> None:
    client = gaussian_study(["a"], rows=5, sets=6).federation.clients[0]
    priors = client.priors.copy()
    priors[2] = [0, 1, 0]
    (fold,) = assign_folds([replace(client, priors=priors, labelled_sets=[2])], seed=0)
    assert fold[2] == -1
    assert (np.delete(fold, 2) >= 0).all()


@repeatable
@given(seeds)
def test_the_expected_loss_over_all_sets_is_lowest_at_the_true_posterior(seed: int) -> None:
    generator = np.random.default_rng(seed)
    densities = generator.dirichlet(np.ones(6), 3)  # p(x | k) of six inputs
    priors, share = generator.dirichlet(np.ones(3), 4), generator.dirichlet(np.ones(4))
    mix = share @ priors
    posterior = (mix[:, None] * densities / (mix @ densities)).T
    at = int(np.abs(TEMPERATURES - 1).argmin())

    def loss(predicted: np.ndarray) -> float:
        ratios = [[_log_ratios(row[None] / mix, mix, prior)[at] for row in predicted] for prior in priors]
        return -float((share[:, None] * (priors @ densities) * ratios).sum())

    assert TEMPERATURES[at] == pytest.approx(1)
    assert loss(posterior) <= loss(generator.dirichlet(np.ones(3), 6)) + 1e-12
    assert loss(posterior) <= loss(0.9 * posterior + 0.1 * mix) + 1e-12
    assert_allclose(loss(np.tile(mix, (6, 1))), 0, atol=1e-12)  # a classifier that says nothing


def test_the_loss_of_a_set_is_that_of_its_rows_at_the_best_temperature() -> None:
    federation = gaussian_study(["north", "south"], rows=[5, 9, 4, 7, 6, 8], sets=6).federation
    folds = assign_folds(federation.clients, seed=0)
    left_out = [fold == 0 for fold in folds]
    classifier = fedul.train(without_sets(federation, left_out), method="fedul", model="linear", rounds=3).classifier
    rows, losses = score_left_out(federation, left_out, classifier)
    mix = federation.spec.class_mix
    expected = []
    for client, out in zip(federation.clients, left_out, strict=True):
        for number in np.flatnonzero(out):
            inputs = client.inputs[client.all_rows.index[client.all_rows.sets == int(number)]]
            logits = np.log(classifier.with_prior(np.ones(3) / 3).predict_proba(inputs).astype(np.float64))
            by_temperature = []
            for temperature in TEMPERATURES:
                joint = mix * np.exp(logits / temperature)
                posterior = joint / joint.sum(axis=1, keepdims=True)
                by_temperature.append(-np.log(posterior @ (client.priors[number] / mix)).mean())
            expected.append((len(inputs), by_temperature))
    counts = np.array([count for count, _ in expected], dtype=float)
    table = np.array([values for _, values in expected])
    assert_allclose(rows, counts)
    assert_allclose(losses, table[:, (counts @ table).argmin()], rtol=1e-4, atol=1e-6)


def test_the_scale_of_logits_does_not_matter() -> None:
    generator = np.random.default_rng(0)
    likelihoods, mix, priors = generator.dirichlet(np.ones(3), 7), np.array([0.2, 0.5, 0.3]), np.array([0.6, 0.3, 0.1])
    plain, squared = _log_ratios(likelihoods, mix, priors), _log_ratios(likelihoods**2, mix, priors)
    assert_allclose(squared[2:], plain[:-2], rtol=1e-9)  # two steps of the grid are a factor of 2
