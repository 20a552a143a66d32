"""The declaration of an update accepts what was declared and nothing else."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from fedul.core import TensorSpec, Update, UpdateSpec, Weights

from ..worlds import repeatable

GROUPS = ("delta", "buffers", "message")
DTYPES = [torch.float16, torch.float32, torch.float64, torch.int64, torch.bool]
specs = st.builds(TensorSpec, st.lists(st.integers(0, 3), max_size=3).map(tuple), st.sampled_from(DTYPES))
spec_groups = st.dictionaries(st.text(min_size=1, max_size=5), specs, max_size=4)
declarations = st.builds(UpdateSpec, spec_groups, spec_groups, spec_groups)


def tensor_of(spec: TensorSpec) -> Tensor:
    return torch.zeros(spec.shape, dtype=spec.dtype)


def update_of(spec: UpdateSpec) -> Update:
    """Return an update that holds everything that is declared."""
    delta, buffers, message = ({k: tensor_of(s) for k, s in getattr(spec, group).items()} for group in GROUPS)
    return Update("north", delta, 3, 1, 0.5, buffers, message)


@repeatable
@given(declarations)
def test_an_update_as_declared_has_no_problem(spec: UpdateSpec) -> None:
    assert spec.problem(update_of(spec)) == ""


@repeatable
@given(declarations)
def test_the_size_is_that_of_the_tensors(spec: UpdateSpec) -> None:
    update = update_of(spec)
    assert spec.nbytes == sum(t.nbytes for group in GROUPS for t in getattr(update, group).values())


@repeatable
@given(declarations, st.sampled_from(GROUPS), st.data())
def test_a_tensor_of_another_shape_or_type_is_named(spec: UpdateSpec, group: str, data: st.DataObject) -> None:
    tensors: Weights = getattr(update_of(spec), group)
    if not tensors:
        return
    name = data.draw(st.sampled_from(sorted(tensors)))
    other = data.draw(specs.filter(lambda each: each != getattr(spec, group)[name]))
    update = replace(update_of(spec), **{group: {**tensors, name: tensor_of(other)}})
    assert spec.problem(update).startswith(f"'{name}' h")


@repeatable
@given(declarations, st.sampled_from(GROUPS), st.text(min_size=6, max_size=200))
def test_an_undeclared_tensor_is_named(spec: UpdateSpec, group: str, name: str) -> None:
    update = update_of(spec)
    update = replace(update, **{group: {**getattr(update, group), name: torch.zeros(2)}})
    assert spec.problem(update).startswith(f"'{name[:80]}' is not a declared ")


@repeatable
@given(declarations, st.sampled_from(GROUPS), st.data())
def test_a_missing_tensor_is_named_unless_it_is_a_buffer(spec: UpdateSpec, group: str, data: st.DataObject) -> None:
    tensors: Weights = getattr(update_of(spec), group)
    if not tensors:
        return
    name = data.draw(st.sampled_from(sorted(tensors)))
    update = replace(update_of(spec), **{group: {k: t for k, t in tensors.items() if k != name}})
    label = {"delta": "parameter", "message": "message tensor"}.get(group)
    assert spec.problem(update) == (f"the {label} '{name}' is missing" if label else "")


def test_the_changes_of_integer_buffers_are_declared_as_float64() -> None:
    weights = {"w": torch.zeros(2), "mean": torch.zeros(2), "count": torch.tensor(3)}
    spec = UpdateSpec.of(weights, ["w"], {"norm": TensorSpec((), torch.float32)})
    assert spec.delta == {"w": TensorSpec((2,), torch.float32)}
    assert spec.buffers == {"mean": TensorSpec((2,), torch.float32), "count": TensorSpec((), torch.float64)}
    assert spec.nbytes == 8 + 8 + 8 + 4


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_the_declaration_of_a_tensor_accepts_it(dtype: torch.dtype) -> None:
    tensor = torch.zeros(2, 3, dtype=dtype)
    assert TensorSpec.of(tensor).problem(tensor) == ""
