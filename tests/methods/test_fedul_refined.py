"""FedUL, refined: FedUL until it levels off, then EM's gradient on soft labels that agree with the sets' priors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from torch import Tensor

import fedul
from fedul._utils.randomness import torch_generator
from fedul.core import RoundMetrics
from fedul.methods import fedul_refined
from fedul.methods.fedul import FedUL
from fedul.methods.fedul_refined import ROUNDS_WITHOUT_HELD_OUT, FedULRefined, match_priors, reestimate_priors
from fedul.methods.operations import set_means
from fedul.methods.task import Targets
from fedul.training import Run

from ..factories import gaussian_study, make_federation, seeded_network
from ..worlds import random_priors, repeatable, seeds
from .steps import SETTINGS, gradient_of, padded, task_of_round, with_priors_of

NAMES = ("north", "south")
STUDY = with_priors_of(gaussian_study(NAMES, rows=12, dtype=np.float64), "train")


def train(method: str, rounds: int = 4, option: dict[str, Any] | None = None, **settings: Any) -> Run:
    chosen = {**SETTINGS, "rounds": rounds, "method": method, "method_option": option or {}}
    return fedul.train(STUDY, **chosen, **settings)


AT_ONCE = {"earliest": 1, "latest": 1}
"""Refinement from the second round on."""


def test_without_trust_it_is_fedul() -> None:
    refined = train("fedul-refined", option={**AT_ONCE, "trust": 0})
    assert refined.weights_sha256 == train("fedul").weights_sha256


def test_until_refinement_starts_it_is_fedul() -> None:
    with pytest.warns(UserWarning, match="in 4 rounds refinement does not start, so this is fedul"):
        unrefined = train("fedul-refined", option={"earliest": 4})
    assert unrefined.weights_sha256 == train("fedul").weights_sha256
    assert train("fedul-refined", option=AT_ONCE).weights_sha256 != train("fedul").weights_sha256


@pytest.mark.filterwarnings("ignore:fedul-refined. in 2 rounds")
@pytest.mark.parametrize("loss", ["brier", "authors"])
def test_until_refinement_starts_the_score_is_the_one_asked_for(loss: str) -> None:
    assert train("fedul-refined", 2, loss=loss).weights_sha256 == train("fedul", 2, loss=loss).weights_sha256


@pytest.mark.parametrize("trust", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("zeros", [0.0, 0.5])
def test_unscaled_soft_labels_have_the_gradient_of_fedul(
    trust: float, zeros: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fedul_refined, "SINKHORN_STEPS", 0)
    study = gaussian_study(NAMES, rows=12, priors=lambda g: random_priors(g, 4, 3, zeros=zeros), dtype=np.float64)
    method, module = FedULRefined(trust=trust, reestimate=False), seeded_network()
    for client in study.federation.clients:
        task = task_of_round(method, method.task(client, study.federation.spec), module, {"refine": 1.0})
        plain = FedUL().task(client, study.federation.spec)
        for step, expected in zip(task.plan(torch_generator(0), 10), plain.plan(torch_generator(0), 10), strict=True):
            found = gradient_of(method, module, step)
            assert_allclose(found, gradient_of(FedUL(), module, expected), rtol=0, atol=1e-14)


def test_scaled_soft_labels_have_another_gradient() -> None:
    method, module = FedULRefined(), seeded_network()
    client = STUDY.federation.clients[0]
    (step,) = task_of_round(method, method.task(client, STUDY.federation.spec), module, {"refine": 1.0}).plan(
        torch_generator(0)
    )
    difference = gradient_of(method, module, step) - gradient_of(FedUL(), module, step)
    assert difference.norm() > 1e-3


def test_the_loss_is_cross_entropy_on_soft_labels_and_minus_log_q_by_their_trust() -> None:
    method, module = FedULRefined(trust=0.7), seeded_network()
    client = STUDY.federation.clients[0]
    task = task_of_round(method, method.task(client, STUDY.federation.spec), seeded_network(seed=1), {"refine": 1.0})
    (step,) = task.plan(torch_generator(0))
    mix = torch.from_numpy(np.log(client.class_mix / STUDY.federation.test_prior))
    cross_entropy = torch.nn.functional.cross_entropy(module(step.inputs) + mix, step.targets["soft"]).item()
    expected = 0.7 * cross_entropy + 0.3 * FedUL().loss(module, step).item()
    assert_allclose(method.loss(module, step).item(), expected, rtol=1e-12)


def test_padded_rows_change_neither_loss_nor_gradient() -> None:
    method, module = FedULRefined(), seeded_network()
    client = STUDY.federation.clients[0]
    task = task_of_round(method, method.task(client, STUDY.federation.spec), seeded_network(seed=1), {"refine": 1.0})
    step = next(iter(task.plan(torch_generator(0), 10)))
    assert_allclose(method.loss(module, padded(step)).item(), method.loss(module, step).item(), rtol=1e-12)
    assert_allclose(gradient_of(method, module, padded(step)), gradient_of(method, module, step), rtol=0, atol=1e-14)


def test_a_class_that_a_client_does_not_have_leaves_loss_and_gradient_finite() -> None:
    first, second = STUDY.federation.clients
    priors = np.array([[0.7, 0.3, 0.0], [0.2, 0.8, 0.0], [0.5, 0.5, 0.0], [1.0, 0.0, 0.0]])
    client = replace(first, priors=priors)
    method, module = FedULRefined(), seeded_network()
    task = method.task(client, make_federation(client, second).spec)
    (step,) = task_of_round(method, task, module, {"refine": 1.0}).plan(torch_generator(0))
    assert np.isfinite(method.loss(module, step).item())
    assert bool(gradient_of(method, module, step).isfinite().all())


def random_sets(seed: int, *, zeros: float = 0.0, rows: int = 40, sets: int = 3) -> tuple[Tensor, Tensor, Tensor]:
    """Logits (n, K) of rows given their sets, as FedUL's joint makes them; the sets (n,); and priors (M, K)."""
    generator = np.random.default_rng(seed)
    priors = torch.from_numpy(random_priors(generator, sets, 4, zeros=zeros))
    numbers = torch.from_numpy(np.r_[np.arange(sets), generator.integers(sets, size=rows - sets)])
    logits = torch.from_numpy(0.8 * generator.normal(size=(rows, 4)))
    return logits + priors.log()[numbers], numbers, priors


def targets_of(sets: Tensor, priors: Tensor, variance: float = 0.0) -> Targets:
    """Return targets of sets whose class shares have this variance around the priors, relative to multinomial."""
    return Targets({"set": sets}, {"priors": priors, "prior_variance": torch.full_like(priors[:, :1], variance)})


@repeatable
@given(seeds, st.sampled_from([0.0, 0.4]))
def test_soft_labels_are_posteriors_in_which_prior_zero_stays_zero(seed: int, zeros: float) -> None:
    logits, sets, priors = random_sets(seed, zeros=zeros)
    soft = match_priors(logits, targets_of(sets, priors))
    assert_allclose(soft.sum(-1), 1, rtol=0, atol=1e-12)
    assert_array_equal(soft[priors[sets] == 0], 0)
    assert bool((soft[priors[sets] > 0] > 0).all())


@repeatable
@given(seeds, st.sampled_from([0.0, 0.4]))
def test_soft_labels_agree_with_the_priors_of_every_set(seed: int, zeros: float) -> None:
    logits, sets, priors = random_sets(seed, zeros=zeros)
    soft = match_priors(logits, targets_of(sets, priors))
    for m, prior in enumerate(priors):
        assert_allclose(soft[sets == m].mean(0), prior, rtol=0, atol=1e-6)


@repeatable
@given(seeds)
def test_scaling_changes_only_the_odds_that_all_rows_of_a_set_share(seed: int) -> None:
    logits, sets, priors = random_sets(seed)
    change = match_priors(logits, targets_of(sets, priors)).log() - logits
    odds = change - change[:, :1]
    for m in range(len(priors)):
        here = odds[sets == m]
        assert_allclose(here, here[:1].expand_as(here), rtol=0, atol=1e-9)


@repeatable
@given(seeds)
def test_with_pure_sets_soft_labels_are_hard(seed: int) -> None:
    generator = np.random.default_rng(seed)
    priors = torch.eye(4, dtype=torch.float64)[generator.integers(4, size=5)]
    sets = torch.arange(20) % 5
    logits = torch.from_numpy(5 * generator.normal(size=(20, 4)))
    assert_array_equal(match_priors(logits + priors.log()[sets], targets_of(sets, priors)), priors[sets])


@repeatable
@given(seeds)
def test_the_order_of_rows_and_the_names_of_sets_do_not_matter(seed: int) -> None:
    logits, sets, priors = random_sets(seed, zeros=0.3)
    generator = np.random.default_rng(seed)
    rows, names = (torch.from_numpy(generator.permutation(count)) for count in (len(sets), len(priors)))
    renamed = names.argsort()[sets]
    moved, again = targets_of(sets[rows], priors, 0.6), targets_of(renamed, priors[names], 0.6)
    expected = match_priors(logits, targets_of(sets, priors, 0.6))
    assert_allclose(match_priors(logits[rows], moved), expected[rows], rtol=0, atol=1e-12)
    assert_allclose(match_priors(logits, again), expected, rtol=0, atol=1e-12)
    shares = reestimate_priors(logits, targets_of(sets, priors, 0.6))
    assert_allclose(reestimate_priors(logits[rows], moved), shares, rtol=0, atol=1e-12)
    assert_allclose(reestimate_priors(logits, again), shares[names], rtol=0, atol=1e-12)


def test_means_over_sets_are_means_and_a_set_without_rows_has_zeros() -> None:
    rows = torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.5, 0.5]])
    sets = Targets({"set": torch.tensor([0, 0, 2])})
    assert_array_equal(set_means(rows, sets, 3), [[0.5, 0.5], [0, 0], [0.5, 0.5]])


def history(losses: Sequence[float | None]) -> list[RoundMetrics]:
    return [RoundMetrics(number, 1.0, 2, held_out_loss=loss) for number, loss in enumerate(losses, 1)]


def refines(method: FedULRefined, losses: Sequence[float | None]) -> bool:
    """Whether the round after these is one of refinement."""
    return method.directive(history(losses)).get("refine") == 1.0


def first_refinement(method: FedULRefined, losses: Sequence[float | None]) -> int | None:
    """After how many rounds refinement starts; None if it does not within these."""
    return next((n for n in range(len(losses) + 1) if refines(method, losses[:n])), None)


FALLING = [2.0 - 0.05 * i for i in range(30)]


@pytest.mark.parametrize(
    ("losses", "start"),
    [
        ([1.0] * 30, 6),
        (FALLING, 20),
        ([*FALLING[:9], *[FALLING[8]] * 20], 12),
        ([*FALLING[:9], *[2.5] * 20], 12),
        ([2.0, 1.0, *[1.5] * 5, 0.9, *[1.5] * 20], 6),
        ([*FALLING[:9], FALLING[8] - 0.0080, *[1.7] * 20], 12),
        ([*FALLING[:9], FALLING[8] - 0.0083, *[1.7] * 20], 13),
        ([None] * 30, ROUNDS_WITHOUT_HELD_OUT),
    ],
    ids=[
        "level from the start",
        "never level",
        "level from round 9 on",
        "rising from round 9 on",
        "level for a while",
        "a little lower in round 10",
        "lower in round 10",
        "nothing held out",
    ],
)
def test_refinement_starts_when_three_rounds_bring_a_small_share_of_what_all_have_brought(
    losses: list[float | None], start: int
) -> None:
    assert first_refinement(FedULRefined(), losses) == start


def test_a_loss_that_is_low_because_a_site_did_not_reply_does_not_start_refinement() -> None:
    lines = history(FALLING)
    lines_without_a_site = [*lines[:3], replace(lines[3], held_out_loss=0.1, comparable_loss=FALLING[3]), *lines[4:]]
    assert FedULRefined().directive(lines_without_a_site[:12]) == {}


@pytest.mark.parametrize(("earliest", "latest"), [(4, 20), (8, 20), (15, 15), (6, 7)])
def test_refinement_starts_between_the_earliest_and_the_latest_round(earliest: int, latest: int) -> None:
    method = FedULRefined(earliest=earliest, latest=latest)
    assert first_refinement(method, [1.0] * 30) == earliest
    assert first_refinement(method, FALLING) == latest


@repeatable
@given(st.lists(st.floats(0.5, 2.5), min_size=20, max_size=30), st.floats(0, 0.5))
def test_refinement_that_has_started_continues(losses: list[float], level: float) -> None:
    method = FedULRefined(level=level)
    on = [refines(method, losses[:n]) for n in range(len(losses) + 1)]
    assert on == sorted(on)
    assert not on[5]
    assert on[20]


def test_without_trust_refinement_never_starts() -> None:
    assert first_refinement(FedULRefined(trust=0), [1.0] * 30) is None


def test_the_rounds_of_refinement_are_recorded() -> None:
    lines = train("fedul-refined", option={"earliest": 2, "latest": 2}).history
    assert ["refine" in metrics.directive for metrics in lines] == [False, False, True, True]


def test_a_resumed_run_ends_as_one_that_was_never_stopped(tmp_path: Path) -> None:
    whole = train("fedul-refined", 5, AT_ONCE)
    train("fedul-refined", 3, AT_ONCE, out=tmp_path)
    assert train("fedul-refined", 5, AT_ONCE, out=tmp_path, resume=True).weights_sha256 == whole.weights_sha256


def test_class_shares_are_not_estimated_by_a_classifier_that_deteriorates() -> None:
    falling = [2.0, *(1.0 + 0.5**n for n in range(1, 12))]
    method = FedULRefined()
    assert method.directive(history(falling)) == {"refine": 1.0, "reestimate": 1.0}
    worse = [*falling, falling[-1] + 0.05]  # 5 % of what the loss has fallen by
    assert method.directive(history(worse)) == {"refine": 1.0, "reestimate": 0.0}
    assert method.directive(history([*worse, falling[-1] + 0.01]))["reestimate"] == 1.0
    assert FedULRefined(reestimate=False).directive(history(falling))["reestimate"] == 0.0
