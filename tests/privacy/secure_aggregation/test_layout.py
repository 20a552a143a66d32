"""Fixed-point numbers with declared ranges: sums equal those of the numbers within a step, and never overflow."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedul.privacy.secure_aggregation.layout import CLIPPED, Field, VectorLayout
from fedul.privacy.secure_aggregation.masks import Words
from fedul.privacy.secure_aggregation.problems import NotFinite, Refusal

from ...worlds import repeatable, seeds


def summed(layout: VectorLayout, values: list[dict[str, np.ndarray]], weights: list[float] | None = None) -> Words:
    total = Words.zeros(layout.narrow, layout.wide)
    for each, weight in zip(values, weights or [1.0] * len(values), strict=True):
        total.add(layout.encode(each, weight).words)
    return total


@repeatable
@given(seeds, st.integers(1, 300), st.sampled_from([32, 64]), st.floats(1e-3, 1e6))
def test_a_sum_differs_from_that_of_the_numbers_by_half_a_step_for_every_site(
    seed: int, sites: int, bits: int, limit: float
) -> None:
    generator = np.random.default_rng(seed)
    layout = VectorLayout((Field("x", 5, limit, sites * limit, bits),), sites)
    values = [{"x": generator.uniform(-limit, limit, 5)} for _ in range(sites)]
    found = layout.decode(summed(layout, values))["x"]
    step = layout.step(layout.fields[0])
    exact = np.array([math.fsum(each["x"][i] for each in values) for i in range(5)])
    # The second term is the rounding of float64 in 64-bit words.
    assert np.abs(found - exact).max() <= sites / 2 * step + 4e-16 * sites * limit * sites


@repeatable
@given(st.integers(1, 2**16), st.sampled_from([32, 64]), st.floats(1e-6, 1e12), st.sampled_from([-1.0, 1.0]))
def test_a_sum_of_the_largest_values_of_all_sites_does_not_overflow(
    sites: int, bits: int, limit: float, sign: float
) -> None:
    layout = VectorLayout((Field("x", 1, limit, sites * limit, bits),), sites)
    one = layout.encode({"x": np.array([sign * 10 * limit])})
    assert one.clipped == 1
    words = one.words.narrow if bits == 32 else one.words.wide
    total = Words(one.words.narrow.copy(), one.words.wide.copy())
    (total.narrow if bits == 32 else total.wide)[:] = words * words.dtype.type(sites)
    assert layout.decode(total)["x"][0] == pytest.approx(sign * sites * limit, rel=1e-3)


@repeatable
@given(seeds, st.integers(1, 20))
def test_a_step_is_at_most_four_parts_of_the_range_of_the_sum(seed: int, sites: int) -> None:
    total = float(np.random.default_rng(seed).uniform(1e-3, 1e6))
    for bits in (32, 64):
        layout = VectorLayout((Field("x", 1, total, total, bits),), sites)
        step = layout.step(layout.fields[0])
        assert step == 2.0 ** round(math.log2(step))
        assert total / 2 ** (bits - 1) < step <= 2.01 * total / 2 ** (bits - 1)


def test_weighted_fields_are_multiplied_by_the_weight_after_they_were_clipped() -> None:
    layout = VectorLayout(
        (Field("w", 2, 1.0, 100.0, weighted=True), Field("n", 1, 100.0, 200.0), Field(CLIPPED, 1, 10.0, 20.0)), 2
    )
    sums = summed(
        layout,
        [{"w": np.array([0.5, 9.0]), "n": np.array([7.0])}, {"w": np.array([-0.25, 0.0]), "n": np.array([1.0])}],
        [10.0, 4.0],
    )
    found = layout.decode(sums)
    np.testing.assert_allclose(found["w"], [4.0, 10.0], atol=1e-9)
    assert found["n"][0] == 8.0
    assert found[CLIPPED][0] == 1.0


def test_a_weight_above_the_declared_total_is_limited_to_it() -> None:
    layout = VectorLayout((Field("w", 1, 1.0, 100.0, weighted=True),), 2)
    assert layout.decode(layout.encode({"w": np.array([1.0])}, weight=1e9).words)["w"][0] == pytest.approx(100.0)


def test_counts_are_exact() -> None:
    layout = VectorLayout((Field("rows", 3, 2.0**40, 2.0**44),), 16)
    values = [{"rows": np.array([1.0, 2.0**40 - 1, float(i)])} for i in range(16)]
    assert layout.decode(summed(layout, values))["rows"].tolist() == [16.0, 16 * (2.0**40 - 1), 120.0]


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_values_that_are_not_finite_are_not_encoded(value: float) -> None:
    layout = VectorLayout((Field("delta", 2, 4.0, 8.0),), 2)
    with pytest.raises(NotFinite, match="'delta' of the update is not finite"):
        layout.encode({"delta": np.array([0.0, value])})


@pytest.mark.parametrize(
    "field",
    [Field("x", 1, 0.0, 1.0), Field("x", 1, math.inf, 1.0), Field("x", 1, 1.0, 1.0, 16), Field("y", 1, 1.0, 1.0)],
)
def test_a_layout_that_is_not_valid_is_refused(field: Field) -> None:
    with pytest.raises(Refusal, match="layout of sums is not valid"):
        VectorLayout((field, Field("y", 1, 1.0, 1.0)), 2)


def test_layouts_with_another_range_have_another_digest() -> None:
    one, other = (VectorLayout((Field("x", 1, limit, 8.0),), 2) for limit in (1.0, 2.0))
    assert one.digest != other.digest
    assert VectorLayout.from_bytes(one.to_bytes()) == one
