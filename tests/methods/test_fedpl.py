"""FedPL: pseudo labels are the sets' most common classes; sure rows train on them, and are mixed with unsure ones."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from torch import Tensor, nn

from fedul._utils.randomness import torch_generator
from fedul.core import Matrix, UnlabeledSets
from fedul.methods.fedpl import FedPL
from fedul.methods.supervised import Supervised
from fedul.methods.task import Step

from ..factories import gaussian_study, make_client, make_federation, seeded_network
from ..worlds import random_priors, random_shares, repeatable, seeds
from .steps import gradient_of, padded

STUDY = gaussian_study(("north", "south"), rows=12, test_prior=np.array([0.5, 0.2, 0.3]), dtype=np.float64)
CLIENT = STUDY.federation.clients[0]


def one_step(method: FedPL, client: UnlabeledSets = CLIENT) -> Step:
    (step,) = method.task(client, STUDY.federation.spec).plan(torch_generator(0))
    return step


def surest(module: nn.Module, step: Step) -> Matrix:
    return module(step.inputs).detach().softmax(-1).amax(-1).numpy()


def middling(module: nn.Module, step: Step) -> float:
    """A threshold that half of the rows exceed."""
    return float(np.median(surest(module, step)))


def cross_entropies(logits: Tensor, labels: Matrix) -> Matrix:
    scores = logits.detach().numpy()
    scores = scores - scores.max(axis=1, keepdims=True)
    return np.log(np.exp(scores).sum(axis=1)) - scores[np.arange(len(labels)), labels]


def by_hand(method: FedPL, module: nn.Module, step: Step) -> float:
    """The loss, row by row."""
    labels, offset = step.targets["label"].numpy(), step.shared["offset"]
    sure = np.flatnonzero(surest(module, step) > method.threshold)
    unsure = np.setdiff1d(np.arange(len(labels)), sure)
    direct = cross_entropies(module(step.inputs) + offset, labels)
    total = direct[sure].sum() if len(sure) else direct.sum()
    for i in sure if len(unsure) else ():
        j = unsure[int(step.targets["partner_draw"][i].item() * len(unsure))]
        share = step.targets["mixing_weight"][i].item()
        both = share * step.inputs[i] + (1 - share) * step.inputs[j]
        logits = (module(both[None]) + offset).expand(2, -1)
        own, other = cross_entropies(logits, labels[[i, j]])
        total += method.mix * (share * own + (1 - share) * other)
    return float(total / len(labels))


def test_pseudo_labels_are_the_most_common_class_of_each_rows_set() -> None:
    step = one_step(FedPL())
    order = torch.randperm(len(CLIENT.train), generator=torch_generator(0))
    assert_array_equal(step.targets["label"], CLIENT.priors.argmax(axis=1)[CLIENT.train.sets[order]])


@repeatable
@given(seeds, st.floats(0.0, 1.0), st.floats(0.0, 2.0), st.floats(0.1, 3.0))
def test_the_loss_is_the_one_written_out_row_by_row(seed: int, quantile: float, mix: float, shape: float) -> None:
    module = seeded_network(seed=seed)
    step = one_step(FedPL(shape=shape))
    threshold = float(np.quantile(surest(module, step), quantile))
    method = FedPL(threshold=threshold, mix=mix, shape=shape)
    assert_allclose(method.loss(module, step).item(), by_hand(method, module, step), rtol=1e-10)


def test_the_mixed_term_is_there_where_both_kinds_of_rows_are() -> None:
    module, step = seeded_network(), one_step(FedPL())
    threshold = middling(module, step)
    with_it, without = (FedPL(threshold=threshold, mix=mix).loss(module, step).item() for mix in (0.3, 0.0))
    assert with_it > without + 1e-3


@pytest.mark.parametrize("threshold", [0.0, 1.0], ids=["all rows are sure", "no row is sure"])
def test_a_batch_with_one_kind_of_rows_trains_on_all_pseudo_labels_and_has_no_mixed_term(threshold: float) -> None:
    module, step = seeded_network(), one_step(FedPL())
    loss = FedPL(threshold=threshold, mix=0.5).loss(module, step)
    logits = module(step.inputs) + step.shared["offset"]
    assert_allclose(loss.item(), nn.functional.cross_entropy(logits, step.targets["label"]).item(), rtol=1e-12)


def test_without_mixing_unsure_rows_give_no_gradient() -> None:
    module, step = seeded_network(), one_step(FedPL())
    method = FedPL(threshold=middling(module, step), mix=0)
    moved = step.inputs.clone()
    moved[torch.from_numpy(surest(module, step) <= method.threshold)] *= 0.5
    elsewhere = replace(step, inputs=moved)
    assert (surest(module, elsewhere) > method.threshold).sum() == (surest(module, step) > method.threshold).sum()
    assert_allclose(gradient_of(method, module, step), gradient_of(method, module, elsewhere), rtol=0, atol=1e-15)


@pytest.mark.parametrize("share", [0.0, 1.0])
def test_a_mixed_row_at_either_end_of_the_share_is_one_row_alone(share: float) -> None:
    module, step = seeded_network(), one_step(FedPL())
    method = FedPL(threshold=middling(module, step), mix=1.0)
    ends = replace(
        step, targets={**step.targets, "mixing_weight": torch.full_like(step.targets["mixing_weight"], share)}
    )
    direct = cross_entropies(module(step.inputs) + step.shared["offset"], step.targets["label"].numpy())
    sure = surest(module, step) > method.threshold
    unsure = np.flatnonzero(~sure)
    partners = unsure[(step.targets["partner_draw"].numpy() * len(unsure)).astype(int)]
    mixed = direct if share else direct[partners]
    assert_allclose(method.loss(module, ends).item(), (direct[sure] + mixed[sure]).sum() / len(sure), rtol=1e-10)


def test_padded_rows_change_neither_loss_nor_gradient() -> None:
    module, step = seeded_network(), one_step(FedPL())
    method = FedPL(threshold=middling(module, step), mix=0.7)
    assert_allclose(method.loss(module, padded(step)).item(), method.loss(module, step).item(), rtol=1e-12)
    assert_allclose(gradient_of(method, module, padded(step)), gradient_of(method, module, step), rtol=0, atol=1e-14)


@pytest.mark.parametrize("shape", [0.3, 0.75, 2.0])
def test_mixing_shares_have_the_moments_of_their_beta_distribution(shape: float) -> None:
    client = make_client("many", np.eye(2), 10_000)
    (step,) = FedPL(shape=shape).task(client, make_federation(client).spec).plan(torch_generator(0))
    shares = step.targets["mixing_weight"]
    assert_allclose(shares.mean(), 0.5, atol=0.01)
    assert_allclose(shares.var(), 1 / (4 * (2 * shape + 1)), atol=0.005)


def test_partners_and_shares_are_drawn_anew_in_every_epoch() -> None:
    task, generator = FedPL().task(CLIENT, STUDY.federation.spec), torch_generator(0)
    (first,), (second,) = task.plan(generator), task.plan(generator)
    for name in ("partner_draw", "mixing_weight"):
        assert not set(first.targets[name].tolist()) & set(second.targets[name].tolist())


@repeatable
@given(seeds)
def test_with_pure_sets_confident_rows_and_no_mixing_it_is_supervised_learning(seed: int) -> None:
    generator = np.random.default_rng(seed)
    labels = np.r_[0:3, generator.integers(3, size=20)]
    client = make_client("pure", np.eye(3), inputs=generator.normal(size=(23, 2)), sets=labels)
    federation = make_federation(client, test_prior=random_shares(generator, 3))
    truth = replace(STUDY.truth, train_labels={"pure": labels})
    module = seeded_network(seed=seed)
    pseudo, supervised = FedPL(threshold=0, mix=0), Supervised(truth=truth)
    (ours,) = pseudo.task(client, federation.spec).plan(torch_generator(0))
    (theirs,) = supervised.task(client, federation.spec).plan(torch_generator(0))
    assert_allclose(pseudo.loss(module, ours).item(), supervised.loss(module, theirs).item(), rtol=1e-12)
    expected = gradient_of(supervised, module, theirs)
    assert_allclose(gradient_of(pseudo, module, ours), expected, rtol=0, atol=1e-14)


def test_a_pseudo_label_that_no_set_has_leaves_loss_and_gradient_finite() -> None:
    priors = 0.6 * np.eye(3)[[0, 1, 0, 1]] + 0.4 * random_priors(np.random.default_rng(0), 4, 3)
    client = replace(CLIENT, priors=priors)
    module, step = seeded_network(), one_step(FedPL(), client)
    method = FedPL(threshold=middling(module, step), mix=0.3)
    assert step.shared["offset"][2] == -torch.inf
    assert np.isfinite(method.loss(module, step).item())
    assert bool(gradient_of(method, module, step).isfinite().all())
