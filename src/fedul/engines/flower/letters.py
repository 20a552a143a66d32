"""What coordinator and sites send one another: a letter is a JSON document and tensors.

Tensors travel as one safetensors document: types are kept to the bit, nothing is unpickled, and Flower has one object
to move instead of one for each layer.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from torch import Tensor

from fedul.engines.flower.envelope import Envelope, Unreadable, posted, received

if TYPE_CHECKING:
    from flwr.app import RecordDict

NOTES_BYTES = 16 * 2**20
"""The longest JSON document that is read."""


MOST_DIGITS = 18
"""Of a whole number: more would not fit into 64 bits, or into a float."""


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


def sealed(letter: Letter) -> Envelope:
    """The letter, closed."""
    from safetensors.torch import save

    flat = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in letter.tensors.items()}
    return Envelope(json.dumps(dict(letter.notes), allow_nan=False), save(flat) if flat else b"")


def unsealed(envelope: Envelope) -> Letter:
    """The letter in an envelope; one that is damaged is Unreadable."""
    from safetensors import SafetensorError
    from safetensors.torch import load

    if len(envelope.notes) > NOTES_BYTES:
        raise Unreadable(f"its notes have {len(envelope.notes):,} letters, where at most {NOTES_BYTES:,} are expected")
    try:
        notes = json.loads(envelope.notes, parse_constant=_no_number, parse_float=_float, parse_int=_int)
        tensors = load(envelope.tensors) if envelope.tensors else {}
    except (SafetensorError, ValueError, TypeError, RecursionError) as problem:
        raise Unreadable(f"it is damaged ({str(problem)[:120]})") from None
    if not isinstance(notes, dict):
        raise Unreadable("its notes are no JSON object")
    return Letter(notes, tensors)


def packed(letter: Letter) -> RecordDict:
    """The letter as Flower carries it."""
    return posted(sealed(letter))


def opened(record: RecordDict, most_bytes: int) -> Letter:
    """The letter of a record; one that is too large or damaged is Unreadable."""
    return unsealed(received(record, most_bytes))


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
