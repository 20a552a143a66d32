"""Letters to sites and their answers: who is there, who is asked, who does not answer in time.

Flower may number a node anew when it starts again; here a site is known by its name.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fedul.config import readable
from fedul.engines.flower.envelope import Unreadable
from fedul.engines.flower.letters import Letter, opened, packed

if TYPE_CHECKING:
    from flwr.app import Message, RecordDict
    from flwr.serverapp import Grid

POLL_SECONDS = 0.25
FIRST_LETTERS = 64 * 2**20
"""Bytes that an answer may have before the model is known."""


@dataclass(frozen=True)
class Silence:
    """No answer that can be used, and why."""

    reason: str
    site: str = ""  # who it is from, if it says so
    told: bool = False  # the site itself says so, and would again


Answer = Letter | Silence


class Post:
    """Carries letters over Flower's grid."""

    def __init__(self, grid: Grid) -> None:
        self._grid = grid
        self.most_bytes = FIRST_LETTERS
        self.sent = self.received = 0  # bytes of tensors, for the record

    def nodes(self) -> set[int]:
        """The nodes that are connected."""
        return set(self._grid.get_node_ids())

    def wait_while(self, nodes: set[int], seconds: float) -> None:
        """Waits while just these nodes are connected, but not longer than that."""
        end = time.monotonic() + seconds
        while self.nodes() == nodes and time.monotonic() < end:
            time.sleep(POLL_SECONDS)

    def asked(self, kind: str, letters: Mapping[int, Letter], seconds: float) -> dict[int, Answer]:
        """The answers of these nodes; whoever is not heard of within the time is silent."""
        from flwr.app import Message

        waiting: dict[str, int] = {}
        answers: dict[int, Answer] = {}
        records = {id(letter): packed(letter) for letter in letters.values()}  # one for all, where all get the same
        for node, letter in letters.items():
            message = Message(records[id(letter)], node, f"query.{kind}", ttl=seconds + 60)
            numbers = list(self._grid.push_messages([message]))
            if not any(numbers):
                answers[node] = Silence("the message to it could not be sent")
                continue
            waiting[numbers[0]] = node
            self.sent += sum(t.nbytes for t in letter.tensors.values())
        end = time.monotonic() + seconds
        while waiting and time.monotonic() < end:
            for reply in self._grid.pull_messages(list(waiting)):
                if (number := reply.metadata.reply_to_message_id) in waiting:
                    answers[waiting.pop(number)] = self._read(reply)
            if waiting:
                time.sleep(POLL_SECONDS)
        for node in waiting.values():
            answers[node] = Silence(f"no answer within {seconds:g} s")
        return answers

    def _read(self, reply: Message) -> Answer:
        if reply.has_error():
            return Silence(f"its process failed ({(reply.error.reason or str(reply.error.code))[:200]})")
        return self._opened(reply.content)

    def _opened(self, content: RecordDict) -> Answer:
        try:
            letter = opened(content, self.most_bytes)
        except Unreadable as why:
            return Silence(f"what it sent cannot be used: {why}")
        self.received += sum(t.nbytes for t in letter.tensors.values())
        if problem := letter.notes.get("problem"):
            name = letter.notes.get("name", "")
            said = "".join(c for c in str(problem)[:300] if c.isprintable())
            return Silence(said, name if readable(name) else "", told=letter.notes.get("again") is not True)
        return letter
