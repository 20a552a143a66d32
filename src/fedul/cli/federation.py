"""`fedul federation`: training on real sites, over Flower."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table

from fedul._utils.display import make_table
from fedul._utils.files import require_unused
from fedul.cli import audit, roster, show
from fedul.cli.completion import complete_algorithm
from fedul.cli.documents import FilesDocument
from fedul.cli.options import Json, default_folder, examples, join_lines, with_options
from fedul.config import TrainConfig
from fedul.core import RoundMetrics
from fedul.engines.flower.deploy.app_folder import UNUSED_SETTINGS, write_app_folder
from fedul.engines.flower.settings import CoordinatorConfig
from fedul.errors import InputError

app = typer.Typer(
    help="Train across real sites, over Flower. Rows and class priors stay at their site.", no_args_is_help=True
)
app.add_typer(roster.app, name="roster")
app.command(
    "audit",
    help=join_lines(audit.audit.__doc__),
    epilog=examples(
        "federation audit RUN",
        "federation audit RUN --attacks canaries,class-priors --canaries 1000",
        "federation audit --data patients.csv --priors prevalence.csv --set-column month --dp-epsilon 3",
    ),
)(audit.audit)


@app.command("new", epilog=examples("federation new respiratory --classes flu,cold --sites 3"))
@with_options(CoordinatorConfig, TrainConfig, leave_out=("resume", *UNUSED_SETTINGS))
def new(
    folder: Annotated[str, typer.Argument(help="Folder to write, for 'flwr run'.")],
    json: Json = False,
    *,
    settings: dict[str, Any],
) -> None:
    """Write FOLDER, which 'flwr run' needs: settings of coordinator and site, and a README with all commands."""
    from fedul.engines.flower.server.coordinator import read_settings
    from fedul.engines.secure_sums import FEWEST_CLIENTS, check_enough_sites

    place = Path(folder).absolute()
    settings = {"out": str(place / "runs" / "run-1"), **settings}
    if settings.get("secure_aggregation"):
        check_enough_sites(int(settings.get("sites", CoordinatorConfig.sites)))
        settings = {"roster": str(place / "roster.toml"), "min_sites": FEWEST_CLIENTS, **settings}
    if "classes" not in settings and "test_prior" in settings:
        raise InputError("test-prior: needs the classes too (--classes).")
    read_settings({"classes": "A,B", **settings})  # refuses wrong settings now; classes may be filled in later
    files = [str(file) for file in write_app_folder(Path(folder), settings)]
    show.print_result(
        json, FilesDocument(files).to_dict(), *map(escape, files), f"next: read {escape(folder)}/README.md"
    )


@app.command(
    "keys", epilog=examples("federation keys keys --host coordinator.example.org", "federation keys keys --site north")
)
def keys(
    folder: Annotated[str, typer.Argument(help="Folder to write the files into.")],
    host: Annotated[list[str] | None, typer.Option(help="Name or address of the coordinator (repeatable).")] = None,
    site: Annotated[list[str] | None, typer.Option(help="Name of a site to make a key for (repeatable).")] = None,
    json: Json = False,
) -> None:
    """Write a test certificate for the coordinator (--host) or keys that identify sites (--site) into FOLDER."""
    roster.need_flower()
    from fedul.engines.flower.deploy.keys import make_keys

    if not host and not site:
        raise InputError("nothing to make; give --host NAME for a certificate, or --site NAME for a key.")
    files = [str(file) for file in make_keys(Path(folder), host or (), site or ())]
    lines = [escape(file) + ("  (keep it secret)" if file.endswith(".key") else "") for file in files]
    show.print_result(json, FilesDocument(files).to_dict(), *lines)


@app.command("site", epilog=examples("federation site site.toml"))
def site(settings: Annotated[str, typer.Argument(help="Settings file of the site.", metavar="SITE_TOML")]) -> None:
    """Take part in runs as the site of SITE_TOML, until Ctrl-C. Only the fedul that is installed here is executed."""
    roster.need_flower()
    from fedul.engines.flower.site.launcher import run_site

    run_site(settings)


@app.command("demo", epilog=examples("federation demo --rounds 5", "federation demo --secure-aggregation"))
def demo(
    rounds: Annotated[int, typer.Option(help="Global rounds.", min=1)] = 5,
    sites: Annotated[int, typer.Option(help="Sites, each in separate processes on this machine.", min=2, max=20)] = 5,
    algorithm: Annotated[
        str, typer.Option(help="How updates become the next global model.", autocompletion=complete_algorithm)
    ] = "fedavg",
    secure_aggregation: Annotated[
        bool, typer.Option("--secure-aggregation", help="Hide every single update: the coordinator learns sums only.")
    ] = False,
    out: Annotated[str | None, typer.Option(help="Folder to write (default: a new one under runs/).")] = None,
    json: Json = False,
) -> None:
    """Train on digits across sites on this machine, with a real SuperLink, real SuperNodes, TLS and keys."""
    roster.need_flower()
    from fedul.engines.flower.deploy.demo import run_demo

    folder, started = Path(out or default_folder("federation")), time.monotonic()
    require_unused(folder, "--out")
    with show.TrainingProgress(f"{sites} sites") as progress:
        run, error = run_demo(
            folder.absolute(),
            sites=sites,
            rounds=rounds,
            algorithm=algorithm,
            callback=progress,
            secure=secure_aggregation,
        )
    history, seconds = run.history(), round(time.monotonic() - started, 1)
    rounds_done = [metrics.to_dict() for metrics in history]
    show.print_result(
        json,
        {"run": str(run.path), "test_error": error, "seconds": seconds, "rounds": rounds_done},
        _as_table(history),
        f"test error [bold]{error:.2%}[/], trained without labels; all processes have ended",
        f"run folder [bold]{escape(str(run.path))}[/], logs beside it",
    )


def _as_table(history: Sequence[RoundMetrics]) -> Table:
    table = make_table([], ["round", "sites", "loss", "held-out", "seconds", "KB sent", "KB received"])
    for metrics in history:
        traffic = [f"{(count or 0) / 1024:,.0f}" for count in (metrics.bytes_sent, metrics.bytes_received)]
        losses = ["" if value is None else f"{value:.3f}" for value in (metrics.loss, metrics.held_out_loss)]
        table.add_row(str(metrics.round), str(metrics.clients), *losses, f"{metrics.seconds:.1f}", *traffic)
    return table
