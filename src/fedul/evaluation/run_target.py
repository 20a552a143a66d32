"""The finished run that a command is about: from memory or from its folder, with its data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedul._utils.settings import to_dict
from fedul.core import Schema, Study
from fedul.data.files.schema.table import TableSchema
from fedul.errors import InputError
from fedul.training import Recipe, Run, RunFolder, RunRecord, RunResult, settings_difference
from fedul.training.perturbed_priors import stored_study
from fedul.training.run_data import load_run_data
from fedul.training.run_files import CONFIG


@dataclass(frozen=True, eq=False)
class RunTarget:
    """A finished run.

    Parameters
    ----------
    name : str
        Its folder, for messages.
    folder : RunFolder or None
        Its folder, if there is one.
    record : RunRecord
        Everything needed to repeat it.
    result : RunResult
        Its result.
    recipe : Recipe
        Configuration and objects that it was trained with.
    schema : Schema or None
        How tables or files became inputs.
    study : Study or None
        Its data, if it is in memory.
    """

    name: str
    folder: RunFolder | None
    record: RunRecord
    result: RunResult
    recipe: Recipe
    schema: Schema | None
    study: Study | None

    @classmethod
    def of(
        cls, run: Run | RunFolder | str | Path, study: Study | None = None, objects: Mapping[str, Any] | None = None
    ) -> RunTarget:
        """Return a run from what `fedul.train` returned, or from its folder.

        Parameters
        ----------
        run : Run, RunFolder or path
            The run.
        study : Study, optional
            Its data.
        objects : mapping of str to object, optional
            Method, algorithm and model that it was trained with, if these were objects and it is a folder.
        """
        objects = objects or {}
        if isinstance(run, Run) and run.record is not None and run.recipe is not None:
            folder = None if run.folder is None else RunFolder(run.folder)
            name, schema = "run" if folder is None else str(folder.path), run.classifier.schema
            return cls(name, folder, run.record, run.result, run.recipe, schema, study or run.study)
        folder = as_run_folder(run)
        name = str(folder.path)
        if not (folder.path / CONFIG).is_file():
            raise InputError(f"{name}: no run in it; give the folder of a run ('fedul train --out').")
        record, result = folder.stored_config(), folder.result()
        if record is None or result is None:
            raise InputError(f"{name}: is not a finished run; continue it with 'fedul train --resume --out {name}'.")
        config, model = record.training, objects.get("model")
        if config.model == "custom" and model is None:
            raise InputError(f"{name}: trained with a custom model; give it with --model (model=...).")
        recipe = Recipe.of(config, **objects)
        if difference := settings_difference(to_dict(config), to_dict(recipe.config)):
            raise InputError(f"{name}: is a different run ({difference}); give the objects it was trained with.")
        return cls(name, folder, record, result, recipe, folder.load_classifier(model).schema, study)

    def load_study(self, truth_column: str | None = None, data: Any = None, priors: Any = None) -> Study:
        """Return the data of the run, if it is still what the run was trained on."""
        study, folder = self.study, None if self.folder is None else self.folder.path
        if truth_column is not None and isinstance(self.schema, TableSchema) and truth_column in self.schema.names:
            raise InputError(
                f"truth-column: '{truth_column}' was trained on as a feature; "
                f"train again with --truth-column {truth_column}."
            )
        if study is None or truth_column is not None or data is not None or priors is not None:
            return load_run_data(self.record, folder, data=data, priors=priors, truth_column=truth_column)
        study = stored_study(study, folder)
        if study.federation.fingerprint() != self.record.data_fingerprint:
            raise InputError(
                f"{self.name}: its data has changed since it was trained; train again, or restore the data."
            )
        return study


def as_run_folder(run: Run | RunFolder | str | Path) -> RunFolder:
    """Return the folder of a run; InputError for a run that has none."""
    if isinstance(run, RunFolder):
        return run
    if not isinstance(run, Run):
        return RunFolder(run)
    if run.folder is None:
        raise InputError("the run has no folder; train it with out=..., or give its study.")
    return RunFolder(run.folder)
