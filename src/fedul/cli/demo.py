"""`fedul demo`: the whole idea in a minute, on the digits that come with the package."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape
from rich.table import Table

from fedul.cli import show
from fedul.config import CompareConfig, DataConfig, TrainConfig
from fedul.errors import InputError

if TYPE_CHECKING:
    from fedul.comparison import Result


def demo(
    out: Annotated[str | None, typer.Option(help="Folder for the runs (default: a new one under runs/).")] = None,
    rounds: Annotated[int, typer.Option(help="Global rounds.", min=1)] = TrainConfig().rounds,
    seed: Annotated[int, typer.Option(help="Seed of everything random.", min=0)] = 0,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Train on handwritten digits across five clients by every method without labels, next to training with them."""
    folder = Path(out or f"runs/demo-{time.strftime('%Y%m%d-%H%M%S')}")
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise InputError(f"{folder}: exists already; choose another --out.")

    from fedul.comparison import compare

    data, training = DataConfig(data="digits", clients=5, sets=(10,), seed=seed), TrainConfig(rounds=rounds, seed=seed)
    results = compare(data, training, CompareConfig(seeds=1), folder, show.Runs())
    if json:
        show.print_json(
            {
                "results": [
                    {
                        "method": result.contestant.title,
                        "labels_used": result.labels_used,
                        "test_error": result.mean,
                        "seconds": result.seconds,
                    }
                    for result in results
                ],
                "run": str(folder),
            }
        )
        return
    _show(results)
    show.out.print(f"runs: [bold]{escape(str(folder))}[/]; more seeds and plots: fedul compare", soft_wrap=True)


def _show(results: Sequence[Result]) -> None:
    table = Table(title="Handwritten digits: 5 clients, 10 sets each; test digits by other writers")
    table.add_column("method", no_wrap=True)
    table.add_column("labels used", justify="right")
    table.add_column("test error", justify="right")
    table.add_column("", no_wrap=True)
    lengths = show.bars([(result.contestant.title, result.mean) for result in results], width=24)
    last = max((i for i, result in enumerate(results) if not result.labels_used), default=-1)
    for i, (result, bar) in enumerate(zip(results, lengths, strict=True)):
        cells = [result.contestant.title, f"{result.labels_used:,}", f"{result.mean:.2%}", bar.split("  ")[-1].strip()]
        table.add_row(*cells, end_section=i == last)
    show.out.print(table)
    errors = {result.contestant.title: result.mean for result in results}
    close = errors["fedul"] < 1.5 * errors["supervised"]
    show.out.print(
        "What was just shown (with the round chosen without labels): clients that know only how common each digit "
        "is in each of their piles of images trained one classifier together"
        + (", and it comes close to the one trained with every label." if close else ".")
    )
