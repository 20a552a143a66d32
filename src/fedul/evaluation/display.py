"""Text of `Evaluation` for a terminal: words first, numbers second, within 80 columns."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.markup import escape
from rich.table import Table

from fedul._utils.display import make_table
from fedul.evaluation.document import ClassEstimate, Evaluation
from fedul.evaluation.sentences import assumption_verdict, is_contradicted

MAX_MISFITS = 10
NAME_WIDTH = 24
MAX_CLASSES = 12
"""Classes whose confusion matrix fits on a terminal."""


def evaluation_view(evaluation: Evaluation) -> Group:
    """Return an evaluation as text and tables."""
    low, high = evaluation.interval
    known = "" if evaluation.accuracy is None else f"; measured with labels [bold]{evaluation.accuracy:.1%}[/]"
    used = f"{evaluation.labels_used:,} labels" if evaluation.labels_used else "no label"
    parts: list[RenderableType] = [
        f"estimated accuracy [bold]{evaluation.estimated_accuracy:.1%}[/] "
        f"(95 % interval {low:.1%} to {high:.1%}{known}), from {evaluation.rows:,} rows and {used}",
        f"(labels of all these rows would give an interval {evaluation.width_with_labels:.1%} wide; this one is "
        f"{high - low:.1%})",
    ]
    if evaluation.recall:
        parts.append(_class_table(evaluation))
    if evaluation.confusion and len(evaluation.classes) <= MAX_CLASSES:
        parts.append(_confusion_table(evaluation))
    colour = "red" if is_contradicted(evaluation.assumption) else "default"
    parts.append(f"[{colour}]{escape(assumption_verdict(evaluation.assumption))}[/]")
    for misfit in evaluation.assumption.misfits[:MAX_MISFITS]:
        where = f"client '{misfit.client}'" + (f", set '{misfit.set}'" if misfit.set else "")
        parts.append(f" • {escape(where)}: {escape(misfit.why)}")
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


def _with_interval(estimate: ClassEstimate) -> str:
    return f"{estimate.value:.1%} ({estimate.low:.1%} to {estimate.high:.1%})"


def _confusion_table(evaluation: Evaluation) -> Table:
    table = make_table([""], map(escape, evaluation.classes), "of rows of a class, predicted as", name_width=NAME_WIDTH)
    for name, row in zip(evaluation.classes, evaluation.confusion, strict=True):
        table.add_row(escape(name), *(f"{share:.1%}" for share in row))
    return table
