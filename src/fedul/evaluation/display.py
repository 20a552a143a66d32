"""Text of `Evaluation` and `CheckResult` for a terminal: words first, numbers second, within 80 columns."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.markup import escape
from rich.padding import Padding
from rich.table import Table

from fedul._utils.display import make_table
from fedul.evaluation.check_result import CheckResult, format_share_range
from fedul.evaluation.document import ClassEstimate, Evaluation
from fedul.evaluation.sentences import assumption_advice, assumption_verdict, is_contradicted

MAX_CLIENTS = 20
"""Clients that are shown, the weakest first."""

MAX_MISFITS = 10
NAME_WIDTH = 24
MAX_CLASSES = 12
"""Classes whose confusion matrix fits on a terminal."""

COLOURS = {"enough": "green", "costly": "yellow", "not enough": "red"}
FORECAST_NOTE = (
    "The worth in labels is a forecast from the sizes and priors of the sets; rows, network and training do not enter "
    "it. Where classes are easy to tell apart, expect the lower end."
)


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
    parts += [f" • {escape(sentence)}" for sentence in assumption_advice(evaluation.assumption)]
    if evaluation.prior_sensitivity is not None:
        moves = evaluation.prior_sensitivity
        worst = f"; set '{moves.sets[0].set}' of client '{moves.sets[0].client}' matters most" if moves.sets else ""
        parts.append(
            f"within the uncertainty of the priors, a probability changes by {moves.change:.3f} on average, and "
            f"{moves.moved:.1%} of predictions change (up to {moves.moved_high:.1%}){escape(worst)}"
        )
    return Group(*parts)


def check_view(result: CheckResult) -> Group:
    """Return diagnostics as text and tables."""
    verdict, _, reason = result.summary.partition(":")
    bullets = Table.grid(padding=(0, 1))
    for sentence in result.advice:
        bullets.add_row(" •", escape(sentence))
    totals, hidden = result.totals, len(result.clients) - MAX_CLIENTS
    return Group(
        f"[bold {COLOURS[result.verdict]}]{escape(verdict)}[/]:{escape(reason)}",
        bullets,
        f"\n{totals.clients:,} clients, {totals.sets:,} sets, {totals.rows:,} rows; class mixes differ in "
        f"{totals.rank} of the {totals.classes - 1} ways needed",
        _client_table(result),
        *([f"  and {hidden:,} more, worth more"] if hidden > 0 else []),
        _pair_table(result),
        Padding(f"[dim]{FORECAST_NOTE}[/]", (0, 1)),
    )


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


def _client_table(result: CheckResult) -> Table:
    columns = ["rows", "sets", "rank", "condition", "information", "worth"]
    table = make_table(["client"], columns, "clients, the weakest first", name_width=NAME_WIDTH)
    for client in sorted(result.clients, key=lambda client: (client.efficiency, client.client))[:MAX_CLIENTS]:
        condition = "-" if client.condition is None else f"{client.condition:,.1f}"
        counts = [f"{number:,}" for number in (client.rows, client.sets, client.rank)]
        shares = [format_share_range(share, share) for share in (client.information, client.efficiency)]
        table.add_row(escape(client.client), *counts, condition, *shares)
    return table


def _pair_table(result: CheckResult) -> Table:
    table = make_table(
        ["class", "from class"],
        ["a row is worth", "contrast of sets"],
        "classes told apart worst",
        name_width=NAME_WIDTH,
    )
    for pair in result.pairs:
        worth = format_share_range(pair.low, pair.high)
        table.add_row(escape(pair.first), escape(pair.second), worth, f"{pair.contrast:.2f}")
    return table
