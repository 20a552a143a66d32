"""What is packed is what is opened, to the bit; anything else is not read."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict

from fedul.engines.flower.envelope import Unreadable
from fedul.engines.flower.letters import Letter, grouped, opened, packed

LETTER = Letter(
    {"round": 3, "directive": {"trust": 0.5}},
    grouped(
        weights={"w": torch.randn(3, 2), "count": torch.tensor(7)},
        sent={"w": torch.randn(2).bfloat16(), "empty": torch.zeros(0, 4, dtype=torch.float64)},
    ),
)


def test_a_letter_arrives_as_it_was_sent() -> None:
    found = opened(packed(LETTER), 2**20)
    assert found.notes == LETTER.notes
    assert found.tensors.keys() == LETTER.tensors.keys()
    for name, tensor in LETTER.tensors.items():
        assert found.tensors[name].dtype == tensor.dtype
        assert torch.equal(found.tensors[name], tensor)
    assert found.group("sent").keys() == {"w", "empty"}


def test_tensors_that_share_memory_arrive_each_by_itself() -> None:
    shared = torch.arange(4.0)
    found = opened(packed(Letter({}, {"a": shared, "b": shared[:2], "c": shared.view(2, 2).T})), 2**20)
    assert found.tensors["c"].tolist() == [[0, 2], [1, 3]]


def record(notes: str, content: bytes) -> RecordDict:
    array = Array(np.frombuffer(content, dtype=np.uint8))
    return RecordDict({"notes": ConfigRecord({"json": notes}), "tensors": ArrayRecord({"safetensors": array})})


@pytest.mark.parametrize(
    ("strange", "reason"),
    [
        (RecordDict(), "not a letter"),
        (RecordDict({"notes": ConfigRecord({"json": "{}"})}), "not a letter"),
        (record("{}", b"not safetensors"), "damaged"),
        (record('{"loss": NaN}', b""), "NaN is no number"),
        (record("[1]", packed(Letter())["tensors"]["safetensors"].numpy().tobytes()), "no JSON object"),
        (record("[" * 100_000, b""), "damaged"),
        (packed(Letter({}, {"x": torch.zeros(2**18)})), "where at most 1,048,576 are expected"),
    ],
)
def test_what_is_no_letter_is_not_read(strange: RecordDict, reason: str) -> None:
    with pytest.raises(Unreadable, match=reason):
        opened(strange, 2**20)


def test_a_letter_without_numbers_is_json_that_anyone_reads() -> None:
    assert json.loads(packed(Letter({"a": 1}))["notes"]["json"]) == {"a": 1}
    with pytest.raises(ValueError, match="not JSON compliant"):
        packed(Letter({"loss": float("nan")}))
