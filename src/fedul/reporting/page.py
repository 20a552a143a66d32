"""The report page of a run: one self-contained HTML file, without scripts and external resources.

The templates are in `templates`. The page works on screens of any size, in print and with screen readers; text comes
first, then numbers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import fields
from functools import cache
from typing import TYPE_CHECKING, Any

from fedul._utils.display import counted
from fedul._utils.settings import to_dict
from fedul.auditing.document import PROTECTIONS
from fedul.auditing.table import HEADS, audit_lines
from fedul.config import BenchmarkDataConfig, FileDataConfig, TrainConfig
from fedul.core import RoundMetrics
from fedul.evaluation.document import MAJORITY, SOFT_SETS, TOP_CLASS, Baseline, Evaluation
from fedul.evaluation.sentences import (
    ASSUMPTION,
    CANNOT_SEE,
    LABELS_USED,
    NOT_BETTER,
    assumption_advice,
    assumption_verdict,
    cautions,
    headline,
    is_clearly_better,
    p_value_text,
)
from fedul.privacy.statement import PrivacyStatement
from fedul.reporting import wording
from fedul.reporting.charts import Line, LineChart, Scatter
from fedul.reporting.chosen_round import explain_round
from fedul.reporting.report_data import ReportData

if TYPE_CHECKING:
    from jinja2 import Environment

SECTIONS = {
    "answer": ("In short", "In short"),
    "baselines": ("Naive classifiers", "Compared with naive classifiers"),
    "priors": ("Class priors", "Class priors"),
    "learning": ("Learning curves", "Learning curves"),
    "confusion": ("Confusion matrix", "Estimated confusion matrix"),
    "calibration": ("Calibration", "Calibration by set"),
    "assumption": ("Assumption test", "Assumption test"),
    "clients": ("Clients", "Contributions of the clients"),
    "privacy": ("Privacy", "What is protected"),
    "audit": ("Attacks", "Attacks on this configuration"),
    "configuration": ("Configuration", "Configuration"),
}
"""Sections by name: title in the table of contents, and title on the page."""

BASELINES = {
    MAJORITY: "always predicts the most common class",
    TOP_CLASS: "predicts the most common class of a row's set, so it needs the set of every row",
    SOFT_SETS: "is trained with the class priors of a row's set as soft labels",
}
"""What naive classifiers do."""

CLEARLY_BETTER = (
    "Clearly better means: the whole interval lies above an accuracy that follows from the priors, and the estimate "
    "above that of the logistic regression. A classifier that needs the set of a row is not counted."
)

NO_SITE = "no site answered that had enough sets and held-out rows for an evaluation"
"""Why there is no evaluation."""

MAX_SETS = 40
"""Maximum number of sets in the table of class priors."""

MAX_ROUNDS = 30
"""Maximum number of rounds in the table; of a longer run, every n-th round is shown."""

SettingRows = list[tuple[str, Any, str]]


def render_page(data: ReportData) -> str:
    """Return the page as HTML; the same data gives the same text."""
    evaluation = data.evaluation
    shares = zip(data.classes, data.test_prior, strict=False)  # a run that has not begun may have no prior
    stride = max(1, math.ceil(len(data.history) / MAX_ROUNDS))
    template = environment().get_template("page.html.j2")
    return template.render(
        data=data,
        sections=SECTIONS,
        no_site=NO_SITE,
        headline=headline(evaluation) if evaluation else [],
        cannot_see=CANNOT_SEE,
        labels_used=LABELS_USED,
        cautions=cautions(evaluation, data.check),
        comparison=_comparison(evaluation),
        compared=_compared(evaluation),
        figures=_key_figures(data),
        class_mix=[f"{name} {wording.percent(share)}" for name, share in shares],
        priors=_priors(data),
        charts=metric_charts(data.history, data.selected_round),
        chosen_round=explain_round(data.result, data.record.training, data.history) if data.result else "",
        stride=stride,
        rounds=[
            metrics for i, metrics in enumerate(data.history) if i % stride == 0 or _is_always_shown(metrics, data)
        ],
        calibration=Scatter(evaluation.calibration) if evaluation and evaluation.calibration else None,
        assumption=ASSUMPTION,
        verdict=assumption_verdict(evaluation.assumption) if evaluation else "",
        set_effects=_set_effects(evaluation),
        advice=assumption_advice(evaluation.assumption) if evaluation else [],
        attacks=audit_lines(data.audit) if data.audit else [],
        protections=[HEADS[name] for name in PROTECTIONS],
        settings=_settings(data),
        choice=data.result.choice if data.result else None,
    )


@cache
def environment() -> Environment:
    """Return the environment of all templates."""
    from jinja2 import Environment, PackageLoader, StrictUndefined
    from markupsafe import Markup

    loader = PackageLoader("fedul.reporting")
    environment = Environment(
        loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    for name in ("percent", "interval", "interval_digits", "number", "listed", "setting", "size", "duration", "clock"):
        environment.filters[name] = getattr(wording, name)
    environment.filters["counted"] = counted
    environment.filters["digits"] = lambda value, digits=6: f"{value:.{digits}g}"
    style = loader.get_source(environment, "page.css")[0]
    environment.globals["style"] = Markup(style)
    return environment


def _key_figures(data: ReportData) -> list[tuple[str, str]]:
    """Return names and values of the most important numbers."""
    figures, evaluation, result = list[tuple[str, str]](), data.evaluation, data.result
    if evaluation is not None and evaluation.estimated_accuracy is not None and evaluation.interval is not None:
        digits = wording.interval_digits(evaluation.interval)
        figures.append(("estimated accuracy", wording.percent(evaluation.estimated_accuracy, digits)))
        figures.append(("95 % interval", wording.interval(evaluation.interval, digits)))
    if evaluation is not None and evaluation.accuracy is not None:
        figures.append(("accuracy, measured with labels", wording.percent(evaluation.accuracy, 1)))
    if result is not None and result.test_error is not None:
        figures.append(("error on labelled test rows", wording.percent(result.test_error, 1)))
    if result is not None:
        figures.append(("labels used", wording.number(result.labels_used)))
        figures += [(f"epsilon of each {each.unit}", _epsilon(each)) for each in result.privacy]
    if data.sizes is not None:
        figures += [("rows", wording.number(data.sizes[0])), ("clients", wording.number(data.sizes[1]))]
    if result is not None:
        figures.append(("round delivered", f"{result.selected_round:,} of {len(data.history):,}"))
    return figures


def _epsilon(statement: PrivacyStatement) -> str:
    return wording.number(statement.epsilon, 3) if statement.guarantee else "no guarantee"


def _comparison(evaluation: Evaluation | None) -> str:
    """Return whether the classifier is better than the naive ones, and by which criterion."""
    if evaluation is None or evaluation.interval is None:
        return "The accuracy of this classifier cannot be estimated, so it cannot be compared."
    better = is_clearly_better(evaluation)
    if better is None:
        return "The sets contradict the assumption, so it cannot be said whether this classifier is better."
    if better:
        return f"This classifier is clearly better than naive ones. {CLEARLY_BETTER}"
    return f"{next(each for each in headline(evaluation) if each.startswith(NOT_BETTER))} {CLEARLY_BETTER}"


def _compared(evaluation: Evaluation | None) -> list[tuple[Baseline, str]]:
    """Return this classifier and the naive ones, with what they do; empty if there are none."""
    if evaluation is None or not evaluation.baselines:
        return []
    trained = Baseline("this classifier", evaluation.estimated_accuracy, evaluation.interval)
    return [(trained, ""), *((each, BASELINES.get(each.name, "")) for each in evaluation.baselines)]


def _set_effects(evaluation: Evaluation | None) -> str:
    """Return how far sets move the score of the classifier beyond their class mix; empty if this is not seen."""
    effects = None if evaluation is None else evaluation.set_effects
    if effects is None or effects.visible <= 0:
        return ""
    return (
        "The predictions show differences between sets beyond their class mix: these move the score of the classifier "
        f"at least {wording.percent(effects.visible)} as much as the class mix does ({p_value_text(effects.p_value)})."
    )


def _priors(data: ReportData) -> list[tuple[str, list[tuple[str, Any]]]]:
    """Return, for each client, the names and class priors of its sets, at most `MAX_SETS` in total."""
    shown, left = [], MAX_SETS
    for client in data.clients or ():
        sets = list(zip(client.sets, client.priors, strict=True))[:left]
        left -= len(sets)
        if sets:
            shown.append((client.name, sets))
    return shown


def metric_charts(history: Sequence[RoundMetrics], selected_round: int | None) -> list[LineChart]:
    """Return charts of the losses, and of the test error where there is one."""
    losses = [Line.of("training rows", history, "loss"), Line.of("held-out rows", history, "held_out_loss")]
    errors = [Line.of("test rows", history, "test_error")]
    charts = []
    for name, caption, lines in (
        ("loss-chart", "Loss", losses),
        ("error-chart", "Error on labelled test rows", errors),
    ):
        if drawn := [line for line in lines if line.points]:
            charts.append(LineChart(name, caption, drawn, selected_round, share=lines is errors))
    return charts


def _is_always_shown(metrics: RoundMetrics, data: ReportData) -> bool:
    """Return whether this is the delivered or the last round."""
    return metrics.round in (data.selected_round, len(data.history))


def _settings(data: ReportData) -> dict[str, SettingRows]:
    """Return tables by title: settings with values and help texts, then versions and fingerprints."""
    record, result = data.record, data.result
    data_kind = FileDataConfig if "client_column" in record.data else BenchmarkDataConfig
    helps = {f.name: str(f.metadata.get("help", "")) for kind in (TrainConfig, data_kind) for f in fields(kind)}
    tables = {
        name: [(key.replace("_", "-"), value, helps.get(key, "")) for key, value in settings.items()]
        for name, settings in (("Data", record.data), ("Training", to_dict(record.training)))
        if settings
    }
    known: dict[str, Any] = {
        **{f"version of {name}": version for name, version in record.software.items()},
        "fingerprint of the data": record.data_fingerprint,
        "SHA-256 of the last weights": result and result.weights_sha256,
        "temperature of the probabilities": data.temperature,
        "seconds of training": result and result.seconds,
    }
    tables["Software and fingerprints"] = [(key, value, "") for key, value in known.items() if value is not None]
    return tables
