"""Supervised learning sees as many labels as it says, and learns the posterior under the test prior."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal
from torch import nn

import fedul
from fedul._utils.randomness import torch_generator
from fedul.core import Federation, Labels, Study, UnlabeledSets
from fedul.errors import InputError
from fedul.methods import make_method
from fedul.methods.supervised import Supervised

from ..factories import make_rows, truth_of_training_rows


def client_of(name: str, inputs: torch.Tensor, index: Any) -> UnlabeledSets:
    index = np.asarray(index)
    return UnlabeledSets(name, inputs, make_rows(index, np.arange(len(index)) % 2), make_rows([], []), np.eye(2))


INPUTS = torch.arange(100.0)[:, None]
NORTH = client_of("north", INPUTS, np.r_[np.arange(50), np.arange(30)])
SOUTH = client_of("south", INPUTS, np.arange(50, 70))
LABELS = {"north": NORTH.train.index.numpy() % 2, "south": SOUTH.train.index.numpy() % 2}
FEDERATION = Federation([NORTH, SOUTH], "ab", np.array([0.3, 0.7]))


def supervised(**options: Any) -> Any:
    return make_method("supervised", options, truth_of_training_rows(LABELS), seed=3)


@pytest.mark.parametrize(("share", "north", "south"), [(1.0, 50, 20), (0.5, 25, 10), (0.1, 5, 2), (1e-6, 1, 1)])
def test_a_share_of_the_labels_is_a_share_of_the_distinct_rows(share: float, north: int, south: int) -> None:
    method = supervised(labels=share)
    found = [len(np.unique(c.train.index[method.labelled_rows(c)])) for c in (NORTH, SOUTH)]
    assert found == [north, south]
    assert method.labels_used(FEDERATION) == north + south


def test_a_row_whose_label_is_known_is_known_in_all_its_sets() -> None:
    known = supervised(labels=0.5).labelled_rows(NORTH)
    index = NORTH.train.index.numpy()
    assert_array_equal(np.flatnonzero(np.isin(index, index[known])), known)


def test_rows_with_the_same_number_at_clients_with_other_inputs_are_different_rows() -> None:
    south = client_of("south", INPUTS.clone(), np.arange(20))
    method = make_method("supervised", {}, truth_of_training_rows({**LABELS, "south": np.zeros(20, np.int64)}))
    assert method.labels_used(Federation([NORTH, south], "ab")) == 70


def test_which_labels_are_known_follows_from_the_seed_and_the_clients_name() -> None:
    def known(seed: int, client: UnlabeledSets = NORTH) -> tuple[int, ...]:
        return tuple(Supervised(labels=0.2, truth=truth_of_training_rows(LABELS), seed=seed).labelled_rows(client))

    renamed = client_of("east", INPUTS, NORTH.train.index)
    assert known(0) == known(0)
    assert len({known(0), known(1), known(0, renamed)}) == 3


def test_every_row_of_the_task_carries_its_own_label() -> None:
    for step in supervised(labels=0.5).task(NORTH, FEDERATION.spec).plan(torch_generator(0), 7):
        assert_array_equal(step.targets["label"], step.inputs[:, 0].long() % 2)


def test_the_loss_is_cross_entropy_shifted_by_the_log_of_class_mix_over_test_prior() -> None:
    labels = {**LABELS, "north": (np.arange(80) >= 20).astype(np.int64)}
    method = make_method("supervised", {}, truth_of_training_rows(labels))
    (step,) = method.task(NORTH, FEDERATION.spec).plan(torch_generator(0))
    logits = torch.stack([step.inputs[:, 0] / 50, -step.inputs[:, 0] / 90], 1)
    scores = logits.double() + torch.tensor([0.25 / 0.3, 0.75 / 0.7], dtype=torch.float64).log()
    expected = nn.functional.cross_entropy(scores, step.targets["label"])
    assert_allclose(method.loss(lambda x: logits, step).item(), expected.item(), rtol=1e-6)


def test_a_class_without_a_labelled_row_is_never_predicted_there_and_leaves_loss_and_gradient_finite() -> None:
    method = make_method("supervised", {}, truth_of_training_rows({**LABELS, "north": np.zeros(80, np.int64)}))
    module = nn.Linear(1, 2)
    (step,) = method.task(NORTH, FEDERATION.spec).plan(torch_generator(0))
    loss = method.loss(module, step)
    loss.backward()
    assert loss.item() == 0
    assert all(p.grad is not None and bool(p.grad.isfinite().all()) for p in module.parameters())


def two_gaussians(seed: int, counts: tuple[int, int]) -> tuple[torch.Tensor, Labels]:
    """Rows N(-1, 1) and N(1, 1): under equal priors the log odds of class 1 at x are 2 x."""
    labels = np.repeat([0, 1], counts)
    noise = np.random.default_rng(seed).normal(size=len(labels))
    return torch.from_numpy((2 * labels - 1 + noise)[:, None]), labels


@pytest.mark.parametrize("mixes", [[(9000, 1000)], [(9000, 1000), (500, 4500)]], ids=["one client", "two clients"])
def test_skewed_clients_learn_the_posterior_under_the_test_prior(mixes: list[tuple[int, int]]) -> None:
    clients, labels = [], {}
    for c, counts in enumerate(mixes):
        inputs, labels[f"client-{c}"] = two_gaussians(c, counts)
        clients.append(client_of(f"client-{c}", inputs, np.arange(len(inputs))))
    study = Study(Federation(clients, "ab"), truth_of_training_rows(labels))
    settings = {"optimizer": "sgd", "learning_rate": 1.0, "momentum": 0.9, "batch_size": "all", "epochs": 20}
    run = fedul.train(study, method="supervised", model=nn.Linear(1, 2), select="last", rounds=10, **settings)
    probabilities = run.classifier.predict_proba([[-1.0], [0.0], [1.0]])[:, 1]
    assert_allclose(probabilities, 1 / (1 + np.exp([2.0, 0.0, -2.0])), atol=0.02)


def test_supervised_learning_without_labels_is_refused() -> None:
    with pytest.raises(InputError, match="method supervised: needs the labels of a study"):
        fedul.train(FEDERATION, method="supervised", select="last")


@pytest.mark.parametrize("share", [0, 1.1, "many", float("nan")])
def test_an_invalid_share_of_labels_is_refused(share: Any) -> None:
    with pytest.raises(InputError, match=r"labels: "):
        supervised(labels=share)


@pytest.mark.parametrize("name", ["truth", "seed"])
def test_the_truth_is_not_an_option(name: str) -> None:
    with pytest.raises(InputError, match=f"unknown option of method supervised '{name}'"):
        supervised(**{name: 1})
