"""The private mean: sensitivity, distribution of its noise, participation, and clips that follow a quantile."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from fedul.algorithms.mean import mean_update
from fedul.core import TensorSpec, Update, UpdateSpec
from fedul.privacy.accounting import Gaussian, epsilon_of
from fedul.privacy.adaptive_clip import LARGEST_PART, next_clips, split_noise
from fedul.privacy.client_privacy import STATE, ClientPrivacy, PrivateMean, algorithm_state, floor_variances
from fedul.privacy.clipping import GROUPS, ClipUpdates
from fedul.privacy.update_chain import UpdateContext

from ..worlds import repeatable, seeds

ERROR = 1e-6
"""Probability that a test of a distribution fails by chance; with a seed it never does or always."""
SPEC = UpdateSpec(
    {"w": TensorSpec((3, 2), torch.float32)},
    {"bn.running_mean": TensorSpec((2,), torch.float32)},
    {"control.w": TensorSpec((3, 2), torch.float32)},
)
CLIPS = {"delta": 0.5, "buffers": 2.0, "message": 10.0}


def private_mean(spec=SPEC, **settings):
    privacy = ClientPrivacy(**{"noise": 0.0, "clip": 1.0, "seed": 5, **settings})
    return PrivateMean(privacy, ClipUpdates(adaptive=privacy.quantile is not None).declare(spec))


def clipped_updates(seed, count, adaptive=False):
    generator = torch.Generator().manual_seed(seed)
    updates = []
    for number in range(count):
        groups = [
            {name: 10 ** (2 * torch.rand(1, generator=generator) - 1) * torch.randn(each.shape, generator=generator)}
            for group in (SPEC.delta, SPEC.buffers, SPEC.message)
            for name, each in group.items()
        ]
        update = Update(f"client {number}", groups[0], number + 1, 1.0, 0.0, groups[1], groups[2])
        updates.append(ClipUpdates(adaptive).apply(update, UpdateContext(update.client, 1, 0, CLIPS)))
    return updates


def release(mechanism, updates, clients=20, clips=CLIPS, round_number=1):
    mean = mean_update(updates, "uniform") if updates else None
    return mechanism.release(mean, clips, clients, round_number)


def in_units_of_clips(released, mechanism, clips=CLIPS):
    """Return a released mean as one vector, with each group divided by its clip."""
    parts = [
        torch.cat([tensor.flatten().double() for tensor in getattr(released, group).values()]) / clips[group]
        for group in mechanism.groups
    ]
    return torch.cat(parts)


@repeatable
@given(seeds, st.integers(1, 6), st.floats(0.1, 1.0))
def test_a_client_moves_the_mean_by_its_sensitivity_at_most(seed, count, rate):
    mechanism, updates = private_mean(rate=rate), clipped_updates(seed, count)
    with_all, _ = release(mechanism, updates)
    without_last, _ = release(mechanism, updates[:-1])
    moved = in_units_of_clips(with_all, mechanism) - in_units_of_clips(without_last, mechanism)
    assert float(moved.norm()) <= math.sqrt(3) / (rate * 20) * (1 + 1e-5)


def test_the_denominator_is_the_expected_number_of_participants():
    mechanism, updates = private_mean(rate=0.25), clipped_updates(1, 3)
    released, _ = release(mechanism, updates)
    total = sum(update.delta["w"] for update in updates)
    assert torch.allclose(released.delta["w"], total / 5, atol=1e-6)
    assert released.clients == 5
    nobody, _ = release(mechanism, [])
    assert not nobody.delta["w"].any()
    assert nobody.message.keys() == SPEC.message.keys()


@pytest.mark.parametrize("count", [0, 3])
def test_the_noise_of_every_group_is_normal_in_units_of_its_clip(count):
    sizes = (4000, 3000, 5000)
    spec = UpdateSpec(
        {"w": TensorSpec((sizes[0],), torch.float32)},
        {"bn.running_var": TensorSpec((sizes[1],), torch.float32)},
        {"c": TensorSpec((sizes[2],), torch.float32)},
    )
    mechanism = private_mean(spec, noise=1.7, rate=0.5)
    updates = [
        Update(f"{i}", {"w": torch.ones(sizes[0])}, 1, 1.0, 0.0, {}, {"c": -torch.ones(sizes[2])}) for i in range(count)
    ]
    released, _ = release(mechanism, updates)
    deviation = 1.7 * math.sqrt(3) / 10  # z sqrt(G) / (q N)
    sums = {"delta": count, "buffers": 0, "message": -count}
    for group in GROUPS:
        (tensor,) = getattr(released, group).values()
        noise = (tensor.double().numpy() - sums[group] / 10) / CLIPS[group]
        assert stats.kstest(noise / deviation, "norm").pvalue > ERROR


def test_noise_follows_from_a_seed_or_is_never_the_same():
    spec = UpdateSpec({"w": TensorSpec((50,), torch.float32)})

    def noise(seed, round_number):
        mechanism = private_mean(spec, noise=1.0, seed=seed)
        return release(mechanism, [], clips={"delta": 1.0}, round_number=round_number)[0].delta["w"]

    assert torch.equal(noise(5, 1), noise(5, 1))
    assert not torch.equal(noise(5, 1), noise(5, 2))
    assert not torch.equal(noise(None, 1), noise(None, 1))


def test_every_client_takes_part_with_the_same_probability():
    names, mechanism = [f"c{i}" for i in range(40)], private_mean(rate=0.3)
    rounds = [mechanism.participants(names, number) for number in range(500)]
    taken = np.array([[name in chosen for name in names] for chosen in rounds])
    assert stats.binomtest(int(taken.sum()), taken.size, 0.3).pvalue > ERROR
    observed = np.bincount(taken.sum(1), minlength=41)  # a random number: not always 12
    pooled = [observed[:8].sum(), *observed[8:17], observed[17:].sum()]
    expected = stats.binom(40, 0.3).pmf(np.arange(41)) * 500
    expected = [expected[:8].sum(), *expected[8:17], expected[17:].sum()]
    assert stats.chisquare(pooled, expected).pvalue > ERROR
    assert private_mean(rate=1.0).participants(names, 1) == names


@pytest.mark.parametrize("groups", [1, 3])
@pytest.mark.parametrize(("noise", "clients"), [(0.6, 1000), (1.0, 50), (4.8, 5)])
def test_updates_and_statements_cost_the_epsilon_of_the_whole_round(noise, clients, groups):
    split = split_noise(noise, clients, groups)
    # Statements are in -1/2 .. 1/2, so one client moves G of them by sqrt(G) / 2.
    both = [Gaussian(split.updates, count=30), Gaussian(2 * split.statements / math.sqrt(groups), count=30)]
    assert epsilon_of(both, 1e-5) == pytest.approx(epsilon_of([Gaussian(noise, count=30)], 1e-5), rel=1e-6)
    assert split.updates <= noise / math.sqrt(1 - LARGEST_PART) * (1 + 1e-12)
    assert split.statements >= 0.05 * clients


@pytest.mark.parametrize("quantile", [0.2, 0.5, 0.8])
def test_the_clip_tracks_the_quantile_of_the_norms(quantile):
    norms = stats.lognorm(0.8, scale=0.03)
    mechanism = private_mean(UpdateSpec({"w": TensorSpec((1,), torch.float32)}), noise=0.8, quantile=quantile, rate=0.5)
    generator, state, clips = np.random.default_rng(2), {}, []
    for number in range(200):
        clip = mechanism.clips(state)["delta"]
        clips.append(clip)
        drawn = norms.rvs(generator.binomial(200, 0.5), random_state=generator)
        context = UpdateContext("c", number, 0, {"delta": clip})
        updates = [
            ClipUpdates(adaptive=True).apply(Update("c", {"w": torch.tensor([norm])}, 1, 1.0, 0.0), context)
            for norm in drawn.astype(np.float32)
        ]
        _, state = release(mechanism, updates, clients=200, clips={"delta": clip}, round_number=number)
    assert clips[0] == 1.0
    shares = norms.cdf(np.array(clips[100:]))
    assert abs(shares.mean() - quantile) < 0.03
    assert shares.std() < 0.05


def test_without_noise_the_next_clip_is_that_of_the_paper():
    mechanism, updates = private_mean(quantile=0.7), clipped_updates(3, 20, adaptive=True)
    _, state = release(mechanism, updates)
    for group in GROUPS:
        within = np.mean([float(update.message[f"clipping/within/{group}"]) for update in updates])
        expected = CLIPS[group] * math.exp(-0.2 * (within - 0.7))
        assert float(state[STATE + group]) == pytest.approx(expected, rel=1e-6)
    assert mechanism.clips(state) == {group: float(state[STATE + group]) for group in GROUPS}
    assert next_clips({"delta": 1.0}, {"delta": -3.0}, 0.5) == {"delta": math.exp(0.1)}


def test_a_fixed_clip_does_not_change_and_the_state_of_the_algorithm_is_apart():
    mechanism = private_mean(noise=1.0, clip=0.3)
    clips = mechanism.clips({"velocity": torch.ones(2)})
    assert clips == dict.fromkeys(GROUPS, 0.3)
    _, state = release(mechanism, [], clips=clips)
    assert mechanism.clips(state) == clips
    assert algorithm_state({"velocity": torch.ones(2), **state}).keys() == {"velocity"}


def test_the_relative_noise_is_that_of_drawn_noise():
    spec = UpdateSpec({"w": TensorSpec((900,), torch.float32)})
    mechanism = private_mean(spec, noise=2.0, rate=0.5, clip=0.1)
    lengths = [
        float(release(mechanism, [], clips={"delta": 0.1}, round_number=number)[0].delta["w"].norm()) / 0.1
        for number in range(200)
    ]
    assert mechanism.relative_noise(20) == pytest.approx(2.0 * 30 / 10)
    assert np.mean(lengths) == pytest.approx(mechanism.relative_noise(20), rel=0.02)


def test_variances_have_a_lower_bound():
    weights = {"a.running_var": torch.tensor([-1.0, 2.0]), "a.running_mean": torch.tensor([-1.0])}
    floored = floor_variances(weights, 0.5)
    assert floored["a.running_var"].tolist() == [0.5, 2.0]
    assert floored["a.running_mean"].tolist() == [-1.0]
