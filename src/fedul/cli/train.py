"""`fedul train`: a data set, a method and an algorithm in; a run folder with a classifier out."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape

from fedul.cli import show
from fedul.cli.options import merged, part, with_options
from fedul.config import DataConfig, OwnDataConfig, RunConfig, TrainConfig
from fedul.data.chosen import data_config
from fedul.settings import make

KINDS = (RunConfig, OwnDataConfig, DataConfig, TrainConfig)


@with_options(*KINDS)
def train(
    settings: dict[str, Any],
    config: Annotated[str | None, typer.Option(help="TOML file with options by name; flags win.")] = None,
) -> None:
    """Train one classifier across clients that hold only unlabeled sets."""
    options = merged(settings, config, KINDS)
    command = make(RunConfig, part(RunConfig, options))
    if command.resume and command.out is not None:
        options = {**_stored(command.out), **options}
    training = make(TrainConfig, part(TrainConfig, options))
    data = data_config({**part(OwnDataConfig, options), **part(DataConfig, options)})
    # Only now, so that a wrong option is told before torch is loaded.
    from fedul.data.study import load_config
    from fedul.training import train as run_training

    name = Path(data.data).stem
    folder = Path(command.out or f"runs/{name}-{training.method}-{time.strftime('%Y%m%d-%H%M%S')}")
    with show.Rounds(f"{training.method} on {name}") as reporter:
        study = load_config(data)
        run = run_training(
            study,
            out=folder,
            resume=command.resume,
            force=command.force,
            reporter=reporter,
            **{name: getattr(training, name) for name in training.__dataclass_fields__},
        )
    if command.json:
        show.print_json(run.summary())
        return
    chosen = f"round {run.selected_round} of {len(run.history)}, chosen by {training.select}"
    if run.test_error is None:
        rows = sum(len(client.train) + len(client.held_out) for client in study.federation.clients)
        show.out.print(f"trained on {rows:,} rows of {len(study.federation.clients)} clients ({chosen})")
    else:
        show.out.print(f"test error [bold]{run.test_error:.2%}[/] ({chosen}; labels used: {run.labels_used})")
    place = escape(str(folder))
    show.out.print(f"run folder [bold]{place}[/]; classify new rows with: fedul predict {place} FILE", soft_wrap=True)


def _stored(out: str) -> dict[str, Any]:
    """The options of the run in a folder; none if there is no run yet."""
    from fedul.runs import RunFolder

    stored = RunFolder(out).stored_config() or {}
    return {**stored.get("data", {}), **stored.get("training", {})}
