"""The sites of a run: how they come to agree, who takes part under which name, and who is refused and why."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from fedul.config import CoordinatorConfig, TrainConfig, readable
from fedul.data.form import Form
from fedul.engines.flower.agreement import Agreement, agreed
from fedul.engines.flower.letters import Letter
from fedul.engines.flower.post import Post, Silence
from fedul.errors import WorldError
from fedul.priors import Matrix
from fedul.rounds import Reporter
from fedul.schema.faults import fault
from fedul.settings import plain

MOST_ROWS = 2**40
AGAIN_SECONDS = 1.0
TRIES = 3
"""How often a node that does not answer is asked: a machine may be busy, and Flower thinks a site away for a moment."""


@dataclass(frozen=True)
class Member:
    """A site that takes part."""

    name: str
    node: int  # Flower's number, of the process that spoke last under this name
    rows: int
    held_out_rows: int
    sets: int
    alone: bool  # its priors can tell all classes apart by themselves


@dataclass(frozen=True, eq=False)
class Candidate:
    """A site that has said who it is."""

    node: int
    form: Form


@dataclass(eq=False)
class Members:
    """Knows the sites by name, and lets in those that come later."""

    post: Post
    config: CoordinatorConfig
    training: TrainConfig
    run: str  # what tells this run from others at the sites
    reporter: Reporter
    agreement: Agreement | None = None
    wanted: int = 0  # members to wait for before the first round
    by_name: dict[str, Member] = field(default_factory=dict)
    _greeted: set[int] = field(default_factory=set)  # nodes that have said who they are, or could not
    _tries: Counter[tuple[int, str]] = field(default_factory=Counter)  # how often a node did not answer what
    _twins: dict[int, str] = field(default_factory=dict)  # nodes that came under the name of a site that is there
    _refused: dict[str, str] = field(default_factory=dict)  # and why
    _waiting: dict[str, Candidate] = field(default_factory=dict)  # those that have, and are still to be let in

    def agree(self, test_prior: Matrix) -> Agreement:
        """Waits for the sites, and settles what their rows look like; who differs is refused by name."""
        self._waiting = self._gathered()
        forms = {name: each.form for name, each in self._waiting.items() if not self._at_fault(name, each.form)}
        if not forms:
            raise WorldError("no site has data that can be used; see what was refused.")
        self.agreement, refused, remarks = agreed(forms, self.config.classes, test_prior)
        for sentence in remarks:
            self.reporter.warn(sentence)
        self.wanted = len(forms) - len(refused)
        return self.agreement

    def let_in(self, at_least: int, seconds: float) -> None:
        """Lets in whoever is there and fits; waits for this many members to be there, at most for so long."""
        assert self.agreement is not None
        end = time.monotonic() + seconds
        while True:
            there = self.post.nodes()
            self._waiting |= self._greet(self.config.round_seconds, {})
            fitting, self._waiting = self._fitting(self._waiting), {}
            at_least -= self._join(fitting)  # nobody waits for those that cannot
            if len(self.present) >= at_least or (left := end - time.monotonic()) <= 0:
                return
            self._pause(there, left)

    @property
    def present(self) -> dict[str, Member]:
        """The members that are connected, by name."""
        return {name: self.by_name[name] for name in self._here(self.post.nodes())}

    def question(self, **notes: Any) -> dict[str, Any]:
        """Notes for a letter about this run."""
        assert self.agreement is not None
        return {"run": self.run, "agreement": self.agreement.plain(), "training": plain(self.training), **notes}

    def _strangers(self, nodes: set[int]) -> set[int]:
        return nodes - self._greeted - {member.node for member in self.by_name.values()}

    def _here(self, nodes: set[int]) -> list[str]:
        return sorted(name for name, member in self.by_name.items() if member.node in nodes)

    def _gathered(self) -> dict[str, Candidate]:
        """As many sites as are wanted."""
        found: dict[str, Candidate] = {}
        end = time.monotonic() + self.config.start_seconds
        while True:
            there = self.post.nodes()
            found |= self._greet(min(max(end - time.monotonic(), 1.0), self.config.round_seconds), found)
            if len(found) >= self.config.sites:
                return found
            if (left := end - time.monotonic()) <= 0:
                refused = "".join(f"; {name} was refused: {reason}" for name, reason in self._refused.items())
                raise WorldError(
                    f"{len(found)} of {self.config.sites} sites came within {self.config.start_seconds:g} s "
                    f"({', '.join(sorted(found)) or 'none'}{refused}); start the others, or ask for fewer (sites)."
                )
            out = f"; refused until started anew: {', '.join(sorted(self._refused))}" if self._refused else ""
            here = ", ".join(sorted(found)) or "none"
            self.reporter.warn(f"waiting for {self.config.sites} sites; here: {here}{out}.")
            self._pause(there, left)

    def _pause(self, there: set[int], seconds: float) -> None:
        """Waits for somebody to come or go; a moment only, if somebody is to be asked again."""
        self.post.wait_while(there, min(seconds, AGAIN_SECONDS) if self._strangers(there) else seconds)

    def _greet(self, seconds: float, known: Mapping[str, Candidate]) -> dict[str, Candidate]:
        """Asks nodes that were not greeted yet who they are."""
        nodes = self.post.nodes()
        self._greeted &= nodes  # a site that was refused may have been mended when it comes back
        self._tries = Counter({asked: tries for asked, tries in self._tries.items() if asked[0] in nodes})
        for node in [each for each, name in self._twins.items() if self.by_name[name].node not in nodes]:
            del self._twins[node]
            self._greeted.discard(node)
        asked = Letter({"classes": list(self.config.classes)})
        answers = self.post.asked("hello", dict.fromkeys(self._strangers(nodes), asked), seconds)
        found: dict[str, Candidate] = {}
        for node, answer in answers.items():
            self._greeted.add(node)
            if isinstance(answer, Silence):
                self._unheard("hello", node, answer.site or f"node {node}", answer)
                continue
            try:
                name, form = answer.notes["name"], Form.from_plain(answer.notes["form"])
            except (KeyError, TypeError):
                self._refuse(f"node {node}", "its answer is not one of fedul")
                continue
            except ValueError as problem:
                self._refuse(f"node {node}", str(problem))
                continue
            if not readable(name):
                self._refuse(f"node {node}", "its name cannot be read")
            elif name in found or (name in known and known[name].node in nodes):
                self._refuse(name, "another site has the same name")
            elif name in self.by_name and self.by_name[name].node in nodes:
                self._twins[node] = name  # a site that was started again, before its old self is known to be gone
                self.reporter.warn(f"site '{name}' is there twice; the second is let in when the first is gone.")
            else:
                found[name] = Candidate(node, form)
        return found

    def _at_fault(self, name: str, form: Form) -> bool:
        """Whether a column makes no sense by itself; such a site would spoil the others' schema."""
        for column, about in form.columns.items():
            if problem := fault(about):
                self._refuse(name, f"column '{column}': {problem}")
                return True
        return False

    def _fitting(self, candidates: Mapping[str, Candidate]) -> dict[str, Candidate]:
        assert self.agreement is not None
        fitting = {}
        for name, candidate in candidates.items():
            if name in self._refused and self._at_fault(name, candidate.form):
                continue
            if problem := self.agreement.objection(candidate.form):
                self._refuse(name, problem)
            else:
                fitting[name] = candidate
        return fitting

    def _join(self, candidates: Mapping[str, Candidate]) -> int:
        """Lets candidates prepare their rows; those that can are members. How many of the others are refused."""
        for name in candidates:
            self._refused.pop(name, None)
        letter = Letter(self.question())
        names = {candidate.node: name for name, candidate in candidates.items()}
        for node, answer in self.post.asked("join", dict.fromkeys(names, letter), self.config.start_seconds).items():
            try:
                if isinstance(answer, Silence):
                    self._unheard("join", node, names[node], answer)
                    continue
                counts = {key: int(answer.notes[key]) for key in ("rows", "held_out_rows", "sets")}
                if not 0 < counts["rows"] < MOST_ROWS or not all(0 <= count < MOST_ROWS for count in counts.values()):
                    raise ValueError("the rows that it says it has cannot be")
                member = Member(names[node], node, **counts, alone=bool(answer.notes["alone"]))
            except (KeyError, TypeError, OverflowError):
                self._refuse(names[node], "its answer is not one of fedul")
                continue
            except ValueError as problem:
                self._refuse(names[node], str(problem))
                continue
            if names[node] in self.by_name:
                self.reporter.warn(f"site '{names[node]}' is back.")
            self.by_name[names[node]] = member
        return len(candidates.keys() & self._refused.keys())

    def _unheard(self, asked: str, node: int, name: str, silence: Silence) -> None:
        """Refuses a site that says why it cannot take part; one that does not answer is asked some more times."""
        self._tries[node, asked] += 1
        if silence.told or self._tries[node, asked] >= TRIES:
            self._refuse(name, silence.reason)
        else:
            self._greeted.discard(node)
            self.reporter.warn(f"site '{name}' does not answer: {silence.reason}; it is asked again.")

    def _refuse(self, name: str, reason: str) -> None:
        self._refused[name] = reason.rstrip(".")
        self.reporter.warn(f"site '{name}' is refused: {self._refused[name]}.")
