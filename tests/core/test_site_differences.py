"""The test whether sites differ keeps its level, finds shifts, and says when it cannot tell."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import fedul
from fedul.core import SIGNIFICANCE, Federation, Matrix, UnlabeledSets
from fedul.core.site_adjustment import Columns
from fedul.core.site_differences import compare_sites

from ..worlds import random_priors

FEATURES: Columns = dict.fromkeys(range(3))
EVEN = np.full(3, 1 / 3)
CENTRES = np.array([[2.0, 0.0, -1.0], [0.0, 1.5, 0.5], [-1.5, -1.0, 0.0]])


def world(
    seed: int,
    *,
    clients: int = 4,
    sets: int = 6,
    sizes: tuple[int, int] = (20, 200),
    scales: Sequence[float] = (1, 1, 1),
    set_spread: float = 0.0,
    shift: float = 0.0,
    priors: Matrix | None = None,
) -> list[UnlabeledSets]:
    """Return clients with Gaussian rows of three classes; sets have sizes that are uniform on a log scale."""
    generator, made = np.random.default_rng(seed), []
    for c in range(clients):
        table = random_priors(generator, sets, 3, purity=0.3) if priors is None else priors[[c] * sets]
        counts = np.exp(generator.uniform(*np.log(sizes), sets)).round().astype(int)
        numbers = np.repeat(np.arange(sets), counts)
        labels = (generator.uniform(size=(len(numbers), 1)) > table.cumsum(axis=1)[numbers, :2]).sum(axis=1)
        rows = CENTRES[labels] + np.array(scales)[labels, None] * generator.normal(size=(len(numbers), 3))
        rows += set_spread * generator.normal(size=(sets, 3))[numbers] + shift * generator.normal(size=3)
        made.append(UnlabeledSets.from_arrays(f"c{c}", rows, numbers, table))
    return made


def rejections(count: int, **options: Any) -> float:
    """Return the share of worlds in which sites are found to differ."""
    found = [compare_sites(world(seed, **options), EVEN, FEATURES).p_value for seed in range(count)]
    return float(np.mean([p is not None and p < SIGNIFICANCE for p in found]))


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"sizes": (2, 1000)},
        {"sizes": (1, 5), "sets": 30},
        {"scales": (1, 3, 0.3), "sizes": (5, 400)},
        {"clients": 2, "sets": 3},
        {"clients": 12, "sets": 4, "sizes": (10, 60)},
        {"set_spread": 0.3, "sizes": (20, 100)},
    ],
    ids=["usual", "different sizes", "tiny sets", "different variances", "few sets", "many clients", "sets vary"],
)
def test_sites_that_differ_in_class_mix_only_are_rarely_found_to_differ(options: dict[str, Any]) -> None:
    worlds = 60
    limit = SIGNIFICANCE + 2.5 * np.sqrt(SIGNIFICANCE * (1 - SIGNIFICANCE) / worlds)
    assert rejections(worlds, **options) <= limit


def test_shifted_sites_are_found_and_the_feature_is_named() -> None:
    assert rejections(10, shift=0.3) == 1
    clients = world(0)
    clients[0].inputs[:, 1] += 1
    found = compare_sites(clients, EVEN, FEATURES)
    assert found.p_value is not None
    assert found.p_value < 0.01
    assert found.place == 1


def test_the_test_does_not_depend_on_the_scale_of_a_feature() -> None:
    one, other = world(0, shift=0.1), world(0, shift=0.1)
    for client in other:
        client.inputs.mul_(1000).add_(7)
    first, second = (compare_sites(clients, EVEN, FEATURES).p_value for clients in (one, other))
    assert first == pytest.approx(second, rel=1e-6)


def test_sites_with_a_constant_class_mix_are_not_told_apart() -> None:
    """As in natural data where each island has species of its own: a difference may be one of class."""
    mixes = np.array([[1.0, 0.0, 0.0], [0.3, 0.0, 0.7], [0.4, 0.6, 0.0]])
    for shift in (0.0, 2.0):
        clients = world(0, clients=3, priors=mixes, shift=shift)
        found = compare_sites(clients, EVEN, FEATURES)
        assert found.undetermined == ("c0", "c1", "c2")
        with pytest.warns(UserWarning, match="off, because it cannot be told whether sites differ") as caught:
            federation = fedul.adjust_sites(Federation(clients, "abc"), "auto")
        assert len(caught) == 1
        assert federation.site_adjustments is None


def test_auto_adjusts_sites_that_differ_and_no_others() -> None:
    for shift, message in ((0.0, "off, because class priors explain"), (1.0, r"on, because sites differ in column")):
        with pytest.warns(UserWarning, match=f"site-adjustment auto: {message}"):
            federation = fedul.adjust_sites(Federation(world(1, shift=shift), "abc"), "auto")
        assert (federation.site_adjustments is not None) == (shift > 0)


def test_one_client_is_left_as_it_is() -> None:
    alone = Federation(world(0, clients=1), "abc")
    with pytest.warns(UserWarning, match="there is one client"):
        assert fedul.adjust_sites(alone, "auto") is alone
    assert fedul.adjust_sites(alone, "off") is alone
