"""Updates as vectors: the mean of what sites sent equals the plain one within one quantisation step."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.testing import assert_close

from fedul.algorithms import make_algorithm
from fedul.algorithms.mean import mean_update
from fedul.core import Update, UpdateSpec, Weights
from fedul.privacy.secure_aggregation.layout import Field
from fedul.privacy.secure_aggregation.masks import Words
from fedul.privacy.secure_aggregation.problems import NotFinite
from fedul.privacy.secure_aggregation.update_layout import LOSS_RANGE, UpdateLayout

from ...factories import random_updates, random_weights
from ...worlds import repeatable, seeds

LINEAR = ["fedavg", "fedprox", "fednova", "scaffold", "fedbn", "fedavgm", "fedadam", "fedyogi"]


def layout_for(updates: list[Update], start: Weights, weighting: str = "uniform", **changes: object) -> UpdateLayout:
    parameters = ("a", "b")
    message = {name: spec for name, spec in UpdateSpec.of(start, parameters).delta.items() if updates[0].message}
    spec = UpdateSpec.of(start, parameters, message)
    options = {"limit": 8.0, "share": 0.7, "total_rows": sum(update.rows for update in updates), **changes}
    return UpdateLayout(spec, len(updates), weighting, **options)  # type: ignore[arg-type]


def total(layout: UpdateLayout, updates: list[Update]) -> Words:
    sums = Words.zeros(layout.vector.narrow, layout.vector.wide)
    for update in updates:
        sums.add(layout.encode(update).words)
    return sums


@settings(repeatable, max_examples=30)
@given(seeds, st.integers(1, 30), st.sampled_from(LINEAR), st.sampled_from(["uniform", "rows"]))
def test_the_mean_equals_the_plain_one_within_one_quantisation_step(
    seed: int, clients: int, name: str, weighting: str
) -> None:
    generator = np.random.default_rng(seed)
    start = random_weights(generator)
    updates = random_updates(generator, start, clients)
    if name == "scaffold":
        weighting = "uniform"
        updates = [replace(update, message={k: 0.5 * d for k, d in update.delta.items()}) for update in updates]
    algorithm = make_algorithm(name, {"weighting": weighting})
    prepared = [algorithm.prepare(start, update) for update in updates]
    plain = mean_update(prepared, weighting)
    layout = layout_for(updates, start, weighting)
    found = layout.decode(total(layout, prepared), clients)
    weight = sum(update.rows for update in updates) if weighting == "rows" else clients
    tolerance = layout.step * clients / 2 / weight  # half a step of every client
    assert weighting == "rows" or tolerance <= layout.step
    assert_close(found.mean.delta, plain.delta, rtol=1e-12, atol=tolerance * 1.001)
    for kind in ("buffers", "message"):
        assert_close(dict(getattr(found.mean, kind)), dict(getattr(plain, kind)), rtol=1e-6, atol=1e-6)
    assert found.mean.steps == pytest.approx(plain.steps, abs=1e-6)
    assert (found.rows, found.mean.clients) == (sum(update.rows for update in updates), clients)
    weights, state = algorithm.advance(start, {}, plain, clients)
    secure, secure_state = algorithm.advance(start, {}, found.mean, clients)
    assert weights.keys() == secure.keys()
    assert state.keys() == secure_state.keys()


def test_a_buffer_that_did_not_change_counts_as_zero() -> None:
    generator = np.random.default_rng(0)
    start = random_weights(generator)
    one, other = random_updates(generator, start, 2)
    other = replace(other, buffers={})
    layout = layout_for([one, other], start)
    assert_close(
        layout.decode(total(layout, [one, other]), 2).mean.buffers["level"], one.buffers["level"] / 2, atol=1e-6, rtol=0
    )


@pytest.mark.parametrize(("sites", "bits"), [(5, 32), (200, 32), (500, 32), (5000, 64)])
def test_parameters_use_64_bits_where_32_are_not_precise_enough(sites: int, bits: int) -> None:
    spec = UpdateSpec.of({"a": torch.zeros(10)}, ("a",))
    layout = UpdateLayout(spec, sites, "uniform", 4.0, 0.7)
    delta = layout.vector.fields[0]
    assert (delta.name, delta.bits) == ("delta", bits)
    assert layout.step / 2 <= 2.0**-20


def test_values_outside_the_range_are_clipped_and_counted() -> None:
    start = {"a": torch.zeros(4)}
    spec = UpdateSpec.of(start, ("a",))
    layout = UpdateLayout(spec, 3, "uniform", 2.0, 0.7)
    updates = [
        Update("one", {"a": torch.tensor([1.0, 5.0, -7.0, 0.0])}, 10, 1.0, 0.5),
        Update("two", {"a": torch.tensor([1.0, 1.0, 1.0, 3.0])}, 20, 1.0, 2 * LOSS_RANGE),
        Update("three", {"a": torch.zeros(4)}, 30, 1.0, 0.5),
    ]
    found = layout.decode(total(layout, updates), 3)
    assert found.clipped == 3
    assert_close(found.mean.delta["a"], torch.tensor([2.0, 3.0, -1.0, 2.0]) / 3)
    assert found.loss == pytest.approx((0.5 * 40 + LOSS_RANGE * 20) / 60)


def test_sites_with_private_rows_report_no_loss() -> None:
    spec = UpdateSpec.of({"a": torch.zeros(1)}, ("a",))
    layout = UpdateLayout(spec, 3, "uniform", 2.0, 0.7, has_loss=False)
    found = layout.decode(layout.encode(Update("a", {"a": torch.ones(1)}, 7, 1.0, None)).words, 1)
    assert (found.loss, found.rows) == (None, 7)
    assert "loss" not in [field.name for field in layout.vector.fields]


def test_an_update_that_is_not_finite_is_not_encoded() -> None:
    spec = UpdateSpec.of({"a": torch.zeros(1)}, ("a",))
    with pytest.raises(NotFinite):
        UpdateLayout(spec, 3, "uniform", 2.0, 0.7).encode(Update("a", {"a": torch.tensor([float("nan")])}, 1, 1.0, 0.0))


def test_further_fields_are_summed_beside_the_update() -> None:
    spec = UpdateSpec.of({"a": torch.zeros(1)}, ("a",))
    layout = UpdateLayout(spec, 3, "uniform", 2.0, 0.7, extra=(Field("held-out", 2, 100.0, 300.0),))
    update = Update("a", {"a": torch.ones(1)}, 1, 1.0, 0.0)
    sums = Words.zeros(layout.vector.narrow, layout.vector.wide)
    for values in ([1.0, 2.0], [3.0, 4.0], [5.0, 6.0]):
        sums.add(layout.encode(update, {"held-out": np.array(values)}).words)
    np.testing.assert_allclose(layout.decode(sums, 3).extra["held-out"], [9.0, 12.0], atol=1e-9)
