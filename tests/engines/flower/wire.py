"""Sites without Flower in between: messages are serialized, read and answered as they are there, in this process."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from fedul.engines.flower.protocol.message import Message, WireMessage
from fedul.engines.flower.server.site_activity import SiteActivity
from fedul.engines.flower.server.transport import NoReply, Reply, Transport
from fedul.engines.flower.site.handlers import reply_to

Fault = Callable[[str, Message, Message], Message | None]
"""From the kind of a request, the request and the right reply to what is sent instead; None for no reply."""

DIGITS = """\
name = "{name}"
state = "state"

[data]
data = "digits"
clients = {clients}
rows = {rows}
"""


class Wire(Transport):
    """A transport whose sites are in this process, each with its settings file; some may fail."""

    def __init__(self, settings: Mapping[int, Path], faults: Mapping[int, Fault] | None = None) -> None:
        self.settings, self.faults = dict(settings), dict(faults or {})
        self.max_bytes, self.bytes_sent, self.bytes_received = 2**26, 0, 0
        self.reply_seconds: dict[int, float] = {}
        self.activity = SiteActivity()
        self.requests: list[tuple[int, str]] = []

    def nodes(self) -> set[int]:
        self.activity.connected = set(self.settings)
        return set(self.settings)

    def wait_for_change(self, nodes: set[int], seconds: float) -> None:
        time.sleep(0.02)

    def request(self, kind: str, messages: Mapping[int, Message], seconds: float) -> dict[int, Reply]:
        replies: dict[int, Reply] = {}
        for node, message in messages.items():
            started = time.monotonic()
            replies[node] = self.request_one(kind, node, message)
            self.reply_seconds[node] = time.monotonic() - started
        return replies

    def request_one(self, kind: str, node: int, message: Message) -> Reply:
        self.requests.append((node, kind))
        self.bytes_sent += message.tensor_bytes
        self.activity.asked(node, kind, message.tensor_bytes)
        received = WireMessage.from_record(message.serialize().to_record())
        reply: Message | None = Message.deserialize(reply_to(kind, str(self.settings[node]), received))
        assert reply is not None
        if node in self.faults and "error" not in reply.document:
            reply = self.faults[node](kind, message, reply)
        if reply is None:
            self.activity.failed(node, "no reply within 1 s")
            return NoReply("no reply within 1 s")
        before = self.bytes_received
        found = self._read(reply.serialize().to_record())
        self.activity.replied(node, self.bytes_received - before, found.reason if isinstance(found, NoReply) else "")
        return found

    def kinds(self, node: int) -> list[str]:
        """The kinds of the requests that a node received, in order."""
        return [kind for each, kind in self.requests if each == node]


class ChangingWire(Wire):
    """A wire that calls a function with the kind and the messages of every request before it is sent."""

    def __init__(self, settings: Mapping[int, Path], change: Callable[[str, Mapping[int, Message]], Any]) -> None:
        super().__init__(settings)
        self.change = change

    def request(self, kind: str, messages: Mapping[int, Message], seconds: float) -> dict[int, Reply]:
        self.change(kind, messages)
        return super().request(kind, messages, seconds)


def digits_sites(folder: Path, clients: int, rows: int = 0, allowed: str = "") -> dict[int, Path]:
    """Settings of sites that share the digits, by node; they allow these methods of other packages."""
    made = {}
    for number in range(1, clients + 1):
        file = folder / f"client-{number}" / "site.toml"
        file.parent.mkdir(parents=True)
        file.write_text(
            f'allow-methods = "{allowed}"\n' + DIGITS.format(name=f"client-{number}", clients=clients, rows=rows)
        )
        made[number] = file
    return made
