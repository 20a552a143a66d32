"""`fedul federation`: the same run on real sites, over Flower."""

from __future__ import annotations

import importlib.util
import time
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape

from fedul.cli import show
from fedul.cli.options import with_options
from fedul.config import CoordinatorConfig, TrainConfig
from fedul.engines.flower.folder import LEFT_OUT, new_folder
from fedul.errors import InputError

app = typer.Typer(
    help="Train across real sites, over Flower: each keeps its rows and class priors.", no_args_is_help=True
)

Json = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]


@app.command("new", epilog="Example:  fedul federation new respiratory --classes flu,cold --sites 3")
@with_options(CoordinatorConfig, TrainConfig, leave_out=("resume", *LEFT_OUT))
def new(
    folder: Annotated[str, typer.Argument(help="Folder to write, for 'flwr run'.")],
    json: Json = False,
    *,
    settings: dict[str, Any],
) -> None:
    """Write the folder that 'flwr run' needs, with settings for coordinator and site and a README of what to type."""
    from fedul.engines.flower.coordinator import read_settings

    settings = {"out": str(Path(folder).absolute() / "runs" / "run-1"), **settings}
    if "classes" not in settings and "test_prior" in settings:
        raise InputError("test-prior: is of classes; give them as well (--classes).")
    read_settings({"classes": "A,B", **settings})  # to say now what is wrong; classes may be filled in later
    files = [str(file) for file in new_folder(Path(folder), settings)]
    if json:
        show.print_json({"files": files})
        return
    for file in files:
        show.out.print(escape(file), soft_wrap=True)
    show.out.print(f"next: read {escape(folder)}/README.md", soft_wrap=True)


@app.command("keys", epilog="Example:  fedul federation keys keys --host coordinator.example.org")
def keys(
    folder: Annotated[str, typer.Argument(help="Folder to write the files into.")],
    host: Annotated[list[str] | None, typer.Option(help="Name or address of the coordinator (repeatable).")] = None,
    site: Annotated[list[str] | None, typer.Option(help="Name of a site to make a key for (repeatable).")] = None,
    json: Json = False,
) -> None:
    """Make a test certificate for the coordinator (--host), or keys by which sites are known (--site)."""
    _need_flower()
    from fedul.engines.flower.keys import make_keys

    if not host and not site:
        raise InputError("say what is needed: --host NAME for the coordinator's certificate, --site NAME for a key.")
    files = [str(file) for file in make_keys(Path(folder), host or (), site or ())]
    if json:
        show.print_json({"files": files})
        return
    for file in files:
        secret = "  (keep it secret)" if file.endswith(".key") else ""
        show.out.print(escape(file) + secret, soft_wrap=True)


@app.command("demo", epilog="Example:  fedul federation demo --rounds 5")
def demo(
    rounds: Annotated[int, typer.Option(help="Global rounds.", min=1)] = 5,
    sites: Annotated[int, typer.Option(help="Sites, each a process of its own on this machine.", min=2, max=20)] = 5,
    algorithm: Annotated[str, typer.Option(help="How updates become the next global model.")] = "fedavg",
    out: Annotated[str | None, typer.Option(help="Folder to keep (default: a new one under runs/).")] = None,
    json: Json = False,
) -> None:
    """Train on the digits across sites on this machine: a real SuperLink and real SuperNodes, with TLS and keys."""
    _need_flower()
    from fedul.cli.federation_demo import run_demo

    folder = Path(out or f"runs/federation-{time.strftime('%Y%m%d-%H%M%S')}")
    if folder.exists() and any(folder.iterdir()):
        raise InputError(f"{folder}: is there already and not empty; choose another --out.")
    run_demo(folder.absolute(), sites=sites, rounds=rounds, algorithm=algorithm, as_json=json)


def _need_flower() -> None:
    if importlib.util.find_spec("flwr") is None:
        raise InputError("Flower is not installed; install fedul with it: pip install 'fedul[flower]'.")
