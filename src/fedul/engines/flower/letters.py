"""What coordinator and sites send one another: a letter is a JSON document and tensors, in one record of Flower.

Tensors travel as one safetensors document: types are kept to the bit, nothing is unpickled, and Flower has one object
to move instead of one for each layer.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from torch import Tensor

if TYPE_CHECKING:
    from flwr.app import RecordDict

NOTES_BYTES = 16 * 2**20
"""The longest JSON document that is read."""


MOST_DIGITS = 18
"""Of a whole number: more would not fit into 64 bits, or into a float."""


class Unreadable(ValueError):
    """A letter that is not one."""


@dataclass(frozen=True, eq=False)
class Letter:
    """A question or an answer."""

    notes: Mapping[str, Any] = field(default_factory=dict)
    tensors: Mapping[str, Tensor] = field(default_factory=dict)

    def group(self, name: str) -> dict[str, Tensor]:
        """The tensors whose names begin with `name/`, without it."""
        return {key.removeprefix(f"{name}/"): t for key, t in self.tensors.items() if key.startswith(f"{name}/")}


def grouped(**groups: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Tensors of several groups under names that tell them apart."""
    return {f"{group}/{name}": tensor for group, tensors in groups.items() for name, tensor in tensors.items()}


def packed(letter: Letter) -> RecordDict:
    """The letter as Flower carries it."""
    from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict
    from safetensors.torch import save

    flat = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in letter.tensors.items()}
    content = np.frombuffer(save(flat), dtype=np.uint8)
    notes = json.dumps(dict(letter.notes), allow_nan=False)
    return RecordDict({"notes": ConfigRecord({"json": notes}), "tensors": ArrayRecord({"safetensors": Array(content)})})


def opened(record: RecordDict, most_bytes: int) -> Letter:
    """The letter of a record; one that is too large or damaged is Unreadable."""
    from safetensors import SafetensorError
    from safetensors.torch import load

    try:
        text = record["notes"]["json"]
        content = record["tensors"]["safetensors"]
        size = len(content.data)  # type: ignore[union-attr]
    except (KeyError, TypeError, AttributeError):
        raise Unreadable("it is not a letter of fedul") from None
    if size > most_bytes or not isinstance(text, str) or len(text) > NOTES_BYTES:
        raise Unreadable(f"it has {size:,} bytes, where at most {most_bytes:,} are expected")
    try:
        notes = json.loads(text, parse_constant=_no_number, parse_float=_float, parse_int=_int)
        tensors = load(content.numpy().tobytes())  # type: ignore[union-attr]
    except (SafetensorError, ValueError, TypeError, RecursionError) as problem:
        raise Unreadable(f"it is damaged ({str(problem)[:120]})") from None
    if not isinstance(notes, dict):
        raise Unreadable("its notes are no JSON object")
    return Letter(notes, tensors)


def _float(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text[:20]} is too large")
    return number


def _int(text: str) -> int:
    if len(text) > MOST_DIGITS:
        raise ValueError(f"{text[:20]} is too large")
    return int(text)


def _no_number(constant: str) -> float:
    raise ValueError(f"{constant} is no number")
