"""`fedul federation roster`: the public keys of all sites in one file."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

from fedul._utils.display import make_table
from fedul.cli import show
from fedul.cli.documents import RosterDocument
from fedul.cli.options import Json, examples
from fedul.errors import InputError

if TYPE_CHECKING:
    from fedul.engines.flower.identity.roster import Roster

app = typer.Typer(help="Make, show and verify the file with the public keys of all sites.", no_args_is_help=True)
RosterFile = Annotated[str, typer.Argument(help="Roster file.", metavar="ROSTER")]


@app.command("new", epilog=examples("federation roster new roster.toml north.pub south.pub"))
def new(
    file: RosterFile,
    keys: Annotated[list[str], typer.Argument(help="Public keys NAME.pub, one for each site.", metavar="PUB...")],
    json: Json = False,
) -> None:
    """Write the public keys of all sites into ROSTER. NAME.pub is the key of the site NAME."""
    need_flower()
    from fedul.engines.flower.identity.roster import Roster

    roster = Roster.of_files([Path(key) for key in keys])
    roster.write(Path(file))
    _print(file, roster, json, "next: compare the fingerprint of the roster with every site by telephone")


@app.command("show", epilog=examples("federation roster show roster.toml"))
def show_roster(file: RosterFile, json: Json = False) -> None:
    """Print the fingerprints of ROSTER and of the key of every site."""
    need_flower()
    from fedul.engines.flower.identity.roster import Roster

    _print(file, Roster.read(file), json)


@app.command(
    "verify",
    epilog=examples(
        "federation roster verify roster.toml north.pub south.pub",
        "federation roster verify roster.toml --fingerprint SHA256:...",
    ),
)
def verify(
    file: RosterFile,
    keys: Annotated[
        list[str] | None, typer.Argument(help="Public keys that ROSTER must have, NAME.pub.", metavar="[PUB]...")
    ] = None,
    fingerprint: Annotated[str | None, typer.Option(help="Fingerprint that ROSTER must have.")] = None,
    json: Json = False,
) -> None:
    """Check that ROSTER has the given public keys under the names of their files, or the given fingerprint."""
    need_flower()
    from fedul.engines.flower.identity.roster import Roster

    if not keys and not fingerprint:
        raise InputError("nothing to compare with; give public keys NAME.pub, or --fingerprint.")
    roster = Roster.read(file)
    for name, key in Roster.of_files([Path(each) for each in keys or ()]).keys.items():
        if name not in roster.keys:
            raise InputError(f"{file}: has no site '{name}'; it has {', '.join(roster.names)}.")
        if roster.keys[name] != key:
            raise InputError(
                f"{file}: has the key {roster.keys[name].fingerprint} for '{name}', not {key.fingerprint}; ask the "
                "site which is its own, and do not use this roster until then."
            )
    if fingerprint and roster.fingerprint != fingerprint.strip():
        raise InputError(
            f"{file}: has the fingerprint {roster.fingerprint}, not {fingerprint}; let all sites use the same file."
        )
    _print(file, roster, json, "verified")


def need_flower() -> None:
    """Raise an InputError if Flower is not installed, which has the cryptography that these commands need."""
    if importlib.util.find_spec("flwr") is None:
        raise InputError("Flower is not installed; install fedul with it: pip install 'fedul[flower]'.")


def _print(file: str, roster: Roster, json: bool, *lines: str) -> None:
    keys = {name: roster.keys[name].fingerprint for name in roster.names}
    table = make_table([], ["site", "fingerprint of its key"])
    for name, fingerprint in keys.items():
        table.add_row(escape(name), fingerprint)
    text = f"roster {escape(file)}  [bold]{roster.fingerprint}[/]"
    show.print_result(json, RosterDocument(file, roster.fingerprint, keys).to_dict(), table, text, *lines)
