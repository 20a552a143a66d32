"""The engine of a run on real sites: rounds and judgements are letters, and whoever fails is left out and named."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from torch import nn

from fedul.algorithms.base import Update, Weights, plain_steps
from fedul.config import CoordinatorConfig
from fedul.engines.flower.letters import Letter, grouped
from fedul.engines.flower.members import Members
from fedul.engines.flower.post import Answer, Silence
from fedul.engines.flower.updates import Expected, Refused, length, wild
from fedul.engines.local import Broadcast
from fedul.errors import WorldError
from fedul.methods.base import step_sizes
from fedul.methods.fedul import TEMPERATURES, HeldOut

LARGEST = 1e12
"""What -log Q of a row, or its square, can be at most."""


class AtSites:
    """What sites keep between rounds, as far as the coordinator knows of it: after which update (a `ClientStore`)."""

    def __init__(self) -> None:
        self._accepted: dict[str, list[int]] = {}  # site -> the rounds in which its update was taken
        self._safe = 0

    def read(self, client: str) -> dict[str, Any]:
        raise NotImplementedError("what a site keeps stays there")

    def write(self, client: str, round_number: int, kept: Mapping[str, Any]) -> None:
        self._accepted.setdefault(client, []).append(round_number)

    def rewind(self, round_number: int, versions: Mapping[str, int] | None = None) -> None:
        self._safe = round_number
        self._accepted = {site: [version] for site, version in (versions or {}).items()}

    def versions(self, round_number: int) -> Mapping[str, int]:
        known = {site: [each for each in rounds if each <= round_number] for site, rounds in self._accepted.items()}
        return {site: max(rounds) for site, rounds in known.items() if rounds}

    def checkpointed(self, *round_numbers: int) -> None:
        self._safe = min(round_numbers)

    def told(self, site: str) -> dict[str, int]:
        """What a site has to know: of which round what it keeps must be, and to which the run may go back."""
        rounds = self._accepted.get(site, [0])
        return {"accepted": max(rounds), "safe": max((each for each in rounds if each <= self._safe), default=0)}


class OnFlower:
    """Runs clients at their sites."""

    judges_along = True
    remarks: Sequence[str] = ()

    def __init__(self, members: Members, module: nn.Module, config: CoordinatorConfig, store: AtSites) -> None:
        self._members, self._config, self._store = members, config, store
        self._parameters = frozenset(name for name, _ in module.named_parameters())
        self._usual: float | None = None
        self._troubles: dict[str, str] = {}  # who failed since a round began, and why
        self._told: set[str] = set()  # those of them that were noted
        self._traffic = members.post.sent, members.post.received  # as far as it was noted
        self._along: dict[str, HeldOut] = {}  # what sites that trained the next round said of a round's held-out rows
        self._judges: list[str] = []  # who judged a round, if not all did that can

    @property
    def names(self) -> Sequence[str]:
        return sorted(self._members.by_name)

    def train(self, broadcast: Broadcast, clients: Sequence[str]) -> Iterator[Update]:
        self._troubles, self._told, self._along = {}, set(), {}
        expected = Expected(broadcast.weights, self._parameters)
        self._members.post.most_bytes = expected.most_bytes
        updates: dict[str, Update] = {}
        for attempt in range(self._config.attempts):
            missing = [name for name in clients if name not in updates]
            updates |= self._updates(broadcast, missing, expected)
            if len(updates) >= self._needed(clients):
                break
            if attempt + 1 < self._config.attempts:
                self._members.let_in(self._needed(clients), self._config.round_seconds)
        else:
            raise WorldError(
                f"round {broadcast.round}: {len(updates)} of {self._needed(clients)} updates that are needed came in "
                f"{self._config.attempts} attempts ({_listed(self._troubles)}); see to the sites, then resume the run."
            )
        self._usual = sum(length(update.delta) for update in updates.values()) / len(updates)
        for name in clients:  # in a fixed order, whoever was ready first
            if name in updates:
                self._store.write(name, broadcast.round, {})
                yield updates[name]

    def held_out(self, weights: Weights) -> Mapping[str, HeldOut]:
        """Judged by those that have not done so along with training, and have not just failed."""
        letter = Letter(self._members.question(), grouped(weights=weights))
        able = sorted(name for name, member in self._members.by_name.items() if member.held_out_rows)
        missing = [name for name in able if name not in {*self._along, *self._troubles}]
        present = self._members.present
        self._troubles |= {name: "not connected" for name in missing if name not in present}
        judges = [name for name in missing if name in present]
        for name, answer in self._asked("judge", dict.fromkeys(judges, letter)).items():
            if isinstance(answer, Silence):
                self._troubles[name] = answer.reason
            else:
                self._hear(name, answer.notes)
        found, self._along = {name: self._along[name] for name in able if name in self._along}, {}
        if able and not found:
            raise WorldError(f"no site judged the round ({_listed(self._troubles)}); see to them, then resume the run.")
        self._judges = list(found) if len(found) < len(able) else []
        return found

    def noted(self) -> Mapping[str, Any]:
        post, (sent, received) = self._members.post, self._traffic
        figures: dict[str, Any] = {"bytes_sent": post.sent - sent, "bytes_received": post.received - received}
        news = {name: reason for name, reason in sorted(self._troubles.items()) if name not in self._told}
        more = {"judges": self._judges, "troubles": news}
        self._traffic, self._told, self._judges = (post.sent, post.received), set(self._troubles), []
        return {**figures, **{name: value for name, value in more.items() if value}}

    def asked_all(self, kind: str, notes: Mapping[str, Any], tensors: Weights) -> dict[str, Answer]:
        """The answers of all members that are there."""
        letter = Letter(self._members.question(**notes), tensors)
        return self._asked(kind, dict.fromkeys(sorted(self._members.present), letter))

    def _needed(self, clients: Sequence[str]) -> int:
        return min(self._config.min_sites, len(clients))

    def _updates(self, broadcast: Broadcast, clients: Sequence[str], expected: Expected) -> dict[str, Update]:
        """The updates of those that answer with one that can be used."""
        self._members.let_in(0, 0)
        tensors = grouped(weights=broadcast.weights, sent=broadcast.sent, judged=broadcast.judged)
        present = self._members.present
        letters = {}
        for name in clients:
            if name in present:
                notes = {"round": broadcast.round, "directive": dict(broadcast.directive), **self._store.told(name)}
                letters[name] = Letter(self._members.question(**notes), tensors)
            else:
                self._troubles[name] = "not connected"
        found: dict[str, Update] = {}
        for name, answer in self._asked("train", letters).items():
            self._troubles.pop(name, None)
            try:
                if isinstance(answer, Silence):
                    raise Refused(answer.reason)
                rows = self._members.by_name[name].rows
                found[name] = expected.update(name, answer, rows, self._steps(rows))
                if broadcast.judged:
                    self._hear(name, answer.notes)
            except Refused as problem:
                self._troubles[name] = str(problem)
        for name, reason in wild(list(found.values()), self._usual).items():
            del found[name]
            self._troubles[name] = reason
        return found

    def _steps(self, rows: int) -> float:
        """What the local steps of a site with so many rows amount to."""
        training = self._members.training
        steps = training.epochs * len(step_sizes(rows, training.batch_size))
        return plain_steps(training.optimizer, training.momentum, steps)

    def _hear(self, name: str, notes: Mapping[str, Any]) -> None:
        """Takes in what a site says of its held-out rows."""
        if (found := _judgement(notes.get("judged"), self._members.by_name[name].held_out_rows)) is None:
            self._troubles[name] = "what it says of its held-out rows makes no sense"
        else:
            self._along[name] = found

    def _asked(self, kind: str, letters: Mapping[str, Letter]) -> dict[str, Answer]:
        nodes = {name: self._members.by_name[name].node for name in letters}
        by_node = {nodes[name]: letter for name, letter in letters.items()}
        answers = self._members.post.asked(kind, by_node, self._config.round_seconds)
        return {name: answers[node] for name, node in nodes.items()}


def _judgement(notes: Any, rows: int) -> HeldOut | None:
    """Sums over so many held-out rows, if they can be such."""
    try:
        if int(notes["rows"]) != rows:
            return None
        if rows == 0:
            return HeldOut()
        losses, squares, changes = (tuple(map(float, notes[name])) for name in ("losses", "squares", "changes"))
    except (KeyError, TypeError, ValueError, OverflowError):
        return None
    sums = (losses, squares, changes)
    sound = all(len(each) == len(TEMPERATURES) and all(0 <= v <= LARGEST * rows for v in each) for each in sums)
    return HeldOut(losses, squares, changes, rows) if sound else None


def _listed(troubles: Mapping[str, str]) -> str:
    return "; ".join(f"{name}: {reason}" for name, reason in sorted(troubles.items())) or "nobody was there"
