"""A run of a grid as a value that can be sent to another process, and the data that the next run often shares."""

from __future__ import annotations

from dataclasses import dataclass

from fedul._utils.extensions import name_run
from fedul.config import TrainConfig
from fedul.core import Study
from fedul.data.load import AnyDataConfig, load_study
from fedul.training import Callback, Recipe, Run, RunBusy, RunFolder, RunInfo, run_training


@dataclass(frozen=True)
class RunJob:
    """One run: its title, its folder, its data and its training."""

    title: str
    folder: RunFolder
    data: AnyDataConfig
    training: TrainConfig
    force: bool = False

    def is_done(self) -> bool:
        """Return whether all its rounds are finished."""
        result, rounds, patience = self.folder.result(), self.training.rounds, self.training.patience
        if result is None or result.rounds == rounds or not patience:
            return result is not None and result.rounds == rounds
        stored = self.folder.stored_config()  # the result may be that of a run that ended early
        return stored is not None and (stored.training.rounds, stored.training.patience) == (rounds, patience)

    def train(self, studies: StudyCache, callback: Callback, info: RunInfo) -> None:
        """Train the run unless it is done; RunBusy if another process is training it."""
        if self.is_done():
            return
        self.folder.check_free()  # before any data is read
        recipe, out = Recipe(self.training), self.folder.path
        study = self.study(studies)
        try:
            run = run_training(study, recipe, out=out, resume=True, force=self.force, callback=callback, info=info)
        except RunBusy:
            raise
        except Exception as problem:
            seed = f"seed {self.training.seed}"
            name_run(problem, self.title if seed in self.title else f"{self.title}, {seed}")
            raise
        self.finish(studies, run)

    def study(self, studies: StudyCache) -> Study:
        """Return the data to train on."""
        return studies.of(self.data)

    def finish(self, studies: StudyCache, run: Run) -> None:
        """Called after training; a job that measures more than the run does it here."""


class StudyCache:
    """The study that was loaded last, which the next run often shares."""

    def __init__(self) -> None:
        self._last: tuple[AnyDataConfig, Study] | None = None

    def of(self, config: AnyDataConfig) -> Study:
        """Return the study of a configuration."""
        if self._last is None or self._last[0] != config:
            self._last = None  # two of them may not fit into memory
            self._last = config, load_study(config)
        return self._last[1]
