"""A run is a folder: config.json, metrics.jsonl (a line a round), checkpoint/ (to go on from), model/ (what is chosen),
result.json (what it came to).

Every file is whole or not there, so a run that is killed at any moment can be resumed.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import Tensor

from fedul.classifier import Classifier
from fedul.config import DataConfig, TrainConfig
from fedul.engines.store import OnDisk
from fedul.errors import InputError
from fedul.files import Lock, read_json, read_tensors, remove_leftovers, write_bytes, write_json, write_tensors
from fedul.methods.fedul import HeldOut
from fedul.models import Model
from fedul.settings import plain

EVALUATION = "evaluation.json"
"""What was found of the delivered classifier without labels."""
PAGE = "report.html"
FORMAT = "fedul-run"
VERSION = 2
MAY_CHANGE = {
    "rounds",
    "checkpoint_every",
    "evaluate_every",
    "threads",
    "engine_mode",
    "workers",
    "device",
    "data_dir",
}
"""Settings of the training that a resumed run may change: they do not alter the rounds already done."""
DEFAULTS = {**plain(TrainConfig()), **plain(DataConfig())}
"""What a setting is where a run says nothing of it, having been made before there was such a setting."""


@dataclass(frozen=True, eq=False)
class State:
    """All that a run needs to go on: the last round, the best so far, and the figures of every round."""

    round: int
    weights: Mapping[str, Tensor]
    server: Mapping[str, Tensor]
    averaged: Mapping[str, Tensor]  # over the rounds; it is what is judged and delivered
    selected: Mapping[str, Tensor]
    selected_round: int
    best_score: float  # the lowest held-out loss so far; infinite where nothing is held out
    best_margin: float  # how far above it a later round may be and still be taken for as good
    history: Sequence[Mapping[str, Any]]
    kept: Mapping[str, int] = field(default_factory=dict)  # of which round what is kept per client is
    judged: Mapping[str, HeldOut] = field(default_factory=dict)  # how each judge found the round with the lowest loss


def damaged(file: Path) -> InputError:
    """An error for a result that cannot be read."""
    return InputError(f"{file}: damaged; delete it, and the run will write it again.")


class Busy(InputError):
    """Another process is at this run."""


class RunFolder:
    """The files of one run."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._run = ""  # what tells this run from others

    @contextmanager
    def opened(self, config: Mapping[str, Any], *, resume: bool) -> Iterator[State | None]:
        """Makes the folder ready for this run; gives the state to go on from, if there is one.

        A folder that holds something else is refused, and nothing in it is touched. Other processes are kept out
        until the end.
        """
        self.check(config, resume=resume)
        with Lock(self.path) as mine:
            if not mine:
                raise self._busy()
            self.check(config, resume=resume)  # again: it may have changed before the door was shut
            yield self._ready(config)

    def check_free(self) -> None:
        """Raises Busy while another process is at this run."""
        if self.path.is_dir():
            with Lock(self.path) as mine:
                if not mine:
                    raise self._busy()

    def _busy(self) -> Busy:
        return Busy(f"{self.path}: another process is training this run; wait for it, or choose another --out.")

    def make(self) -> None:
        """Makes the folder, or says why it cannot be made."""
        self._refuse_file()
        try:
            self.path.mkdir(parents=True, exist_ok=True)
        except OSError as problem:
            raise InputError(f"{self.path}: cannot be made ({problem.strerror}); choose another --out.") from None

    def _refuse_file(self) -> None:
        if self.path.exists() and not self.path.is_dir():
            raise InputError(f"{self.path}: is a file; --out takes a folder.")

    def check(self, config: Mapping[str, Any], *, resume: bool) -> None:
        """Refuses a folder that holds something else than this run."""
        self._refuse_file()
        stored = self.stored_config()
        if stored is None:
            return
        difference = first_difference(stored, config)
        if difference:
            raise InputError(f"{self.path}: holds a different run ({difference}); choose another --out.")
        if not resume:
            raise InputError(
                f"{self.path}: already holds this run; add --resume to go on with it, or choose another --out."
            )

    def _ready(self, config: Mapping[str, Any]) -> State | None:
        self._run = _identity(config)
        remove_leftovers(self.path)
        state = self._load_state() if self.stored_config() is not None else None
        if state is not None and state.round > config["training"]["rounds"]:
            raise InputError(f"{self.path}: has {state.round} rounds already; ask for at least as many with --rounds.")
        if state is not None:  # a kill may have come between the checkpoint and the figures
            self._write_metrics(state)
        self._write_config(config)  # what a resumed run may change, such as the number of rounds, is on record too
        return state

    def stored_config(self) -> dict[str, Any] | None:
        """The configuration of the run in the folder; None if there is no run yet."""
        file = self.path / "config.json"
        if not file.exists():
            try:
                others = [p.name for p in self.path.iterdir()] if self.path.is_dir() else []
            except OSError as problem:
                raise InputError(f"{self.path}: cannot be read ({problem.strerror}).") from None
            if any(not name.startswith(".") for name in others):
                raise InputError(
                    f"{self.path}: is not empty and not a run of fedul (no config.json in it); choose another folder."
                )
            return None
        stored = read_json(file)
        if not isinstance(stored, dict) or stored.get("format") != FORMAT:
            raise InputError(f"{self.path}: config.json is not of a run of fedul; choose another folder.")
        if stored.get("version") != VERSION:
            raise InputError(
                f"{self.path}: written in format {stored.get('version')} of another fedul; choose another folder."
            )
        if not all(isinstance(stored.get(section, {}), dict) for section in ("data", "training")):
            raise InputError(f"{file}: damaged; restore a copy of it, or delete the folder to run it again.")
        return {key: value for key, value in stored.items() if key not in ("format", "version")}

    def save_state(self, state: State) -> None:
        """Writes the checkpoint, in one file, then the figures for people to read."""
        groups = {"weights": state.weights, "server": state.server}
        if state.averaged is not state.weights:  # what is the same need not be written twice
            groups["averaged"] = state.averaged
        if state.selected_round != state.round:
            groups["selected"] = state.selected
        groups["judged"] = {name: sums.tensor() for name, sums in state.judged.items()}
        tensors = {f"{part}/{name}": tensor for part, group in groups.items() for name, tensor in group.items()}
        notes = {
            "run": self._run,
            "kept": dict(state.kept),
            "round": state.round,
            "selected_round": state.selected_round,
            "best_score": state.best_score if math.isfinite(state.best_score) else None,
            "best_margin": state.best_margin,
            "judged_rows": {name: sums.rows for name, sums in state.judged.items()},
            "history": list(state.history),
        }
        write_tensors(self.path / "checkpoint" / "state.safetensors", tensors, notes)
        self._write_metrics(state)
        for outgrown in ("result.json", EVALUATION):  # of an earlier end, and of the classifier that was delivered then
            (self.path / outgrown).unlink(missing_ok=True)

    def client_store(self) -> OnDisk:
        """Where an algorithm keeps what it keeps per client."""
        return OnDisk(self.path / "checkpoint" / "clients")

    def save_classifier(self, classifier: Classifier) -> None:
        """Writes the classifier of the selected round."""
        classifier.save(self.path / "model")

    def save_result(self, summary: Mapping[str, Any], seconds: float) -> None:
        """Writes what the run came to; its being there says that the run is finished."""
        figures = {name: value for name, value in summary.items() if name != "run"}
        write_json(self.path / "result.json", {**figures, "seconds": round(seconds, 3)})

    def result(self) -> dict[str, Any] | None:
        """What a finished run came to; None if it is not finished."""
        file = self.path / "result.json"
        if not file.exists():
            return None
        with suppress(InputError):
            found = read_json(file)
            if isinstance(found, dict) and "selected_round" in found:
                return found
        raise damaged(file)

    def history(self) -> list[dict[str, Any]]:
        """The figures of every round so far."""
        file = self.path / "metrics.jsonl"
        try:
            return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
        except (OSError, ValueError) as problem:
            raise InputError(
                f"{file}: cannot be read ({problem}); go on with the run (--resume), which writes it again."
            ) from None

    def load_classifier(self, model: Model | None = None) -> Classifier:
        """Reads the classifier of a finished run (or of a bare model folder)."""
        for folder in (self.path / "model", self.path):
            if (folder / "classifier.json").exists():
                return Classifier.load(folder, model=model)
        raise InputError(f"{self.path}: no classifier in it; give the folder of a finished run ('fedul train --out').")

    def _write_config(self, config: Mapping[str, Any]) -> None:
        write_json(self.path / "config.json", {"format": FORMAT, "version": VERSION, **config})

    def _write_metrics(self, state: State) -> None:
        lines = "".join(json.dumps(line) + "\n" for line in state.history)
        write_bytes(self.path / "metrics.jsonl", lines.encode())

    def _load_state(self) -> State | None:
        file = self.path / "checkpoint" / "state.safetensors"
        if not file.exists():
            return None
        tensors, notes = read_tensors(file)
        parts = ("weights", "server", "averaged", "selected", "judged")
        groups: dict[str, dict[str, Tensor]] = {part: {} for part in parts}
        if "history" not in notes or any(name.partition("/")[0] not in groups for name in tensors):
            raise InputError(f"{file}: not a checkpoint of a run; delete it or restore a copy.")
        if notes.get("run") != self._run:
            raise InputError(f"{file}: is the checkpoint of another run; restore this run's own.")
        for name, tensor in tensors.items():
            part, _, rest = name.partition("/")
            groups[part][rest] = tensor
        averaged = groups["averaged"] or groups["weights"]
        return State(
            notes["round"],
            groups["weights"],
            groups["server"],
            averaged,
            groups["selected"] or averaged,
            notes["selected_round"],
            math.inf if notes["best_score"] is None else notes["best_score"],
            notes["best_margin"],
            notes["history"],
            notes["kept"],
            # There are none in a checkpoint of before they were kept, which is gone on from by its best_score.
            {name: HeldOut.from_tensor(sums, notes["judged_rows"][name]) for name, sums in groups["judged"].items()},
        )


def _identity(config: Mapping[str, Any]) -> str:
    """A digest of all that makes a run what it is; a setting that came later does not disown runs without it."""
    sections = {name: _telling(section) for name, section in config.items() if name != "software"}
    return hashlib.sha256(json.dumps(sections, sort_keys=True).encode()).hexdigest()


def _telling(section: Any) -> Any:
    if not isinstance(section, Mapping):
        return section
    return {key: value for key, value in section.items() if key not in MAY_CHANGE and value != DEFAULTS.get(key)}


def first_difference(stored: Mapping[str, Any], config: Mapping[str, Any]) -> str:
    """The first setting in which two configurations differ, in words; empty if none does."""
    for section in sorted((set(stored) | set(config)) - {"software"}):
        old, new = stored.get(section), config.get(section)
        if isinstance(old, dict) and isinstance(new, dict):
            for key in sorted(set(old) | set(new)):
                there, here = (settings.get(key, DEFAULTS.get(key)) for settings in (old, new))
                if key not in MAY_CHANGE and there != here:
                    return f"{key.replace('_', '-')} is {there} there, {here} here"
        elif old != new:
            return f"{section.replace('_', ' ')} differs"
    return ""
