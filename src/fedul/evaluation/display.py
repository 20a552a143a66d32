"""Text of `Evaluation` for a terminal: words first, numbers second, within 80 columns."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.markup import escape
from rich.table import Table

from fedul._utils.display import make_table
from fedul.evaluation.document import Baseline, ClassEstimate, Evaluation
from fedul.evaluation.sentences import CANNOT_SEE, assumption_advice, assumption_verdict, headline, is_contradicted

MAX_MISFITS = 10
NAME_WIDTH = 24
MAX_CLASSES = 12
"""Classes whose confusion matrix fits on a terminal."""


def evaluation_view(evaluation: Evaluation) -> Group:
    """Return an evaluation as text and tables."""
    first, *rest = headline(evaluation)
    refused = evaluation.interval is None
    colour = "red" if refused or rest else "default"
    parts: list[RenderableType] = [f"[bold {colour}]{escape(first)}[/]", *map(escape, rest)]
    if evaluation.accuracy is not None:
        parts.append(f"Measured with labels: [bold]{evaluation.accuracy:.1%}[/].")
    if evaluation.remedies:
        parts += ["What would help:", *(f" • {escape(each)}" for each in evaluation.remedies)]
    if evaluation.interval is not None and evaluation.width_with_labels is not None:
        width = evaluation.interval[1] - evaluation.interval[0]
        parts.append(
            f"The interval is {100 * width:.1f} points wide; with labels of all these rows it would be "
            f"{100 * evaluation.width_with_labels:.1f}. {CANNOT_SEE}"
        )
    if evaluation.baselines:
        parts.append(_baseline_table(evaluation))
    if evaluation.recall:
        parts.append(_class_table(evaluation))
    if evaluation.confusion and len(evaluation.classes) <= MAX_CLASSES:
        parts.append(_confusion_table(evaluation))
    if evaluation.prediction_sets:
        sets = "; ".join(
            f"{each.coverage:.0%}: {each.estimated:.1%}, {each.size:.1f} classes" for each in evaluation.prediction_sets
        )
        parts.append(f"Prediction sets (fedul predict --coverage), estimated coverage and mean size: {sets}.")
    colour = "red" if is_contradicted(evaluation.assumption) else "default"
    parts.append(f"[{colour}]{escape(assumption_verdict(evaluation.assumption))}[/]")
    for misfit in evaluation.assumption.misfits[:MAX_MISFITS]:
        where = f"client '{misfit.client}'" + (f", set '{misfit.set}'" if misfit.set else "")
        parts.append(f" • {escape(where)}: {escape(misfit.why)}")
    parts += [f" • {escape(sentence)}" for sentence in assumption_advice(evaluation.assumption)]
    if evaluation.prior_sensitivity is not None:
        moves = evaluation.prior_sensitivity
        worst = f"; set '{moves.sets[0].set}' of client '{moves.sets[0].client}' matters most" if moves.sets else ""
        parts.append(
            f"within the uncertainty of the priors, a probability changes by {moves.change:.3f} on average, and "
            f"{moves.moved:.1%} of predictions change (up to {moves.moved_high:.1%}){escape(worst)}"
        )
    return Group(*parts)


def _class_table(evaluation: Evaluation) -> Table:
    table = make_table(
        ["class"], ["found (recall)", "right when predicted (precision)"], name_width=NAME_WIDTH, wrap_numbers=True
    )
    for recall, precision in zip(evaluation.recall, evaluation.precision, strict=True):
        table.add_row(escape(recall.class_), _with_interval(recall), _with_interval(precision))
    return table


def _baseline_table(evaluation: Evaluation) -> Table:
    table = make_table(
        ["classifier"],
        ["accuracy", "95 % interval"],
        "accuracies of naive classifiers, estimated in the same way",
        name_width=30,
    )
    found = Baseline("this classifier", evaluation.estimated_accuracy, evaluation.interval)
    for each in (found, *evaluation.baselines):
        value = "-" if each.estimated_accuracy is None else f"{each.estimated_accuracy:.1%}"
        interval = "-" if each.estimated_accuracy is not None else "cannot be estimated"
        interval = interval if each.interval is None else f"{each.interval[0]:.1%} to {each.interval[1]:.1%}"
        table.add_row(each.name, value, interval)
    return table


def _with_interval(estimate: ClassEstimate) -> str:
    return f"{estimate.value:.1%} ({estimate.low:.1%} to {estimate.high:.1%})"


def _confusion_table(evaluation: Evaluation) -> Table:
    table = make_table([""], map(escape, evaluation.classes), "of rows of a class, predicted as", name_width=NAME_WIDTH)
    for name, row in zip(evaluation.classes, evaluation.confusion, strict=True):
        table.add_row(escape(name), *(f"{share:.1%}" for share in row))
    return table
