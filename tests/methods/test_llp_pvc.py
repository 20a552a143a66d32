"""LLP-PVC: count posteriors by a Fourier transform agree with enumeration, and the gradient is that of the counts."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from torch import Tensor, nn

from fedul._utils.randomness import torch_generator
from fedul.core import Federation, UnlabeledSets
from fedul.methods.llp_pvc import LLPPVC, count_posteriors, one_vs_rest_losses
from fedul.methods.task import Targets, take_rows

from ..factories import gaussian_study, seeded_network
from ..worlds import repeatable, seeds
from .steps import flat_gradient, gradient_of, one_row_per_set, padded, task_of_round

STUDY = gaussian_study(("north",), rows=[1, 4, 6, 7], held_out=0, dtype=np.float64)
CLIENT = STUDY.federation.clients[0]


def count_probability(probabilities: Tensor, count: int) -> Tensor:
    """Return P(N = count) of independent rows by enumeration."""
    total = torch.zeros((), dtype=torch.float64)
    for labels in product([0, 1], repeat=len(probabilities)):
        if sum(labels) == count:
            chosen = torch.tensor(labels) == 1
            total = total + torch.where(chosen, probabilities, 1 - probabilities).prod()
    return total


def count_distribution(probabilities: np.ndarray) -> np.ndarray:
    """Return P(N = 0), P(N = 1) ... by dynamic programming."""
    distribution = np.ones(1)
    for p in probabilities:
        distribution = np.append(distribution * (1 - p), 0) + np.append(0, distribution * p)
    return distribution


def counted(log_odds: np.ndarray, sets: np.ndarray, counts: np.ndarray) -> Tensor:
    rows = Targets({"set": torch.from_numpy(sets)})
    return count_posteriors(torch.from_numpy(log_odds), rows, torch.from_numpy(counts).double())


def count_loss(module: nn.Module, client: UnlabeledSets, federation: Federation) -> Tensor:
    """Return the mean over rows of -log P(N_k = n_k), interpolated between whole counts, by enumeration."""
    offset = torch.from_numpy(np.log(client.class_mix / federation.test_prior))
    posterior = (module(client.inputs[client.train.index]) + offset).softmax(-1)
    loss = torch.zeros((), dtype=torch.float64)
    for m, priors in enumerate(client.priors):
        rows = posterior[client.train.sets == m]
        for k, expected in enumerate(len(rows) * priors):
            low = int(expected)
            loss = loss - (low + 1 - expected) * count_probability(rows[:, k], low).log()
            if low < len(rows):
                loss = loss - (expected - low) * count_probability(rows[:, k], low + 1).log()
    return loss / len(posterior)


@repeatable
@given(seeds, st.integers(1, 7), st.sampled_from([0.5, 3.0, 12.0]))
def test_count_posteriors_are_those_of_enumeration(seed: int, rows: int, scale: float) -> None:
    generator = np.random.default_rng(seed)
    log_odds = scale * generator.normal(size=(rows + 3, 2))
    sets = generator.permutation([0] * rows + [1] * 3)
    counts = np.array([[generator.integers(rows + 1) for _ in range(2)], [0, 3]])
    found = counted(log_odds, sets, counts)
    for m, k in np.ndindex(2, 2):
        here = np.flatnonzero(sets == m)
        logits = torch.from_numpy(log_odds[here, k]).requires_grad_()
        likelihood = count_probability(logits.sigmoid(), int(counts[m, k])).log()
        # d log P(N = n) / d logit_i = P(Y_i = 1 | N = n) - p_i
        posterior = torch.autograd.grad(likelihood, logits)[0] + logits.detach().sigmoid()
        assert_allclose(found[here, k], posterior, rtol=0, atol=1e-9)


@pytest.mark.parametrize("rows", [50, 3000])
@pytest.mark.parametrize("share", [0.002, 0.2, 0.9])
@pytest.mark.parametrize("shift", [0.0, 6.0, -6.0])
def test_in_large_sets_they_are_exact_however_improbable_the_counts_are(rows: int, share: float, shift: float) -> None:
    generator = np.random.default_rng(rows)
    log_odds = shift + 2 * generator.normal(size=rows)
    count = round(share * rows)
    found = counted(log_odds[:, None], np.zeros(rows, np.int64), np.array([[count]]))[:, 0].numpy()
    assert_allclose(found.sum(), count, rtol=1e-10, atol=1e-12)  # E[N | N = n]
    # Adding a constant to all log-odds does not change the posterior given the count, and centres the distribution.
    low, high = -40.0, 40.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if (1 / (1 + np.exp(-log_odds - middle))).sum() < count else (low, middle)
    tilted = 1 / (1 + np.exp(-log_odds - low))
    for i in (0, rows // 2):
        others, every = count_distribution(np.delete(tilted, i)), count_distribution(tilted)
        expected = tilted[i] * others[count - 1] / every[count] if count else 0.0
        assert_allclose(found[i], expected, rtol=1e-8, atol=1e-12)


@pytest.mark.parametrize("batch_size", [0, 5])
def test_at_the_start_of_a_round_the_gradient_over_an_epoch_is_that_of_the_counts_of_whole_sets(
    batch_size: int,
) -> None:
    module, method = seeded_network(), LLPPVC()
    task = task_of_round(method, method.task(CLIENT, STUDY.federation.spec), module)
    found = sum(
        len(step.inputs) / len(CLIENT.train) * gradient_of(method, module, step)
        for step in task.plan(torch_generator(0), batch_size)
    )
    expected = flat_gradient(count_loss(module, CLIENT, STUDY.federation), module)
    assert_allclose(found, expected, rtol=0, atol=1e-12)


def test_soft_labels_sum_over_a_set_to_its_expected_counts() -> None:
    method = LLPPVC()
    targets = task_of_round(method, method.task(CLIENT, STUDY.federation.spec), seeded_network()).targets
    for m, priors in enumerate(CLIENT.priors):
        here = CLIENT.train.sets == m
        assert_allclose(targets.rows["soft"][here].sum(0), here.sum().item() * priors, atol=1e-10)


def test_with_one_pure_row_a_set_it_is_supervised_learning_of_each_class_against_the_rest() -> None:
    study, module, method = one_row_per_set("north"), seeded_network(), LLPPVC()
    (client,) = study.federation.clients
    task = task_of_round(method, method.task(client, study.federation.spec), seeded_network(seed=4))
    (step,) = task.plan(torch_generator(0))
    truth = torch.from_numpy(client.priors)[step.targets["set"]]
    offset = torch.from_numpy(np.log(client.class_mix / study.federation.test_prior))
    posterior = (module(step.inputs) + offset).softmax(-1)
    expected = nn.functional.binary_cross_entropy(posterior, truth, reduction="none").sum(-1).mean()
    assert_allclose(method.loss(module, step).item(), expected.item(), rtol=1e-12)
    assert_allclose(gradient_of(method, module, step), flat_gradient(expected, module), rtol=0, atol=1e-14)


def test_with_two_classes_it_is_twice_the_cross_entropy() -> None:
    logits, soft = torch.randn(5, 2, dtype=torch.float64), torch.rand(5, 1, dtype=torch.float64)
    labels = torch.cat([soft, 1 - soft], -1)
    assert_allclose(one_vs_rest_losses(logits, labels), -2 * (labels * logits.log_softmax(-1)).sum(-1), rtol=1e-12)


@pytest.mark.parametrize("precision", [torch.float32, torch.float64])
def test_certain_predictions_have_a_gradient_where_they_are_wrong(precision: torch.dtype) -> None:
    logits = torch.tensor([[30.0, 0.0, -30.0]], dtype=precision, requires_grad=True)
    loss = one_vs_rest_losses(logits, torch.tensor([[0.0, 1.0, 0.0]], dtype=precision)).sum()
    (slope,) = torch.autograd.grad(loss, logits)
    assert_allclose(loss.item(), 60, rtol=1e-5)  # -log p of the second class and -log(1 - p) of the first
    assert_allclose(slope, [[2, -2, 0]], atol=1e-5)


def test_an_impossible_class_leaves_loss_gradient_and_posteriors_finite() -> None:
    logits = torch.tensor([[1.0, 0.0, -torch.inf], [0.0, -torch.inf, -torch.inf]], requires_grad=True)
    loss = one_vs_rest_losses(logits, torch.tensor([[0.5, 0.5, 0.0], [1.0, 0.0, 0.0]])).sum()
    (slope,) = torch.autograd.grad(loss, logits)
    assert loss.isfinite().item()
    assert bool(slope.isfinite().all())
    method, module = LLPPVC(), seeded_network()
    priors = np.array([[0.5, 0.5, 0.0], [0.25, 0.75, 0.0]])
    client = UnlabeledSets.from_arrays("a", np.zeros((8, 2)), [0, 0, 0, 0, 1, 1, 1, 1], priors, held_out=0)
    other = replace(CLIENT, name="b")
    federation = Federation([client, other], STUDY.federation.classes)
    soft = task_of_round(method, method.task(client, federation.spec), module).targets.rows["soft"]
    assert_allclose(soft, take_rows(torch.from_numpy(priors), client.train.sets), atol=1e-12)  # all rows are the same


def test_padded_rows_change_neither_loss_nor_gradient() -> None:
    method, module = LLPPVC(), seeded_network()
    task = task_of_round(method, method.task(CLIENT, STUDY.federation.spec), seeded_network(seed=1))
    step = next(iter(task.plan(torch_generator(0), 10)))
    assert_allclose(method.loss(module, padded(step)).item(), method.loss(module, step).item(), rtol=1e-12)
    assert_allclose(gradient_of(method, module, padded(step)), gradient_of(method, module, step), rtol=0, atol=1e-14)
