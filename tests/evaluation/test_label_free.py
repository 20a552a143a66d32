from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from fedul.errors import InputError
from fedul.evaluation.assumption import check_assumption
from fedul.evaluation.document import Evaluation
from fedul.evaluation.label_free import estimate_accuracy
from fedul.evaluation.out_of_fold import ClientPredictions, OutOfFoldPredictions

from .mixtures import mixture


@pytest.mark.parametrize("exact", [True, False])
def test_interval_covers_the_true_accuracy(exact: bool) -> None:
    worlds = [mixture(seed, exact=exact) for seed in range(20)]
    figures = [estimate_accuracy(world.predictions).accuracy for world in worlds]
    covered = [f.low <= world.accuracy <= f.high for f, world in zip(figures, worlds, strict=True)]
    assert sum(covered) >= 18
    off = [f.value - world.accuracy for f, world in zip(figures, worlds, strict=True)]
    assert abs(np.mean(off)) < 0.01


@pytest.mark.parametrize("sharpness", [0.4, 3.0])
def test_probabilities_that_are_too_sure_or_too_unsure_do_not_mislead(sharpness: float) -> None:
    worlds = [mixture(seed, sharpness=sharpness) for seed in range(10)]
    off = [estimate_accuracy(world.predictions).accuracy.value - world.accuracy for world in worlds]
    assert abs(np.mean(off)) < 0.015


def test_recall_and_confusion_are_near_the_truth() -> None:
    world = mixture(0, rows=400)
    found = estimate_accuracy(world.predictions)
    assert np.allclose([figure.value for figure in found.recall], world.recall, atol=0.03)
    assert np.allclose([sum(cell.value for cell in row) for row in found.cells], 1)


@pytest.mark.parametrize("seed", range(3))
def test_no_class_is_said_to_have_more_mistakes_than_all_together(seed: int) -> None:
    found = estimate_accuracy(mixture(seed, sharpness=3.0).predictions)
    most = 1 - found.accuracy.low
    for share, recall, row in zip(found.test_prior, found.recall, found.cells, strict=True):
        assert share * (1 - recall.low) <= most + 1e-9
        assert all(share * cell.high <= most + 1e-9 for cell in row if cell is not recall and cell.value < 0.5)
    assert all(0 <= each.low <= each.value <= each.high <= 1 for each in [*found.recall, *found.precision])


def test_recall_agrees_with_the_accuracy() -> None:
    found = estimate_accuracy(mixture(1, sharpness=2.0).predictions)
    assert found.test_prior @ [each.value for each in found.recall] == pytest.approx(found.accuracy.value, abs=1e-9)


def test_one_hot_priors_are_labels_and_give_the_accuracy_itself() -> None:
    labels = np.repeat([0, 1], 200)
    guess = labels.copy()
    guess[:20] = 1
    guess[200:210] = 0
    client = ClientPredictions(
        "a", ["zeros", "ones"], np.eye(2), labels, np.arange(400), np.eye(2)[guess], np.zeros((400, 0)), True
    )
    found = estimate_accuracy(OutOfFoldPredictions([client], ["0", "1"], np.array([0.5, 0.5])))
    assert found.accuracy.value == pytest.approx(0.925, abs=1e-6)
    assert found.at([1, 0]).value == pytest.approx(0.9, abs=1e-6)
    assert found.at([0, 1]).value == pytest.approx(0.95, abs=1e-6)
    assert [figure.value for figure in found.precision] == pytest.approx([180 / 190, 190 / 210], abs=1e-6)


def test_interval_is_wider_than_with_labels() -> None:
    found = estimate_accuracy(mixture(1).predictions)
    assert found.accuracy.width > found.width_with_labels


def test_interval_shrinks_with_the_number_of_rows() -> None:
    few, many = (estimate_accuracy(mixture(2, rows=rows, exact=False).predictions) for rows in (100, 10_000))
    assert many.accuracy.width < few.accuracy.width / 4


def test_many_rows_show_how_wrong_the_probabilities_are() -> None:
    """One temperature cannot correct probabilities that are too low for two classes and too high for the others."""
    world = mixture(3, rows=4000, exact=False)
    bent = []
    for client in world.predictions.clients:
        found = client.probabilities.argmax(axis=1)
        sure = np.where(found < 2, 0.5, 0.999)
        bent.append(
            replace(client, probabilities=np.where(np.eye(4)[found] > 0, sure[:, None], (1 - sure[:, None]) / 3))
        )
    estimate = estimate_accuracy(replace(world.predictions, clients=bent))
    soft = estimate.test_prior @ np.diag(estimate.model.soft)
    assert abs(soft - world.accuracy) > 0.02
    assert abs(estimate.accuracy.value - world.accuracy) < 0.2 * abs(soft - world.accuracy)


def test_exact_priors_tell_more_than_expected_ones() -> None:
    world = mixture(3).predictions
    rough = replace(world, clients=[replace(client, exact=False) for client in world.clients])
    sure, unsure = (estimate_accuracy(each).model.accuracy(world.test_prior).rows for each in (world, rough))
    assert sure < 0.9 * unsure


def test_rows_in_several_sets_count_once() -> None:
    world = mixture(4).predictions
    doubled = []
    for client in world.clients:
        sets = len(client.priors)
        twice = {
            name: np.concatenate([getattr(client, name)] * 2)
            for name in ("rows", "probabilities", "features", "priors")
        }
        names = [*client.set_names, *(f"again {name}" for name in client.set_names)]
        doubled.append(
            replace(client, sets=np.concatenate([client.sets, client.sets + sets]), set_names=names, **twice)
        )
    once, again = estimate_accuracy(world), estimate_accuracy(replace(world, clients=doubled))
    assert again.rows == once.rows
    assert again.accuracy.value == pytest.approx(once.accuracy.value, abs=2e-3)
    rows = [each.model.accuracy(each.test_prior).rows for each in (once, again)]
    assert rows[1] == pytest.approx(rows[0], rel=0.3)


def test_no_estimate_where_the_sets_do_not_tell_the_classes_apart() -> None:
    world = mixture(5, clients=1, sets=2).predictions
    evaluation = estimate_accuracy(world).to_evaluation(check_assumption(world))
    assert evaluation.estimated_accuracy is None
    assert evaluation.interval is None
    assert evaluation.recall == evaluation.precision == evaluation.confusion == ()
    assert str(evaluation).startswith("The accuracy cannot be estimated without labels, because the class priors")


def test_uncertain_priors_widen_the_interval() -> None:
    world = mixture(6).predictions

    def draw(generator: np.random.Generator) -> list[np.ndarray]:
        return [np.stack([generator.dirichlet(30 * row + 0.1) for row in client.priors]) for client in world.clients]

    sure, unsure = estimate_accuracy(world).accuracy, estimate_accuracy(replace(world, draw_priors=draw)).accuracy
    assert unsure.width > sure.width


def test_calibration_states_both_shares_of_every_set() -> None:
    world = mixture(7, rows=500).predictions
    lines = estimate_accuracy(world).calibration
    assert len(lines) == 5 * 8 * 4
    scores = [(line.stated - line.predicted) / line.standard_error for line in lines]
    assert 0.7 < np.std(scores) < 1.3


def test_an_evaluation_is_written_as_json_and_read_back() -> None:
    world = mixture(8).predictions
    evaluation = estimate_accuracy(world).to_evaluation(check_assumption(world))
    document = json.loads(json.dumps(evaluation.to_dict(), allow_nan=False))
    low, high = document["interval"]
    assert 0 <= low < document["estimated_accuracy"] < high <= 1
    assert document["accuracy"] is None
    assert np.array(document["confusion_low"]).shape == np.array(document["confusion_high"]).shape == (4, 4)
    assert document["recall"][0].keys() == {"class", "value", "low", "high"}
    assert Evaluation.from_dict(document) == evaluation


def test_an_evaluation_prints_as_text_and_as_html() -> None:
    world = mixture(8).predictions
    evaluation = estimate_accuracy(world).to_evaluation(check_assumption(world))
    assert str(evaluation).startswith(f"Estimated accuracy {evaluation.estimated_accuracy:.1%} (95 % interval")
    assert "The sets do not contradict the assumption that cases" in str(evaluation)
    assert evaluation._repr_html_().startswith("<pre>")


def test_wrong_input_is_named() -> None:
    world = mixture(9).predictions
    with pytest.raises(InputError, match="4 classes"):
        estimate_accuracy(world).at([0.5, 0.5])
    with pytest.raises(InputError, match="sum to one"):
        replace(world.clients[0], probabilities=world.clients[0].probabilities * 2)
    with pytest.raises(InputError, match=r"0\.\.7"):
        replace(world.clients[0], sets=world.clients[0].sets + 1)
    with pytest.raises(InputError, match="no rows to evaluate"):
        OutOfFoldPredictions([], world.classes, world.test_prior)
