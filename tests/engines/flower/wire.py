"""Sites without Flower between: letters are packed, opened and answered as they are there, in this process."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path

from fedul.engines.flower.answering import reply
from fedul.engines.flower.envelope import received
from fedul.engines.flower.letters import Letter, packed, unsealed
from fedul.engines.flower.post import Answer, Post, Silence

Fault = Callable[[str, Letter, Letter], Letter | None]
"""From the kind of a question, the question and the right answer to what is sent instead; None for silence."""

DIGITS = """\
name = "{name}"
state = "state"

[data]
data = "digits"
clients = {clients}
rows = {rows}
"""


class Wire(Post):
    """A post whose sites are here, each with its settings file; some may fail."""

    def __init__(self, settings: Mapping[int, Path], faults: Mapping[int, Fault] | None = None) -> None:
        self.settings, self.faults = dict(settings), dict(faults or {})
        self.most_bytes, self.sent, self.received = 2**26, 0, 0
        self.asked_for: list[tuple[int, str]] = []

    def nodes(self) -> set[int]:
        return set(self.settings)

    def wait_while(self, nodes: set[int], seconds: float) -> None:
        time.sleep(0.02)

    def asked(self, kind: str, letters: Mapping[int, Letter], seconds: float) -> dict[int, Answer]:
        return {node: self._asked(kind, node, letter) for node, letter in letters.items()}

    def _asked(self, kind: str, node: int, letter: Letter) -> Answer:
        self.asked_for.append((node, kind))
        self.sent += sum(t.nbytes for t in letter.tensors.values())
        answer: Letter | None = unsealed(reply(kind, str(self.settings[node]), received(packed(letter))))
        assert answer is not None
        if node in self.faults and "problem" not in answer.notes:
            answer = self.faults[node](kind, letter, answer)
        return Silence("no answer within 1 s") if answer is None else self._opened(packed(answer))


def digits_sites(folder: Path, clients: int, rows: int = 0) -> dict[int, Path]:
    """Settings of sites that have the digits between them, by node."""
    made = {}
    for number in range(1, clients + 1):
        file = folder / f"client-{number}" / "site.toml"
        file.parent.mkdir(parents=True)
        file.write_text(DIGITS.format(name=f"client-{number}", clients=clients, rows=rows))
        made[number] = file
    return made
