"""Messages between coordinator and sites: a JSON document and tensors.

Tensors travel as one safetensors document. Their types are exact, nothing is unpickled, and Flower moves one object
instead of one per layer. Importing this module does not load PyTorch.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from fedul._utils.documents import read_document, to_document

if TYPE_CHECKING:
    from flwr.app import RecordDict
    from torch import Tensor

T = TypeVar("T")

REQUEST_KINDS = ("hello", "statistics", "aggregate", "join", "train", "evaluate_held_out", "evaluate_locally")
"""What a coordinator may request of a site."""

MAX_JSON_LENGTH = 16 * 2**20
"""Longest JSON document that is parsed, in characters."""

MAX_DIGITS = 18
"""Longest integer that is parsed; longer ones do not fit into 64 bits, or into a float."""


class UnreadableMessage(ValueError):
    """A message that is damaged, too large, or not a message of fedul."""


@dataclass(frozen=True)
class WireMessage:
    """A serialized message.

    A site has a process for every message. That process forwards the message to the site's worker process in this form,
    because loading PyTorch takes longer than most replies.

    Parameters
    ----------
    document : str
        A JSON object.
    tensors : bytes
        A safetensors document; empty without tensors.
    """

    document: str
    tensors: bytes = b""

    def to_record(self) -> RecordDict:
        """Return the content of a Flower message."""
        import numpy as np
        from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict

        array = Array(np.frombuffer(self.tensors, dtype=np.uint8))
        document = ConfigRecord({"json": self.document})
        return RecordDict({"document": document, "tensors": ArrayRecord({"safetensors": array})})

    @classmethod
    def from_record(cls, record: RecordDict, max_bytes: int | None = None) -> WireMessage:
        """Read the content of a Flower message; UnreadableMessage if it is another one, or too large."""
        try:
            document, array = record["document"]["json"], record["tensors"]["safetensors"]
            size = len(array.data)  # type: ignore[union-attr]
            too_large = max_bytes is not None and size > max_bytes
            tensors = b"" if too_large else array.numpy().tobytes()  # type: ignore[union-attr]
        except (KeyError, TypeError, AttributeError, ValueError):
            raise UnreadableMessage("it is not a message of fedul") from None
        if too_large:
            raise UnreadableMessage(f"it has {size:,} bytes, more than the limit of {max_bytes:,}")
        if not isinstance(document, str):
            raise UnreadableMessage("it is not a message of fedul")
        return cls(document, tensors)


@dataclass(frozen=True, eq=False)
class Message:
    """A request or a reply.

    Parameters
    ----------
    document : mapping
        JSON object; `protocol.documents` has its type for every kind of request and reply.
    tensors : mapping of str to Tensor
        Tensors by "group/name".
    """

    document: Mapping[str, Any] = field(default_factory=dict)
    tensors: Mapping[str, Tensor] = field(default_factory=dict)

    @classmethod
    def of(cls, document: Any, **groups: Mapping[str, Tensor]) -> Message:
        """Return a message from a dataclass and groups of tensors."""
        tensors = {f"{group}/{name}": tensor for group, each in groups.items() for name, tensor in each.items()}
        return cls(to_document(document), tensors)

    def read(self, kind: type[T]) -> T:
        """Return the document as a dataclass; UnreadableMessage, with the reason, if it does not fit."""
        try:
            return read_document(kind, self.document)
        except ValueError as problem:
            raise UnreadableMessage(f"its document is not valid: {printable(problem)}") from None

    def group(self, name: str) -> dict[str, Tensor]:
        """Return the tensors of a group by name."""
        return {key.removeprefix(f"{name}/"): t for key, t in self.tensors.items() if key.startswith(f"{name}/")}

    @property
    def tensor_bytes(self) -> int:
        """Size of the tensors."""
        return sum(tensor.nbytes for tensor in self.tensors.values())

    def serialize(self) -> WireMessage:
        """Return the message as text and bytes; ValueError if a number in the document is not finite."""
        from safetensors.torch import save

        # safetensors refuses tensors that share memory, hence the copies.
        copies = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in self.tensors.items()}
        return WireMessage(json.dumps(dict(self.document), allow_nan=False), save(copies) if copies else b"")

    @classmethod
    def deserialize(cls, wire: WireMessage) -> Message:
        """Read what `serialize` returned; UnreadableMessage if it is damaged."""
        from safetensors import SafetensorError
        from safetensors.torch import load

        if len(wire.document) > MAX_JSON_LENGTH:
            raise UnreadableMessage(
                f"its document has {len(wire.document):,} characters, more than the limit of {MAX_JSON_LENGTH:,}"
            )
        try:
            document = json.loads(
                wire.document, parse_constant=_parse_float, parse_float=_parse_float, parse_int=_parse_int
            )
            tensors = load(wire.tensors) if wire.tensors else {}
        except (SafetensorError, ValueError, TypeError, RecursionError) as problem:
            raise UnreadableMessage(f"it is damaged ({printable(problem)})") from None
        if not isinstance(document, dict):
            raise UnreadableMessage("its document is not a JSON object")
        return cls(document, tensors)


@dataclass(frozen=True)
class ErrorReply:
    """A reply that states why a request failed.

    Parameters
    ----------
    error : str
        The reason, in words that quote no data of the site.
    site : str
        Name of the site; empty if its settings file has none.
    retry : bool
        Whether the same request may succeed later.
    """

    error: str
    site: str = ""
    retry: bool = False

    def serialize(self) -> WireMessage:
        """Return the reply as text."""
        return WireMessage(json.dumps(vars(self)))


def printable(text: object, length: int = 200) -> str:
    """Return text from another machine without control characters, shortened."""
    return "".join(c for c in str(text)[:length] if c.isprintable())


def _parse_float(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text[:20]} is not a finite number")
    return number


def _parse_int(text: str) -> int:
    if len(text) > MAX_DIGITS:
        raise ValueError(f"{text[:20]} is too large")
    return int(text)
