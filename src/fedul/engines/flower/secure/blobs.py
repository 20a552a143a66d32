"""Messages of secure aggregation inside messages of fedul: as tensors of bytes, and the digest that masks depend on."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping

import torch
from torch import Tensor

from fedul._utils.files import tensors_digest
from fedul.core import Weights
from fedul.engines.flower.protocol.message import Message
from fedul.privacy.secure_aggregation.codec import Encoded

ADVERTISE, KEY_LIST, MASK, SURVIVORS, UNMASK = "advertise", "key_list", "mask", "survivors", "unmask"
"""Groups of tensors in requests, which have one tensor for each purpose."""
KEYS, SHARES, VECTORS, SIGNATURES, REVEALED = "keys", "shares", "vectors", "signatures", "revealed"
"""Groups of tensors in replies."""
PERSONAL = ("accepted", "checkpointed")
"""Fields of requests that differ from site to site; they name rounds of the site's own state."""
OWN_GROUPS = (ADVERTISE, KEY_LIST, MASK, SURVIVORS, UNMASK)


def to_blob(message: Encoded) -> Tensor:
    """Return a message of secure aggregation as a tensor."""
    return torch.frombuffer(bytearray(message.to_bytes()), dtype=torch.uint8)


def to_blobs(messages: Mapping[str, Encoded]) -> Weights:
    """Return messages of secure aggregation by purpose as tensors."""
    return {purpose: to_blob(message) for purpose, message in messages.items()}


def blobs_in(message: Message, group: str) -> dict[str, bytes]:
    """Return the messages of secure aggregation of a group by purpose, as bytes."""
    return {purpose: tensor.contiguous().numpy().tobytes() for purpose, tensor in message.group(group).items()}


def received_digest(kind: str, message: Message) -> bytes:
    """Return a digest of everything in a request that decides what a site computes.

    It is the same at all sites that receive the same request. The masks of sites with different digests do not cancel.
    """
    shared = {name: value for name, value in message.document.items() if name not in PERSONAL}
    tensors = {key: t for key, t in message.tensors.items() if key.partition("/")[0] not in OWN_GROUPS}
    text = json.dumps({"kind": kind, "document": shared, "tensors": tensors_digest(tensors)}, sort_keys=True)
    return hashlib.sha256(text.encode()).digest()


def with_groups(message: Message, groups: Mapping[str, Weights]) -> Message:
    """Return a message with further groups of tensors."""
    tensors = {f"{group}/{name}": tensor for group, each in groups.items() for name, tensor in each.items()}
    return Message(message.document, {**message.tensors, **tensors})
