"""The sites of a run: how they come to agree, who takes part under which name, and who is refused and why."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from fedul.config import CoordinatorConfig, TrainConfig
from fedul.data.form import Form
from fedul.engines.flower.agreement import Agreement, agreed
from fedul.engines.flower.letters import Letter
from fedul.engines.flower.post import Post, Silence
from fedul.errors import WorldError
from fedul.priors import Matrix
from fedul.rounds import Reporter
from fedul.settings import plain


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
    _waiting: dict[str, Candidate] = field(default_factory=dict)  # those that have, and are still to be let in

    def agree(self, test_prior: Matrix) -> Agreement:
        """Waits for the sites, and settles what their rows look like; who differs is refused by name."""
        self._waiting = self._gathered()
        forms = {name: candidate.form for name, candidate in self._waiting.items()}
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
            self._waiting |= self._greet()
            fitting, self._waiting = self._fitting(self._waiting), {}
            at_least -= len(fitting.keys() - self._join(fitting))  # nobody waits for those that cannot
            if len(self.present) >= at_least or (left := end - time.monotonic()) <= 0:
                return
            self.post.wait_while(there, left)

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
            found |= self._greet(found)
            if len(found) >= self.config.sites:
                return found
            if (left := end - time.monotonic()) <= 0:
                raise WorldError(
                    f"{len(found)} of {self.config.sites} sites came within {self.config.start_seconds:g} s "
                    f"({', '.join(sorted(found)) or 'none'}); start the others, or ask for fewer (sites)."
                )
            self.post.wait_while(there, left)

    def _greet(self, known: Mapping[str, Candidate] | None = None) -> dict[str, Candidate]:
        """Asks nodes that were not greeted yet who they are."""
        nodes = self.post.nodes()
        self._greeted &= nodes  # a site that was refused may have been mended when it comes back
        asked = Letter({"classes": list(self.config.classes), "seed": self.training.seed})
        answers = self.post.asked("hello", dict.fromkeys(self._strangers(nodes), asked), self.config.round_seconds)
        found: dict[str, Candidate] = {}
        for node, answer in answers.items():
            self._greeted.add(node)
            if isinstance(answer, Silence):
                self._refuse(answer.site or f"node {node}", answer.reason)
                continue
            try:
                name, form = str(answer.notes["name"])[:100], Form.from_plain(answer.notes["form"])
            except (KeyError, ValueError) as problem:
                self._refuse(f"node {node}", str(problem))
                continue
            if not name.strip() or not name.isprintable():
                self._refuse(f"node {node}", "its name cannot be read")
            elif name in found or name in (known or {}):
                self._refuse(name, "another site has the same name")
            elif name in self.by_name and self.by_name[name].node in nodes:
                self._greeted.discard(node)  # a site that was started again, before its old self is known to be gone
            else:
                found[name] = Candidate(node, form)
        return found

    def _fitting(self, candidates: Mapping[str, Candidate]) -> dict[str, Candidate]:
        assert self.agreement is not None
        fitting = {}
        for name, candidate in candidates.items():
            if problem := self.agreement.objection(candidate.form):
                self._refuse(name, problem)
            else:
                fitting[name] = candidate
        return fitting

    def _join(self, candidates: Mapping[str, Candidate]) -> set[str]:
        """Lets candidates prepare their rows; those that can are members."""
        joined: set[str] = set()
        letter = Letter(self.question())
        names = {candidate.node: name for name, candidate in candidates.items()}
        for node, answer in self.post.asked("join", dict.fromkeys(names, letter), self.config.start_seconds).items():
            try:
                if isinstance(answer, Silence):
                    raise ValueError(answer.reason)
                counts = {key: int(answer.notes[key]) for key in ("rows", "held_out_rows", "sets")}
                if counts["rows"] < 1 or min(counts.values()) < 0:
                    raise ValueError("it has no rows to train on")
                member = Member(names[node], node, **counts, alone=bool(answer.notes["alone"]))
            except (KeyError, TypeError, ValueError) as problem:
                self._refuse(names[node], str(problem))
                continue
            if names[node] in self.by_name:
                self.reporter.warn(f"site '{names[node]}' is back.")
            self.by_name[names[node]] = member
            joined.add(names[node])
        return joined

    def _refuse(self, name: str, reason: str) -> None:
        self.reporter.warn(f"site '{name}' is refused: {reason.rstrip('.')}.")
