"""Column statistics add up, independent of how the rows are cut into blocks."""

from __future__ import annotations

import math

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from fedul.data.files.schema.column_stats import MAX_WORDS, ColumnStats, as_words, column_stats

from ...worlds import repeatable

cells = st.one_of(
    st.none(),
    st.floats(-1e6, 1e6).map(lambda x: f"{x:.4f}"),
    st.integers(-1000, 1000).map(str),
    st.sampled_from(["flu", "cold", " cold ", "1e3", "E11"]),
)


@repeatable
@given(st.lists(cells, max_size=30), st.integers(0, 30))
def test_facts_of_blocks_add_up_to_those_of_the_whole(column: list[str | None], cut: int) -> None:
    whole = column_stats(pa.array(column, pa.string()))
    parts = column_stats(pa.array(column[:cut], pa.string())) + column_stats(pa.array(column[cut:], pa.string()))
    assert_allclose([whole.mean, whole.deviation], [parts.mean, parts.deviation], rtol=1e-9, atol=1e-6)
    for name in ("rows", "missing", "numbers", "low", "high", "whole", "words", "many", "strange"):
        assert getattr(whole, name) == getattr(parts, name)


def test_moments_are_those_of_the_numbers_that_are_there() -> None:
    facts = column_stats(pa.array(["1", "", " 4 ", "x", None, "-2.5e0"]).cast(pa.string()))
    assert (facts.rows, facts.missing, facts.numbers, facts.whole) == (6, 1, 3, False)
    assert_allclose([facts.mean, facts.deviation], [np.mean([1, 4, -2.5]), np.std([1, 4, -2.5])])
    assert facts.words == {"": 1, "x": 1}


@pytest.mark.parametrize(
    "column",
    [
        pa.array([1, None, 3], pa.int32()),
        pa.array([1.0, math.nan, 3.0]),
        pa.array(["1", None, "3"], pa.large_string()),
        pa.array(["1", None, "3"]).dictionary_encode(),
    ],
)
def test_numbers_are_numbers_however_they_are_stored(column: pa.Array) -> None:
    facts = column_stats(column)
    assert (facts.numbers, facts.missing, facts.mean) == (2, 1, 2)


def test_a_column_of_too_many_words_is_not_counted_to_the_end() -> None:
    facts = column_stats(pa.array([f"w{i}" for i in range(MAX_WORDS)])) + column_stats(pa.array(["one more"]))
    assert facts.many
    assert not facts.words


def test_nothing_is_known_of_nothing() -> None:
    assert ColumnStats() + ColumnStats() == ColumnStats() == column_stats(pa.array([], pa.string()))


def test_codes_are_words_and_keep_their_spelling() -> None:
    assert as_words(pa.array([1.0, 2.5, None])).to_pylist() == ["1", "2.5", None]
    assert as_words(pa.array(["01", " x ", "2"])).to_pylist() == ["1", "x", "2"]
    assert column_stats(pa.array([3, 3, 7]), categorical=True).words == {"3": 2, "7": 1}
