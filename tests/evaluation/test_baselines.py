from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler

from fedul.core import Federation, UnlabeledSets
from fedul.evaluation.baselines import evaluate_baselines, fit_soft_sets, top_class_accuracy
from fedul.evaluation.document import MAJORITY, SOFT_SETS, TOP_CLASS

PRIORS = np.array([[0.8, 0.2], [0.3, 0.7], [0.5, 0.5], [0.1, 0.9]])


def federation(seed: int = 0, rows: int = 60, test_prior: tuple[float, float] = (0.425, 0.575)) -> Federation:
    generator, clients = np.random.default_rng(seed), []
    for name in ("north", "south"):
        sets = np.repeat(np.arange(4), rows)
        labels = generator.uniform(size=len(sets)) < PRIORS[sets, 1]
        inputs = generator.normal(size=(len(sets), 3)) + 2 * labels[:, None]
        clients.append(UnlabeledSets.from_arrays(name, inputs.astype(np.float32), sets, PRIORS, held_out=0))
    return Federation(clients, ["no", "yes"], test_prior=np.array(test_prior))


def test_soft_set_regression_is_that_of_scikit_learn() -> None:
    data = federation()
    x = np.concatenate([client.inputs.numpy() for client in data.clients])
    share = np.concatenate([client.priors[client.train.sets.numpy()] for client in data.clients])
    scaler = StandardScaler().fit(x)
    expected = LogisticRegression(max_iter=2000, tol=1e-8).fit(
        np.tile(scaler.transform(x), (2, 1)), np.repeat([0, 1], len(x)), sample_weight=share.T.ravel()
    )
    found = fit_soft_sets(data).predict_proba(torch.from_numpy(x))
    # The penalty of two weights per feature is half of that of one: scikit-learn has one for two classes.
    assert np.abs(found - expected.predict_proba(scaler.transform(x))).max() < 0.02


def test_predictions_are_under_the_test_prior() -> None:
    x = torch.zeros(1, 3)
    natural = fit_soft_sets(federation()).predict_proba(x)[0]
    rare = fit_soft_sets(federation(test_prior=(0.9, 0.1))).predict_proba(x)[0]
    odds = natural[1] / natural[0] * (0.1 / 0.9) / (0.575 / 0.425)
    assert rare[1] / rare[0] == pytest.approx(odds, rel=1e-3)


def test_top_class_accuracy_is_the_mean_of_the_largest_shares_at_the_natural_mix() -> None:
    assert top_class_accuracy(federation()) == pytest.approx(PRIORS.max(axis=1).mean())


def test_naive_classifiers_are_evaluated_in_the_same_way() -> None:
    majority, top, regression = evaluate_baselines(federation(rows=200), folds=3, seed=0)
    assert (majority.name, top.name, regression.name) == (MAJORITY, TOP_CLASS, SOFT_SETS)
    assert majority.estimated_accuracy == pytest.approx(0.575)
    assert regression.interval is None or regression.interval[0] <= regression.estimated_accuracy
