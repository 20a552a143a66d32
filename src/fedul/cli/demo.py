"""`fedul demo`: the whole idea in a minute, on the digits that come with the package."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table

from fedul.cli import show
from fedul.errors import InputError

CONTESTANTS: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("fedul", "fedul", {}),
    ("supervised", "supervised", {}),
    ("supervised-10%", "supervised", {"labels": 0.1}),
)


def demo(
    out: Annotated[str | None, typer.Option(help="Folder for the runs (default: a new one under runs/).")] = None,
    rounds: Annotated[int, typer.Option(help="Global rounds.", min=1)] = 30,
    seed: Annotated[int, typer.Option(help="Seed of everything random.", min=0)] = 0,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Train on handwritten digits across five clients without one label, next to training with labels."""
    from fedul.data.study import load
    from fedul.training import train

    folder = Path(out or f"runs/demo-{time.strftime('%Y%m%d-%H%M%S')}")
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise InputError(f"{folder}: exists already; choose another --out.")
    study = load("digits", clients=5, sets=10, seed=seed)
    results = []
    for name, method, options in CONTESTANTS:
        with show.Rounds(f"{name:<15}") as reporter:
            run = train(
                study,
                out=folder / name.replace("%", "-percent"),
                reporter=reporter,
                method=method,
                method_option=options,
                rounds=rounds,
                seed=seed,
            )
        results.append({"method": name, "labels_used": run.labels_used, "test_error": run.test_error})
    if json:
        show.print_json({"results": results, "run": str(folder)})
        return
    _show(results, rows=len(study.truth.test_labels))
    show.out.print(
        f"runs: [bold]{escape(str(folder))}[/]; look into metrics.jsonl, or go on with: fedul train --help",
        soft_wrap=True,
    )


def _show(results: list[dict[str, Any]], rows: int) -> None:
    table = Table(title=f"Handwritten digits: 5 clients, 10 sets each; {rows:,} test digits")
    table.add_column("method")
    table.add_column("labels used", justify="right")
    table.add_column("test error", justify="right")
    table.add_column("", no_wrap=True)
    errors = [(result["method"], result["test_error"]) for result in results]
    for result, bar in zip(results, show.bars(errors, width=28), strict=True):
        table.add_row(
            result["method"], f"{result['labels_used']:,}", f"{result['test_error']:.2%}", bar.split("  ")[-1].strip()
        )
    show.out.print(table)
    show.out.print(
        "What was just shown (with the round chosen without labels): clients that know only how common each digit "
        "is in each of their piles of images trained one classifier together, and it comes close to the one "
        "trained with every label."
    )
