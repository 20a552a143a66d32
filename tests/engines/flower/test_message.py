"""A message arrives exactly as it was sent; anything else is refused with the reason."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict

from fedul.engines.flower.protocol.documents import HelloRequest, JoinReply, TrainReply
from fedul.engines.flower.protocol.message import ErrorReply, Message, UnreadableMessage, WireMessage
from fedul.engines.held_out import HeldOutSums

MESSAGE = Message.of(
    TrainReply(rows=3, steps=2.5, loss=0.5, held_out=HeldOutSums(rows=4)),
    weights={"w": torch.randn(3, 2), "count": torch.tensor(7)},
    sent={"w": torch.randn(2).bfloat16(), "empty": torch.zeros(0, 4, dtype=torch.float64)},
)


def to_record(message: Message) -> RecordDict:
    return message.serialize().to_record()


def from_record(record: RecordDict) -> Message:
    return Message.deserialize(WireMessage.from_record(record, 2**20))


def test_a_message_arrives_as_it_was_sent() -> None:
    received = from_record(to_record(MESSAGE))
    assert received.document == MESSAGE.document
    assert received.tensors.keys() == MESSAGE.tensors.keys()
    for name, tensor in MESSAGE.tensors.items():
        assert received.tensors[name].dtype == tensor.dtype
        assert torch.equal(received.tensors[name], tensor)
    assert received.group("sent").keys() == {"w", "empty"}
    assert received.read(TrainReply) == TrainReply(rows=3, steps=2.5, loss=0.5, held_out=HeldOutSums(rows=4))


def test_tensors_that_share_memory_arrive_separately() -> None:
    shared = torch.arange(4.0)
    received = from_record(to_record(Message({}, {"a": shared, "b": shared[:2], "c": shared.view(2, 2).T})))
    assert received.tensors["c"].tolist() == [[0, 2], [1, 3]]


def record(document: str, content: bytes) -> RecordDict:
    array = Array(np.frombuffer(content, dtype=np.uint8))
    return RecordDict({"document": ConfigRecord({"json": document}), "tensors": ArrayRecord({"safetensors": array})})


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        (RecordDict(), "not a message of fedul"),
        (RecordDict({"document": ConfigRecord({"json": "{}"})}), "not a message of fedul"),
        (record("{}", b"not safetensors"), "damaged"),
        (record('{"loss": NaN}', b""), "NaN is not a finite number"),
        (record('{"loss": 1e999}', b""), "1e999 is not a finite number"),
        (record(f'{{"rows": {"9" * 5000}}}', b""), "99999 is too large"),
        (record("[1]", b""), "not a JSON object"),
        (record("[" * 100_000, b""), "damaged"),
        (record(" " * (2**24 + 1), b""), "more than the limit of 16,777,216"),
        (to_record(Message({}, {"x": torch.zeros(2**18)})), "more than the limit of 1,048,576"),
    ],
)
def test_anything_but_a_message_is_refused(wrong: RecordDict, reason: str) -> None:
    with pytest.raises(UnreadableMessage, match=reason):
        from_record(wrong)


@pytest.mark.parametrize(
    ("document", "reason"),
    [
        ({}, "required field missing"),
        ({"rows": "3"}, r"expected int @ document\.rows"),
        ({"rows": 3.0}, r"expected int @ document\.rows"),
        ({"rows": True}, r"expected int @ document\.rows"),
        ({"identifies_classes": 1}, r"expected bool @ document\.identifies_classes"),
        ({"priors": [0.5], "\x1b[31m": 1}, r"extra fields found \((\[31m, priors|priors, \[31m)\)"),
    ],
)
def test_a_document_of_another_form_is_refused_with_the_field(document: dict[str, Any], reason: str) -> None:
    right = {"rows": 3, "held_out_rows": 1, "sets": 2, "labelled_rows": 0, "identifies_classes": True}
    with pytest.raises(UnreadableMessage, match=reason):
        Message({**right, **document} if document else {}).read(JoinReply)


def test_a_document_is_json_that_any_program_can_read() -> None:
    hello = {"run": "r", "resumption": 0, "classes": ["a", "b"], "secure": False}
    assert json.loads(Message.of(HelloRequest("r", 0, ("a", "b"), secure=False)).serialize().document) == hello
    with pytest.raises(ValueError, match="not JSON compliant"):
        Message({"loss": float("nan")}).serialize()


def test_an_error_reply_is_a_message() -> None:
    error = ErrorReply("its disk is full", "north", retry=True)
    assert Message.deserialize(error.serialize()).read(ErrorReply) == error
