"""What trackers record of a run, as flat names and values: parameters, metrics of rounds and sites, the result."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import fields
from typing import Any

from fedul._utils.settings import to_dict
from fedul.core import RoundMetrics, SiteMetrics
from fedul.evaluation.document import Evaluation
from fedul.training import RunRecord, RunResult

LONGEST_NAME = 80
"""Characters of the name of a site or setting in the name of a series."""


def safe_name(name: str) -> str:
    """Return a name of a site that all trackers accept as a part of a path; different names stay different.

    >>> safe_name("north"), safe_name("St. Mary's/West")
    ('north', 'St. Mary_s_West-7f2888')
    """
    safe = re.sub(r"[^\w\-. ]", "_", name)[:LONGEST_NAME]
    if safe == name and safe.strip(" .") == name:
        return name
    return f"{safe}-{hashlib.sha256(name.encode()).hexdigest()[:6]}"


def parameters(record: RunRecord) -> dict[str, str]:
    """Return the settings of a run, those of its data as "data.NAME"."""
    settings = {
        **to_dict(record.training),
        **{f"data.{name}": value for name, value in record.data.items()},
        **{f"version.{name}": value for name, value in record.software.items()},
    }
    return {name: str(value) for name, value in settings.items() if value not in (None, {}, [], "")}


def round_values(metrics: RoundMetrics) -> dict[str, float]:
    """Return the metrics of a round by the name of their series; those of a site as "sites/SITE/NAME".

    >>> line = RoundMetrics(3, 0.5, 2, sites={"north": SiteMetrics("trained", 0.4, 60)})
    >>> values = round_values(line)
    >>> values["loss"], values["sites/north/loss"], values["sites/north/failed"], "epsilon" in values
    (0.5, 0.4, 0.0, False)
    """
    values = dict(_numbers(metrics))
    del values["round"]
    values |= {f"directive/{safe_name(name)}": float(value) for name, value in metrics.directive.items()}
    for name, site in metrics.sites.items():
        prefix = f"sites/{safe_name(name)}"
        values[f"{prefix}/failed"] = float(site.state == "failed")
        values |= {f"{prefix}/{key}": value for key, value in _numbers(site)}
    return values


def result_values(result: RunResult, evaluation: Evaluation | None = None) -> dict[str, float]:
    """Return the result of a run as "final/NAME"; that of a site as "final/sites/SITE/NAME"."""
    values = {f"final/{name}": value for name, value in _numbers(result)}
    for name, epsilon in result.epsilon.items():
        if epsilon is not None:
            values[f"final/sites/{safe_name(name)}/epsilon"] = epsilon
    if evaluation is not None and evaluation.estimated_accuracy is not None:
        values["final/estimated_accuracy"] = evaluation.estimated_accuracy
    return values


def _numbers(document: RoundMetrics | SiteMetrics | RunResult) -> Iterator[tuple[str, float]]:
    for f in fields(document):
        value: Any = getattr(document, f.name)
        if isinstance(value, int | float) and not isinstance(value, bool):
            yield f.name, float(value)


def markdown_table(values: Mapping[str, str]) -> str:
    """Return names and values as a Markdown table.

    >>> print(markdown_table({"rounds": "3"}))
    | name | value |
    |---|---|
    | rounds | 3 |
    """
    lines = [f"| {name} | {_cell(value)} |" for name, value in values.items()]
    return "\n".join(["| name | value |", "|---|---|", *lines])


def _cell(value: str) -> str:
    return value.replace("|", "\\|").replace("\n", " ")
