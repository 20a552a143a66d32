"""Errors counted with true labels are the shares one gets by counting."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from torch import Tensor, nn

from fedul.core import Labels, Matrix, Rows, Scaling, Truth, UnlabeledSets
from fedul.training import test_error, truth_metrics
from fedul.training.truth_metrics import calibration_error, held_out_error, predictions

from ..factories import make_federation, make_rows
from ..worlds import repeatable, seeds


class Sign(nn.Module):
    """Says class 1 where the one value is above zero."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([-x, x], dim=1)


VALUES = torch.tensor([[-1.0], [2.0], [3.0], [-4.0], [5.0], [6.0]])  # predicted 0 1 1 0 1 1
TRUTH = Truth(
    test_inputs=VALUES,
    test_labels=np.array([0, 0, 0, 0, 1, 1]),
    test_clients=np.array([0, 0, 0, 0, 1, 1]),
    train_labels={},
    held_out_labels={"a": np.array([0, 0, 1]), "b": np.array([1])},
)


def test_the_error_is_over_all_rows_and_over_those_of_each_client() -> None:
    pooled, by_client = test_error(Sign(), TRUTH, Scaling())
    assert pooled == 2 / 6
    assert by_client == [2 / 4, 0 / 2]


def test_inputs_are_scaled_before_prediction() -> None:
    assert test_error(Sign(), TRUTH, Scaling(-1.0))[0] == 4 / 6


def test_the_held_out_error_is_pooled_over_all_clients() -> None:
    clients = [
        UnlabeledSets("a", VALUES, make_rows([0, 1], [0, 1]), make_rows([3, 1, 2], [0, 0, 1]), np.eye(2)),
        UnlabeledSets("b", VALUES, make_rows([0, 1], [0, 1]), make_rows([4], [0]), np.eye(2)),
    ]
    assert held_out_error(Sign(), make_federation(*clients), TRUTH) == 1 / 4


@repeatable
@given(st.lists(st.tuples(st.integers(0, 7), st.booleans()), min_size=1, max_size=12), st.integers(1, 9), seeds)
def test_the_held_out_error_does_not_depend_on_how_rows_are_batched(
    held: list[tuple[int, bool]], batch: int, seed: int
) -> None:
    generator = np.random.default_rng(seed)
    clients, labels, wrong = [], {}, 0
    for c, (count, double) in enumerate(held):
        x = generator.normal(size=(count + 2, 1)).astype(np.float64 if double else np.float32)
        apart = Rows(torch.arange(count), torch.zeros(count).long())
        clients.append(
            UnlabeledSets(f"c{c}", torch.from_numpy(x), make_rows([count, count + 1], [0, 1]), apart, np.eye(2))
        )
        labels[f"c{c}"] = generator.integers(0, 2, count)
        wrong += int(((x[:count, 0] > 0) != labels[f"c{c}"]).sum())
    truth = Truth(VALUES, TRUTH.test_labels, TRUTH.test_clients, {}, labels)
    with pytest.MonkeyPatch.context() as changed:
        changed.setattr(truth_metrics, "PREDICT_BATCH", batch)
        assert held_out_error(Sign(), make_federation(*clients), truth) == wrong / max(sum(n for n, _ in held), 1)


def test_clients_without_test_rows_do_not_count() -> None:
    truth = replace(TRUTH, test_clients=np.array([1, 1, 1, 1, 7, 7]))
    assert test_error(Sign(), truth, Scaling()) == test_error(Sign(), TRUTH, Scaling())


@pytest.mark.parametrize("batch_size", [1, 4, 100])
def test_predictions_do_not_depend_on_the_size_of_batches(batch_size: int) -> None:
    assert_array_equal(predictions(Sign(), VALUES, Scaling(), batch_size=batch_size), [0, 1, 1, 0, 1, 1])


def test_no_rows_have_no_predictions() -> None:
    assert predictions(Sign(), VALUES[:0], Scaling()).shape == (0,)


def test_networks_predict_in_evaluation_mode() -> None:
    module = nn.Sequential(nn.Dropout(1.0), Sign()).train()
    assert_array_equal(predictions(module, VALUES, Scaling()), [0, 1, 1, 0, 1, 1])


def test_bytes_are_converted_to_the_precision_of_the_network() -> None:
    module = nn.Linear(1, 2).double()
    assert predictions(module, torch.tensor([[3], [200]], dtype=torch.uint8), Scaling(1 / 255)).shape == (2,)


def drawn(seed: int, rows: int, sharpness: float = 1.0) -> tuple[Matrix, Labels]:
    """Posteriors (n, 3), and classes drawn from them; then the posteriors are made surer or less sure."""
    generator = np.random.default_rng(seed)
    posterior = generator.dirichlet(np.ones(3), rows)
    labels = (generator.uniform(size=(rows, 1)) > posterior.cumsum(axis=1)[:, :-1]).sum(axis=1)
    changed = posterior**sharpness
    return changed / changed.sum(axis=1, keepdims=True), labels


@repeatable
@given(seeds, st.integers(1, 40), st.integers(1, 20))
def test_the_calibration_error_is_the_gap_of_each_bin_by_its_share_of_the_rows(seed: int, rows: int, bins: int) -> None:
    probabilities, labels = drawn(seed, rows)
    expected = 0.0
    for b in range(bins):
        confidence = probabilities.max(axis=1)
        here = (confidence >= b / bins) & (confidence < (b + 1) / bins)
        if here.any():
            right = (probabilities.argmax(axis=1) == labels)[here]
            expected += abs(confidence[here].mean() - right.mean()) * here.mean()
    assert_allclose(calibration_error(probabilities, labels, bins), expected, rtol=0, atol=1e-12)


def test_the_right_posterior_is_calibrated_and_one_that_is_surer_is_not() -> None:
    assert calibration_error(*drawn(0, 100_000)) < 0.01
    assert calibration_error(*drawn(0, 100_000, sharpness=3)) > 0.1
    assert calibration_error(*drawn(0, 100_000, sharpness=0.3)) > 0.1


@pytest.mark.parametrize(("labels", "error"), [([0, 1], 0.0), ([1, 0], 1.0), ([0, 0], 0.5)])
def test_certainty_is_in_the_last_bin_and_off_by_the_share_of_wrong_predictions(
    labels: list[int], error: float
) -> None:
    assert calibration_error(np.eye(2), np.array(labels)) == error
