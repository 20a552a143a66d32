"""Transport of messages over Flower: connected nodes, requests, replies and time limits.

Flower may give a node another number when it restarts; the rest of fedul knows a site by its name.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fedul.engines.flower.protocol.message import ErrorReply, Message, UnreadableMessage, WireMessage, printable
from fedul.engines.flower.server.site_activity import SiteActivity
from fedul.engines.flower.settings import is_valid_site_name

if TYPE_CHECKING:
    from flwr.app import RecordDict
    from flwr.serverapp import Grid

POLL_SECONDS = 0.25
MAX_REPLY_BYTES = 64 * 2**20
"""Limit for a reply before the model is known."""


@dataclass(frozen=True)
class NoReply:
    """Missing or unusable reply.

    Parameters
    ----------
    reason : str
        Why there is no usable reply.
    site : str
        Name of the site, if the reply contains one.
    final : bool
        Whether the site itself reports the reason, and would do so again.
    """

    reason: str
    site: str = ""
    final: bool = False


Reply = Message | NoReply


class Transport:
    """Messages to nodes and their replies.

    Parameters
    ----------
    grid : Grid
        Flower's interface to the nodes.
    """

    def __init__(self, grid: Grid) -> None:
        self._grid = grid
        self.max_bytes = MAX_REPLY_BYTES
        self.bytes_sent = self.bytes_received = 0  # tensors only
        self.reply_seconds: dict[int, float] = {}  # by node, of the last request
        self.activity = SiteActivity()

    def nodes(self) -> set[int]:
        """Return the connected nodes."""
        self.activity.connected = set(self._grid.get_node_ids())
        return set(self.activity.connected)

    def wait_for_change(self, nodes: set[int], seconds: float) -> None:
        """Wait until other nodes than these are connected, or the time is over."""
        end = time.monotonic() + seconds
        while self.nodes() == nodes and time.monotonic() < end:
            time.sleep(POLL_SECONDS)

    def request(self, kind: str, messages: Mapping[int, Message], seconds: float) -> dict[int, Reply]:
        """Send messages to nodes and return their replies; `NoReply` after this many seconds."""
        from flwr.app import Message as FlowerMessage

        waiting: dict[str, int] = {}
        started, self.reply_seconds = time.monotonic(), {}
        replies: dict[int, Reply] = {}
        # Nodes that get the same message share one record.
        records = {id(message): message.serialize().to_record() for message in messages.values()}
        for node, message in messages.items():
            sent = FlowerMessage(records[id(message)], node, f"query.{kind}", ttl=seconds + 60)
            ids = list(self._grid.push_messages([sent]))
            if not any(ids):
                replies[node] = NoReply("the message to it could not be sent")
                continue
            waiting[ids[0]] = node
            self.bytes_sent += message.tensor_bytes
            self.activity.asked(node, kind, message.tensor_bytes)
        self.activity.changed()
        end = time.monotonic() + seconds
        while waiting and time.monotonic() < end:
            for reply in self._grid.pull_messages(list(waiting)):
                if (answered := reply.metadata.reply_to_message_id) in waiting:
                    failed = reply.has_error() and NoReply(
                        f"its process failed ({printable(reply.error.reason or reply.error.code)})"
                    )
                    node, received = waiting.pop(answered), self.bytes_received
                    self.reply_seconds[node] = time.monotonic() - started
                    replies[node] = failed or self._read(reply.content)
                    self.activity.replied(node, self.bytes_received - received, _problem(replies[node]))
            if waiting:
                time.sleep(POLL_SECONDS)
                if self.activity.is_due():
                    self.nodes()
                    self.activity.changed()
        missing = NoReply(f"no reply within {seconds:g} s")
        for node in waiting.values():
            self.activity.failed(node, missing.reason)
        return replies | dict.fromkeys(waiting.values(), missing)

    def _read(self, record: RecordDict) -> Reply:
        try:
            reply = Message.deserialize(WireMessage.from_record(record, self.max_bytes))
            self.bytes_received += reply.tensor_bytes
            if "error" not in reply.document:
                return reply
            error = reply.read(ErrorReply)
        except UnreadableMessage as problem:
            return NoReply(f"its reply cannot be used: {problem}")
        site = error.site if is_valid_site_name(error.site) else ""
        return NoReply(printable(error.error, 300), site, final=not error.retry)


def _problem(reply: Reply) -> str:
    """Return why a reply cannot be used; empty if it can."""
    return reply.reason if isinstance(reply, NoReply) else ""
