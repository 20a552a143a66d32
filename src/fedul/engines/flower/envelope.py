"""A letter as it travels: a JSON text and bytes, in one record of Flower. What is in it, `letters` knows.

Nothing here needs PyTorch: the process that Flower starts for a message hands it on unopened.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from flwr.app import RecordDict

QUESTIONS = ("hello", "join", "train", "judge", "evaluate")
"""What a coordinator may ask; `site.ANSWERS` has an answer to each."""


class Unreadable(ValueError):
    """A letter that is not one."""


@dataclass(frozen=True)
class Envelope:
    """A letter that is closed."""

    notes: str  # a JSON object
    tensors: bytes = b""  # a safetensors document, or nothing


def apology(problem: str, site: str, *, again: bool = False) -> Envelope:
    """An answer that says why there is none, and whether it may be worth while to ask again."""
    return Envelope(json.dumps({"problem": problem, "name": site, "again": again}))


def posted(envelope: Envelope) -> RecordDict:
    """The envelope as Flower carries it."""
    import numpy as np
    from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict

    content = np.frombuffer(envelope.tensors, dtype=np.uint8)
    tensors = ArrayRecord({"safetensors": Array(content)})
    return RecordDict({"notes": ConfigRecord({"json": envelope.notes}), "tensors": tensors})


def received(record: RecordDict, most_bytes: int | None = None) -> Envelope:
    """The envelope of a record; one that is none, or larger than that, is Unreadable."""
    try:
        notes, content = record["notes"]["json"], record["tensors"]["safetensors"]
        size = len(content.data)  # type: ignore[union-attr]
    except (KeyError, TypeError, AttributeError):
        raise Unreadable("it is not a letter of fedul") from None
    if most_bytes is not None and size > most_bytes:
        raise Unreadable(f"it has {size:,} bytes, where at most {most_bytes:,} are expected")
    try:
        tensors = content.numpy().tobytes()  # type: ignore[union-attr]
    except (TypeError, ValueError) as problem:
        raise Unreadable(f"it is damaged ({str(problem)[:120]})") from None
    if not isinstance(notes, str):
        raise Unreadable("it is not a letter of fedul")
    return Envelope(notes, tensors)
