"""Prior-adjusted standardisation at a site. The adjustment stays in the state folder of the site.

The delivered classifier has no adjustment, and takes rows in units of their site. `fedul predict --site-state` gives it
the adjustment of the site at which it predicts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from fedul._utils.files import read_json, write_json
from fedul.classifier import Classifier
from fedul.core import Matrix, Schema, SiteAdjustments, TaskSpec, UnlabeledSets
from fedul.core.site_adjustment import fit_adjustment, with_adjusted_rows
from fedul.data.adjust_sites import adjusted_columns
from fedul.data.files.site_adjustment_file import read_adjustments, write_adjustments
from fedul.errors import InputError

TASK = "site_adjustment.json"
"""What the adjustment was made for: classes, test prior and schema."""


def adjust_site(client: UnlabeledSets, spec: TaskSpec, folder: Path) -> UnlabeledSets:
    """Return the client of a run with its rows adjusted, and write the adjustment into the run's folder at the site."""
    columns = adjusted_columns(spec.schema, client)
    adjustments = SiteAdjustments({client.name: fit_adjustment(client, spec.test_prior, columns)}, columns)
    write_adjustments(folder, adjustments)
    write_json(folder / TASK, _describe_task(spec.classes, spec.test_prior, spec.schema))
    return with_adjusted_rows([client], adjustments)[0]


def with_site_state(classifier: Classifier, state: Path) -> Classifier:
    """Return a delivered classifier with the adjustment of a site.

    Parameters
    ----------
    classifier : Classifier
        The classifier of a run on Flower with `site-adjustment`.
    state : Path
        State folder of the site, or the folder of one run in it.
    """
    task = _describe_task(classifier.classes, classifier.trained_prior, classifier.schema)
    files = [file for file in (state / TASK, *sorted(state.glob(f"*/{TASK}"))) if file.is_file()]
    fitting = [file.parent for file in files if read_json(file) == task]
    if not fitting:
        raise InputError(f"{state}: has no adjustment for this classifier; give the state folder of a site of its run.")
    if len(fitting) > 1:
        names = ", ".join(folder.name for folder in fitting[:4])
        raise InputError(f"{state}: has adjustments of several runs that fit ({names}); give the folder of one.")
    return replace(classifier, site_adjustments=read_adjustments(fitting[0]))


def _describe_task(classes: Sequence[str], test_prior: Matrix, schema: Schema | None) -> dict[str, Any]:
    described = None if schema is None else schema.to_dict()
    return {"classes": list(classes), "test_prior": test_prior.tolist(), "schema": _as_json(described)}


def _as_json(value: Any) -> Any:
    """Return a value as it is read again from JSON: tuples are lists."""
    if isinstance(value, dict):
        return {key: _as_json(each) for key, each in value.items()}
    return [_as_json(each) for each in value] if isinstance(value, list | tuple) else value
