"""Clipping bounds every group of an update, whatever a client computes."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from fedul.algorithms.base import declared_update
from fedul.algorithms.fedavg import FedAvg
from fedul.algorithms.scaffold import Scaffold
from fedul.config import TrainConfig
from fedul.core import TensorSpec, Update, UpdateSpec
from fedul.errors import InputError
from fedul.privacy.clipping import GROUPS, WITHIN, ClipUpdates, clip_group, clipped_groups, group_norm
from fedul.privacy.update_chain import UpdateContext, build_update_chain

from ..factories import seeded_network
from ..worlds import repeatable, seeds


def random_update(seed, scale=1.0):
    generator = torch.Generator().manual_seed(seed)

    def draw(*shape):
        return scale * torch.randn(shape, generator=generator)

    buffers = {"1.running_mean": draw(2), "1.running_var": draw(2), "1.num_batches_tracked": draw().double()}
    return Update("north", {"w": draw(3, 2), "b": draw(4)}, 9, 3.0, 0.5, buffers, {"control.w": draw(3, 2)})


def context(**clips):
    return UpdateContext("north", 1, 0, clips)


@repeatable
@given(seeds, st.floats(-30, 30), st.tuples(*[st.floats(1e-3, 1e3)] * 3))
def test_no_group_is_longer_than_its_clip(seed, exponent, clips):
    clips = dict(zip(GROUPS, clips, strict=True))
    sent = ClipUpdates().apply(random_update(seed, 10.0**exponent), context(**clips))
    for group, clip in clips.items():
        assert group_norm(getattr(sent, group)) <= clip


@repeatable
@given(seeds, st.floats(0.01, 100))
def test_a_group_keeps_its_direction_and_is_unchanged_below_its_clip(seed, clip):
    delta = random_update(seed).delta
    norm, (clipped, was_within) = group_norm(delta), clip_group(delta, clip)
    assert was_within == (norm <= clip)
    factor = min(1.0, clip / norm)
    assert all(torch.allclose(clipped[name], factor * tensor, rtol=1e-5) for name, tensor in delta.items())


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_a_group_that_is_not_finite_is_replaced_by_zeros(value):
    update = random_update(0)
    update.delta["w"][1, 1] = value
    sent = ClipUpdates(adaptive=True).apply(update, context(delta=1.0, buffers=1.0, message=1.0))
    assert all(not tensor.any() for tensor in sent.delta.values())
    assert sent.message[WITHIN + "delta"].item() == 0.0
    assert sent.message["control.w"].any()


def test_an_update_states_which_norms_are_within_the_clips():
    update = random_update(0)
    clips = {"delta": group_norm(update.delta) * 1.01, "buffers": 1e-3, "message": 1e3}
    sent = ClipUpdates(adaptive=True).apply(update, context(**clips))
    assert {group: sent.message[WITHIN + group].tolist() for group in GROUPS} == {
        "delta": [1.0],
        "buffers": [0.0],
        "message": [1.0],
    }
    assert sent.message.keys() - update.message.keys() == {WITHIN + group for group in GROUPS}


def test_counters_of_batches_are_not_sent():
    step, module = ClipUpdates(), seeded_network((2,), 3, nn.BatchNorm1d(6))
    declared = step.declare(declared_update(FedAvg(), module))
    assert {name.rpartition(".")[2] for name in declared.buffers} == {"running_mean", "running_var"}
    sent = step.apply(random_update(0), context(delta=1.0, buffers=1.0, message=1.0))
    assert set(sent.buffers) == {"1.running_mean", "1.running_var"}


def test_only_groups_with_tensors_have_a_clip():
    module = seeded_network()
    assert clipped_groups(declared_update(FedAvg(), module)) == ("delta",)
    assert clipped_groups(declared_update(Scaffold(), module)) == ("delta", "message")
    adaptive = ClipUpdates(adaptive=True).declare(declared_update(FedAvg(), module))
    assert adaptive.message == {WITHIN + "delta": TensorSpec((1,), torch.float32)}
    assert clipped_groups(adaptive) == ("delta",)
    assert clipped_groups(UpdateSpec({})) == ()


def test_an_update_without_a_clip_is_not_sent():
    with pytest.raises(InputError, match="no clip for the message"):
        ClipUpdates().apply(random_update(0), context(delta=1.0, buffers=1.0))


def test_the_chain_clips_where_clients_are_protected():
    assert build_update_chain(TrainConfig(client_dp_noise=1.0)).steps == (ClipUpdates(),)
    adaptive = TrainConfig(client_dp_epsilon=8.0, client_dp_quantile=0.5)
    assert build_update_chain(adaptive).steps == (ClipUpdates(adaptive=True),)
