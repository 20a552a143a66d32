"""`fedul federation audit`: attacks on the configuration of a run, with numbers."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from rich.markup import escape

from fedul._utils.settings import build_config, parse_names
from fedul.auditing.document import ATTACKS, CANARIES, DEFAULT_EPSILON, SHADOWS
from fedul.cli import show
from fedul.cli.options import Json, default_folder, select_settings, with_options
from fedul.config import BenchmarkDataConfig, FileDataConfig, TrainConfig
from fedul.data.load import resolve_data_config
from fedul.errors import InputError

DATA_CONFIGS = (FileDataConfig, BenchmarkDataConfig)
OF_RUN = ("data", "priors", "model")
"""Options that may be given with a finished run: where its data is now, and its own model."""


@with_options(*DATA_CONFIGS, TrainConfig)
def audit(
    settings: dict[str, Any],
    run: Annotated[
        str | None, typer.Argument(help="Folder of a finished run. Without it, --data is trained on first.")
    ] = None,
    attacks: Annotated[
        str | None,
        typer.Option(
            help="Attacks to run, separated by commas: membership, canaries, class-priors, gradient-inversion "
            "(default: all)."
        ),
    ] = None,
    shadows: Annotated[
        int, typer.Option(help="Models that are trained for membership attacks, for each configuration.", min=4)
    ] = SHADOWS,
    canaries: Annotated[
        int, typer.Option(help="Rows that are added to a run to bound epsilon from below.", min=20)
    ] = CANARIES,
    epsilon: Annotated[float, typer.Option(help="Epsilon of private rows, if the run has none.")] = DEFAULT_EPSILON,
    out: Annotated[
        str | None, typer.Option(help="With --data and without RUN: run folder to train into (default: below runs/).")
    ] = None,
    json: Json = False,
) -> None:
    """Attack the configuration of RUN, and measure what attackers get.

    Membership of rows in the training data, a lower bound on epsilon from canaries, class priors, and rows of one step:
    without protection, with differential privacy of rows, and with secure aggregation. The result is written to
    audit.json in the run folder; 'fedul report' shows it.
    """
    if run is not None:
        _check_settings_of_run(settings, out)
        given = {name: settings[name] for name in OF_RUN if name in settings}
    else:
        if "data" not in settings:
            raise InputError("nothing to audit; give RUN, the folder of a finished run, or --data.")
        training = build_config(TrainConfig, select_settings(settings, TrainConfig))
        data = resolve_data_config(select_settings(settings, *DATA_CONFIGS))
        given = {}
    # Imported only now, so that a wrong option is refused before torch is loaded.
    from fedul.auditing.audit import audit as run_audit
    from fedul.auditing.audit import check_attacks
    from fedul.training.run_files import AUDIT

    chosen = check_attacks(ATTACKS if attacks is None else parse_names(attacks))
    with show.TrainingProgress("audit") as progress:
        if run is None:
            from fedul.data.load import load_study
            from fedul.training.train import train

            run = out or default_folder("audit")
            train(load_study(data), training, out=run, callbacks=[progress])
        result = run_audit(
            run,
            attacks=chosen,
            shadows=shadows,
            canaries=canaries,
            epsilon=epsilon,
            callbacks=[progress],
            **given,
        )
    after = f"all numbers are in [bold]{escape(run)}/{AUDIT}[/]; for a page: {show.command('report', run)}"
    show.print_result(json, result.to_dict(), result, after)


def _check_settings_of_run(settings: dict[str, Any], out: str | None) -> None:
    """Refuse settings that a finished run has already."""
    others = [name for name in settings if name not in OF_RUN] + (["out"] if out is not None else [])
    if others:
        name = others[0].replace("_", "-")
        raise InputError(f"{name}: is that of the run; leave it out, or leave out RUN to train on --data.")
