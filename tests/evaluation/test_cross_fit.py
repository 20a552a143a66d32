from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from fedul.classifier import Classifier
from fedul.core import Federation, PriorScope, Scaling, UnlabeledSets
from fedul.data.files.schema.table import Category, Number, TableSchema
from fedul.errors import InputError
from fedul.evaluation.cross_fit import cross_fit, held_out_predictions
from fedul.evaluation.row_features import COMPONENTS, RowFeatures

from ..factories import make_client, make_federation, make_rows

PRIORS = [[0.8, 0.2], [0.3, 0.7]]


def two_clients(*, shared: bool = True) -> Federation:
    """Two clients, ten rows of twenty each in two sets; row 4 and row 12 are in both sets of their client."""
    inputs = torch.arange(60.0).reshape(20, 3) ** 1.5
    clients = []
    for c, name in enumerate(("north", "south")):
        own = list(range(8 * c, 8 * c + 8))
        train = make_rows([*own, 8 * c + 4], [0, 0, 0, 0, 0, 1, 1, 1, 1])
        held_out = make_rows([16 + 2 * c, 17 + 2 * c], [0, 1])
        clients.append(UnlabeledSets(name, inputs if shared else inputs.clone(), train, held_out, PRIORS))
    return make_federation(*clients)


class RecordTraining:
    """A function for training that records the federations and returns constant classifiers."""

    def __init__(self) -> None:
        self.started: list[Federation] = []

    def __call__(self, part: Federation) -> Classifier:
        self.started.append(part)
        module = nn.Linear(part.input_shape[0], 2)
        nn.init.zeros_(module.weight)
        module.bias.data = torch.tensor([0.0, float(len(self.started))])  # so that a prediction shows its model
        return Classifier(module, "linear", part.classes, part.input_shape, part.test_prior)


def test_no_model_predicts_a_row_it_was_trained_on() -> None:
    train, data = RecordTraining(), two_clients()
    predictions = cross_fit(data, train, folds=3)
    for client, whole in zip(predictions.clients, data.clients, strict=True):
        index = torch.cat([whole.train.index, whole.held_out.index]).numpy()
        odds = np.log(client.probabilities[:, 1] / client.probabilities[:, 0]).round().astype(int)
        assert set(odds) == {1, 2, 3}
        for fold, part in enumerate(train.started, start=1):
            trained = {int(i) for other in part.clients for i in other.train.index}
            assert not trained & set(index[odds == fold].tolist())
            assert trained | {int(i) for c in predictions.clients for i in c.rows} == set(range(20))


def test_a_row_in_several_sets_is_in_one_fold() -> None:
    client = cross_fit(two_clients(), RecordTraining(), folds=3).clients[0]
    twice = client.probabilities[client.rows == 4]
    assert len(twice) == 2
    assert (twice[0] == twice[1]).all()


def test_rows_of_different_inputs_are_different_rows() -> None:
    first, second = cross_fit(two_clients(shared=False), RecordTraining(), folds=3).clients
    assert not set(first.rows.tolist()) & set(second.rows.tolist())


def test_priors_and_sets_stay_as_they_are() -> None:
    train, data = RecordTraining(), two_clients()
    predictions = cross_fit(data, train, folds=4)
    for part in train.started:
        assert all((a.priors == b.priors).all() for a, b in zip(part.clients, data.clients, strict=True))
        assert all(set(client.train.sets.tolist()) == {0, 1} for client in part.clients)
    assert not predictions.clients[0].exact
    assert predictions.clients[0].features.shape == (11, 3)


def test_only_training_rows_are_evaluated_where_the_priors_are_their_shares() -> None:
    data = two_clients()
    exact = [replace(client, prior_scope=PriorScope("train")) for client in data.clients]
    train = RecordTraining()
    predictions = cross_fit(replace(data, clients=exact), train, folds=3)
    assert [len(client.sets) for client in predictions.clients] == [9, 9]
    assert all(client.exact for client in predictions.clients)
    assert all(len(client.held_out) == 2 for part in train.started for client in part.clients)
    for part in train.started:
        for client in part.clients:
            assert client.prior_scope == PriorScope("train", missing=1 - len(client.train) / 9)


def test_all_rows_are_evaluated_where_the_priors_are_their_shares() -> None:
    clients = [replace(client, prior_scope=PriorScope("rows")) for client in two_clients().clients]
    predictions = cross_fit(replace(two_clients(), clients=clients), RecordTraining(), folds=3)
    assert [len(client.sets) for client in predictions.clients] == [11, 11]
    assert all(client.exact for client in predictions.clients)


def test_shares_that_are_whole_numbers_of_rows_are_not_taken_for_counts() -> None:
    clients = [replace(client, priors=np.array([[0.8, 0.2], [0.25, 0.75]])) for client in two_clients().clients]
    predictions = cross_fit(replace(two_clients(), clients=clients), RecordTraining(), folds=3)
    assert [len(client.sets) for client in predictions.clients] == [11, 11]
    assert not any(client.exact for client in predictions.clients)


def test_held_out_rows_alone_are_not_all_the_rows_that_priors_speak_of() -> None:
    federation = two_clients()
    client = replace(federation.clients[0], prior_scope=PriorScope("rows"))
    classifier = RecordTraining()(federation)
    assert not held_out_predictions(client, federation.spec, classifier).clients[0].exact


def test_a_set_of_one_row_keeps_it() -> None:
    client = make_client("a", PRIORS, [5, 1])
    train = RecordTraining()
    cross_fit(make_federation(client), train, folds=2)
    assert all(set(part.clients[0].train.sets.tolist()) == {0, 1} for part in train.started)


def test_same_seed_same_folds() -> None:
    first, again, other = (cross_fit(two_clients(), RecordTraining(), folds=3, seed=seed) for seed in (0, 0, 1))
    assert (first.clients[0].probabilities == again.clients[0].probabilities).all()
    assert (first.clients[0].probabilities != other.clients[0].probabilities).any()


def test_one_fold_is_refused() -> None:
    with pytest.raises(InputError, match="folds"):
        cross_fit(two_clients(), RecordTraining(), folds=1)


@pytest.mark.parametrize(
    ("scope", "of_all", "of_held_out"),
    [
        (PriorScope(), 1, 1),
        (PriorScope("rows"), 0, 1 - 2 / 11),
        (PriorScope("rows", rounding=0.05), 0, 1 - 2 / 11),
        (PriorScope("train"), 0, 1 + 2 / 9),
        (PriorScope("train", rounding=0.05), 2 / 9, 1 + 2 / 9),
    ],
)
def test_class_shares_vary_around_priors_by_the_rows_that_these_do_not_speak_of(
    scope: PriorScope, of_all: float, of_held_out: float
) -> None:
    clients = [replace(client, prior_scope=scope) for client in two_clients().clients]
    federation = replace(two_clients(), clients=clients)
    predictions = cross_fit(federation, RecordTraining(), folds=2).clients[0]
    assert predictions.share_variance == pytest.approx(of_all)
    assert predictions.rounding == scope.rounding
    held_out = held_out_predictions(clients[0], federation.spec, RecordTraining()(federation)).clients[0]
    assert held_out.share_variance == pytest.approx(of_held_out)


def test_inputs_of_a_table_are_features_with_the_names_of_their_columns() -> None:
    schema = TableSchema((Number("age", 40, 10, missing=False), Category("colour", ("red", "blue"), False, False)))
    predictions = cross_fit(replace(two_clients(), schema=schema), RecordTraining(), folds=2)
    assert predictions.columns == ("age", "colour", "colour")
    assert predictions.clients[0].features.shape == (11, 3)


def test_images_are_described_by_principal_components_without_names() -> None:
    inputs = torch.from_numpy(np.random.default_rng(0).normal(size=(40, 1, 5, 5))).float()
    client = UnlabeledSets.from_arrays("a", inputs, [0] * 20 + [1] * 20, PRIORS)
    features = RowFeatures.fit([(client.inputs, torch.arange(40))], Scaling(), None)
    described = features(inputs)
    assert features.columns == ()
    assert described.T @ described / 40 == pytest.approx(np.eye(COMPONENTS), abs=1e-5)


def four_sets() -> Federation:
    priors = [[0.8, 0.2], [0.3, 0.7], [0.5, 0.5], [0.1, 0.9]]
    return make_federation(*(make_client(name, priors, [6, 5, 4, 3]) for name in ("north", "south")))


def test_no_model_predicts_a_row_of_a_set_it_was_trained_on() -> None:
    train, data = RecordTraining(), four_sets()
    predictions = cross_fit(data, train, folds=3)
    for number, client in enumerate(predictions.clients):
        odds = np.log(client.probabilities[:, 1] / client.probabilities[:, 0]).round().astype(int)
        for fold, part in enumerate(train.started, start=1):
            left_out = {client.set_names[m] for m in client.sets[odds == fold]}
            assert not left_out & set(part.clients[number].set_names)
            assert left_out | set(part.clients[number].set_names) == set(client.set_names)
        assert len({*odds}) == 3


def test_a_client_with_two_sets_leaves_rows_out() -> None:
    train = RecordTraining()
    cross_fit(make_federation(make_client("a", PRIORS, [9, 9])), train, folds=3)
    assert all(len(part.clients[0].priors) == 2 and len(part.clients[0].train) == 12 for part in train.started)


def test_scores_of_models_that_differ_in_their_level_only_are_equal() -> None:
    client = cross_fit(four_sets(), RecordTraining(), folds=3).clients[0]
    assert client.scores is not None
    assert np.abs(client.scores).max() < 1e-3
    assert client.model_variance is not None
    assert np.abs(client.model_variance).max() < 1e-6
