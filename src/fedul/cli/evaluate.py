"""`fedul evaluate`: how good is the classifier of a run? No label is needed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich import box
from rich.markup import escape
from rich.table import Table

from fedul.cli import show
from fedul.cli.options import OwnModel

if TYPE_CHECKING:
    from fedul.appraisal import Appraisal

MISFITS = 10
MOST_CLASSES = 12
"""Classes whose confusion matrix fits on a terminal."""


def evaluate(
    run: Annotated[str, typer.Argument(help="Folder of a finished run.")],
    folds: Annotated[
        int, typer.Option(help="Models that are trained to judge every row by one that did not see it.", min=2)
    ] = 5,
    truth_column: Annotated[
        str | None, typer.Option(help="Column of the run's table with true classes, to compare with.")
    ] = None,
    model: OwnModel = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Estimate the accuracy of a trained classifier without labels, and test what it rests on."""
    from fedul.appraisal import appraise
    from fedul.runs import EVALUATION

    found = appraise(run, show.Runs(), folds=folds, truth_column=truth_column, model=model)
    if json:
        show.print_json(found.plain())
        return
    _show(found)
    show.out.print(
        f"all figures are in [bold]{escape(run)}/{EVALUATION}[/]; a page to show: fedul report {escape(run)}",
        soft_wrap=True,
    )


def _show(found: Appraisal) -> None:
    figures = found.plain()
    low, high = figures["interval"]
    sentence = f"estimated accuracy [bold]{figures['estimated_accuracy']:.1%}[/] (95 % interval {low:.1%} to {high:.1%}"
    if found.accuracy is not None:
        sentence += f"; in truth [bold]{found.accuracy:.1%}[/]"
    show.out.print(sentence + f"), from {figures['rows']:,} rows and no label", soft_wrap=True)
    show.out.print(
        f"(labels of all these rows would give an interval {figures['width_with_labels']:.1%} wide; this one is "
        f"{high - low:.1%})",
        soft_wrap=True,
    )
    show.out.print(_classes(figures))
    if len(figures["classes"]) <= MOST_CLASSES:
        show.out.print(_confusion(figures))
    _show_assumption(found)
    if found.sensitivity is not None:
        moves = found.sensitivity
        worst = f"; set '{moves.sets[0].set}' of client '{moves.sets[0].client}' matters most" if moves.sets else ""
        show.out.print(
            f"within what is known of the priors, a probability moves by {moves.change:.3f} on average, and "
            f"{moves.moved:.1%} of predictions change (up to {moves.moved_high:.1%}){escape(worst)}",
            soft_wrap=True,
        )


def _show_assumption(found: Appraisal) -> None:
    test = found.assumption
    if test.p_value is None:
        show.out.print(f"whether all sets share the same kinds of cases cannot be tested: {escape(test.reason or '')}.")
        return
    if not test.misfits:
        show.out.print(
            f"[green]the sets fit together[/]: nothing speaks against the same kinds of cases in all of them "
            f"(p = {test.p_value:.2g})",
            soft_wrap=True,
        )
        return
    show.out.print(f"[red]not all sets hold the same kinds of cases[/] (p = {test.p_value:.2g}):", soft_wrap=True)
    for misfit in test.misfits[:MISFITS]:
        who = f"client '{misfit.client}'" + (f", set '{misfit.set}'" if misfit.set else "")
        show.out.print(f" • {escape(who)}: {escape(misfit.why)}", soft_wrap=True)
    show.out.print("the estimate above rests on that; look into these before you rely on it", soft_wrap=True)


def _classes(figures: dict[str, Any]) -> Table:
    table = Table(box=box.SIMPLE_HEAD)
    table.add_column("class", no_wrap=True)
    table.add_column("found (recall)", justify="right")
    table.add_column("right when predicted (precision)", justify="right")
    for k, name in enumerate(figures["classes"]):
        cells = [figures[kind][k] for kind in ("recall", "precision")]
        table.add_row(escape(name), *(f"{c['value']:.1%} ({c['low']:.1%} to {c['high']:.1%})" for c in cells))
    return table


def _confusion(figures: dict[str, Any]) -> Table:
    table = Table(title="of rows of a class, predicted as", title_justify="left", box=box.SIMPLE_HEAD)
    table.add_column("", no_wrap=True)
    for name in figures["classes"]:
        table.add_column(escape(name), justify="right")
    for name, row in zip(figures["classes"], figures["confusion"], strict=True):
        table.add_row(escape(name), *(f"{share:.1%}" for share in row))
    return table
