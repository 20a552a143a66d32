"""The neighbour graph: its size for stated probabilities, and sums that cannot be split."""

from __future__ import annotations

from collections.abc import Collection
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedul.privacy.secure_aggregation.messages import digest
from fedul.privacy.secure_aggregation.neighbours import (
    COLLUDING,
    FEWEST_FOR_GRAPH,
    LOST,
    GraphSize,
    Neighbourhoods,
    graph_size,
)

from ...worlds import repeatable, seeds
from .protocol import names


def graph(count: int, seed: int = 0, size: GraphSize | None = None) -> Neighbourhoods:
    found = Neighbourhoods.of(tuple(names(count)), int(0.7 * count), digest("test", bytes([seed % 256])))
    return found if size is None else Neighbourhoods(found.sites, found.order, size)


def parts(drawn: Neighbourhoods, sites: Collection[str]) -> int:
    """Return the number of connected parts of the graph with these sites only."""
    left, count = set(sites), 0
    while left:
        count += 1
        open_ = [left.pop()]
        while open_:
            near = set(drawn.neighbours(open_.pop())) & left
            left -= near
            open_ += near
    return count


@pytest.mark.parametrize("count", [3, 5, 19])
def test_few_sites_are_all_neighbours(count: int) -> None:
    drawn = graph(count)
    for name in names(count):
        assert drawn.neighbours(name) == tuple(other for other in names(count) if other != name)
    assert drawn.size.threshold == int(0.7 * count)


@pytest.mark.parametrize("count", [20, 21, 50, 200])
def test_from_twenty_sites_on_every_site_has_as_many_neighbours_and_is_theirs(count: int) -> None:
    drawn = graph(count)
    assert drawn.size.neighbours < count - 1
    for name in names(count):
        near = drawn.neighbours(name)
        assert len(near) == len(set(near)) == drawn.size.neighbours
        assert name not in near
        assert all(name in drawn.neighbours(other) for other in near)


def test_the_order_follows_from_all_keys_and_from_nothing_else() -> None:
    assert graph(50, 1) == graph(50, 1)
    orders = [np.argsort(graph(50, seed).order) for seed in range(200)]
    # The place of a site is uniform: mean 24.5, standard error sqrt((50^2 - 1) / 12 / 200) = 1.02; 6 of these.
    assert np.abs(np.mean(orders, axis=0) - 24.5).max() < 6 * 1.02


@pytest.mark.parametrize("count", [20, 33, 50, 100, 200])
def test_the_coordinator_cannot_collect_enough_shares_of_both_secrets(count: int) -> None:
    size = graph_size(count, int(0.7 * count))
    # Every honest holder reveals one of the two, colluding ones reveal both.
    assert 2 * size.threshold > size.neighbours + 1 + size.colluding


@pytest.mark.parametrize("count", [20, 50, 200])
def test_the_stated_bounds_hold_in_a_simulation_of_random_places(count: int) -> None:
    """Colluding and lost sites in random places exceed the bounds with less than one in a million: never in 2000."""
    size, generator = graph_size(count, int(0.7 * count)), np.random.default_rng(count)
    for _ in range(2000):
        place = generator.permutation(count)
        runs = np.stack([np.arange(size.neighbours) + start for start in range(count)]) % count
        colluding = (place < int(COLLUDING * count))[runs].sum(1)
        present = (place >= int(LOST * count))[runs].sum(1)
        assert colluding.max() <= size.colluding
        assert present.min() >= size.threshold


def test_the_size_is_as_documented() -> None:
    assert FEWEST_FOR_GRAPH == 20
    assert graph_size(20, 14) == GraphSize(14, 10, 4)
    assert graph_size(200, 140) == GraphSize(122, 82, 40)
    assert graph_size(1000, 700) == GraphSize(398, 275, 150)


@repeatable
@given(seeds, st.integers(6, 14), st.sampled_from([2, 4, 6]), st.integers(0, 2), st.data())
def test_survivors_are_safe_only_if_no_colluding_sites_among_them_split_the_sum(
    seed: int, count: int, k: int, colluding: int, data: st.DataObject
) -> None:
    """By brute force: whichever c of the survivors collude, those of the honest ones are connected."""
    if k >= count - 1:
        return
    drawn = graph(count, seed, GraphSize(k, 1, colluding))
    survivors = data.draw(st.sets(st.sampled_from(names(count)), min_size=1))
    most = min(colluding, len(survivors))
    splits = any(
        parts(drawn, survivors - set(some)) > 1
        for number in range(most + 1)
        for some in combinations(sorted(survivors), number)
    )
    if drawn.is_safe(survivors):
        assert not splits


def test_survivors_without_two_runs_of_neighbours_are_not_safe() -> None:
    drawn = graph(50, size=GraphSize(8, 5, 0))
    circle = [drawn.sites[number] for number in drawn.order]
    kept_apart = circle[4:25] + circle[29:]
    assert parts(drawn, kept_apart) == 2
    assert not drawn.is_safe(kept_apart)
    assert drawn.is_safe(circle[4:25] + circle[28:])
