"""Sites with identity keys and a roster, for runs with secure aggregation."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fedul.engines.flower.deploy.keys import make_keys
from fedul.engines.flower.identity.roster import Roster

from .test_parity import settings
from .wire import digits_sites


def write_identities(folder: Path, names: Sequence[str]) -> Path:
    """Write a key for each site and a roster of all, and return the roster file."""
    make_keys(folder / "keys", sites=names)
    roster = folder / "roster.toml"
    Roster.of_files([folder / "keys" / f"{name}.pub" for name in names]).write(roster)
    return roster


def add_identity(file: Path, folder: Path, name: str, **options: Any) -> None:
    """Add the key and the roster of a site, and further settings, to its settings file."""
    values = {"key": str(folder / "keys" / f"{name}.key"), "roster": str(folder / "roster.toml")}
    lines = [f'{key} = "{value}"' for key, value in values.items()]
    lines += [f"{key} = {str(value).lower()}" for key, value in options.items()]
    file.write_text("\n".join(lines) + "\n" + file.read_text())


def secure_digits_sites(folder: Path, clients: int, rows: int = 0, **options: Any) -> dict[int, Path]:
    """Settings of sites that share the digits and demand secure aggregation, by node."""
    sites = digits_sites(folder, clients, rows)
    names = {node: f"client-{node}" for node in sites}
    write_identities(folder, list(names.values()))
    for node, file in sites.items():
        add_identity(file, folder, names[node], **{"require-secure-aggregation": True, **options})
    return sites


def secure_settings(folder: Path, sites: int, **changed: Any) -> dict[str, Any]:
    """Settings of a coordinator with secure aggregation."""
    given = {"secure-aggregation": True, "min-sites": 3, "roster": str(folder / "roster.toml")}
    return settings(folder, sites, **{**given, **changed})
