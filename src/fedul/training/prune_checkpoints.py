"""Checkpoints of earlier rounds: which are kept, and when they are deleted.

A run itself keeps one checkpoint, that of its last round, which is all that it needs to be resumed. The callback here
keeps copies of some others, to compare rounds, or to deliver one that was not selected.
"""

from __future__ import annotations

import math
import os
import shutil
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from fedul._utils.files import read_tensors
from fedul.classifier import Classifier
from fedul.core import RoundMetrics
from fedul.errors import InputError, wrong_type
from fedul.models import Model
from fedul.models.weights import load_weights
from fedul.training.callbacks import Callback, RunInfo
from fedul.training.result import RunResult
from fedul.training.run_files import CHECKPOINT, CLIENT_STATES, SNAPSHOTS
from fedul.training.run_folder import RunFolder
from fedul.training.stop_early import check_monitor


class PruneCheckpoints(Callback):
    """Keeps checkpoints of some rounds in ``checkpoint/rounds/`` of the run folder, and deletes the others.

    Checkpoints are written as `TrainConfig.checkpoint_every` says; with ``checkpoint_every=1`` after every round. A
    copy takes no time where the file system lets it share its bytes with the checkpoint.

    Parameters
    ----------
    keep_last : int, default=1
        Checkpoints of the last rounds that are kept.
    keep_best : int, default=1
        Checkpoints of the best rounds that are kept besides.
    monitor : str, default="held_out_loss"
        Metric that says which are best, as for `EarlyStopping`. Rounds without it are not kept as best.
    when_finished : bool, default=False
        Delete everything from which a run could be resumed once it is finished: its checkpoint and the states of its
        clients. To add rounds to it, it is then trained anew. Checkpoints of private runs stay, because a round that is
        trained again is paid for again.

    Examples
    --------
    >>> import fedul, tempfile
    >>> folder = tempfile.mkdtemp()
    >>> data = fedul.load("digits", clients=2, rows=400)
    >>> prune = fedul.PruneCheckpoints(keep_last=2, keep_best=0)
    >>> run = fedul.train(data, rounds=4, seed=0, out=f"{folder}/run", checkpoint_every=1, callbacks=[prune])
    >>> kept_rounds(f"{folder}/run")
    [3, 4]
    >>> load_round(f"{folder}/run", 3).classes == run.classifier.classes
    True
    """

    def __init__(
        self,
        keep_last: int = 1,
        keep_best: int = 1,
        *,
        monitor: str = "held_out_loss",
        when_finished: bool = False,
    ) -> None:
        for name, value in (("keep_last", keep_last), ("keep_best", keep_best)):
            if not isinstance(value, int) or isinstance(value, bool) or value < 0:
                raise wrong_type(name, "a number of checkpoints, at least 0", value)
        self._keep_last, self._keep_best = keep_last, keep_best
        self._monitor, self._when_finished = check_monitor(monitor), when_finished
        self._values: dict[Path, dict[int, float]] = {}  # of every round, by run folder

    def on_run_start(self, run: RunInfo) -> None:
        if run.folder is not None:
            self._values[run.folder] = {line.round: self._value(line) for line in run.history}

    def on_round_end(self, run: RunInfo, metrics: RoundMetrics) -> None:
        if run.folder is not None:
            self._values[run.folder][metrics.round] = self._value(metrics)

    def on_checkpoint(self, run: RunInfo, metrics: RoundMetrics) -> None:
        if run.folder is None or not (self._keep_last or self._keep_best):
            return
        copy = _file(run.folder, metrics.round)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.unlink(missing_ok=True)
        _link(run.folder / CHECKPOINT, copy)
        there = [number for number in kept_rounds(run.folder) if number <= metrics.round]
        for number in set(kept_rounds(run.folder)) - self._wanted(there, self._values[run.folder]):
            _file(run.folder, number).unlink(missing_ok=True)

    def on_run_end(self, run: RunInfo, result: RunResult | None) -> None:
        if not self._when_finished or result is None or run.folder is None:
            return
        record = run.record or RunFolder(run.folder).stored_config()
        if record is not None and not record.training.is_private:
            (run.folder / CHECKPOINT).unlink(missing_ok=True)
            shutil.rmtree(run.folder / CLIENT_STATES, ignore_errors=True)

    def _value(self, metrics: RoundMetrics) -> float:
        value = getattr(metrics, self._monitor)
        return math.inf if value is None else float(value)

    def _wanted(self, rounds: list[int], values: dict[int, float]) -> set[int]:
        last = rounds[-self._keep_last :] if self._keep_last else []
        ranked = sorted((values.get(number, math.inf), number) for number in rounds)
        best = [number for value, number in ranked if value < math.inf][: self._keep_best]
        return {*last, *best}


def kept_rounds(run: str | Path) -> list[int]:
    """Return the rounds whose checkpoints `PruneCheckpoints` has kept, in order."""
    found = []
    for file in (Path(run) / SNAPSHOTS).glob("round-*.safetensors"):
        with suppress(ValueError):
            found.append(int(file.stem.removeprefix("round-")))
    return sorted(found)


def load_round(run: str | Path, number: int, model: Model | None = None) -> Classifier:
    """Return the classifier of an earlier round of a finished run, from a checkpoint that was kept.

    Parameters
    ----------
    run : str or Path
        The run folder.
    number : int
        The round.
    model : str, nn.Module or callable, optional
        The custom model, if the run was trained with one.
    """
    folder = RunFolder(run)
    if number not in (there := kept_rounds(run)):
        listed = ", ".join(map(str, there)) or "none"
        raise InputError(f"{folder.path}: no checkpoint of round {number} is kept (there are: {listed}).")
    tensors, _ = read_tensors(_file(folder.path, number))
    groups: dict[str, dict[str, object]] = {"weights": {}, "averaged": {}}
    for key, tensor in tensors.items():
        group, _, name = key.partition("/")
        groups.setdefault(group, {})[name] = tensor
    classifier = folder.load_classifier(model)
    load_weights(classifier.module, groups["averaged"] or groups["weights"])  # type: ignore[arg-type]
    return replace(classifier, temperature=folder.history()[number - 1].temperature)


def _file(folder: Path, number: int) -> Path:
    return folder / SNAPSHOTS / f"round-{number:05d}.safetensors"


def _link(file: Path, copy: Path) -> None:
    try:
        os.link(file, copy)
    except OSError:  # not every file system has links
        shutil.copyfile(file, copy)
