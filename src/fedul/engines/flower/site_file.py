"""The settings file of a site, `site.toml`: what the site decides for itself, and which rows and priors it has."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from fedul.config import SiteConfig, readable
from fedul.errors import InputError, WorldError
from fedul.settings import make, read_toml, refuse_unknown


def read_site(path: str) -> tuple[SiteConfig, dict[str, Any]]:
    """A site's settings and its [data] options; the state folder is taken from where the file stands."""
    file = Path(path).expanduser()
    stored = read_toml(str(file))
    options = stored.pop("data", None)
    if not isinstance(options, dict):
        raise InputError(f"{file}: needs a part [data], with the options of 'fedul train' that name rows and priors.")
    try:
        refuse_unknown("setting", stored, SiteConfig)
        config = make(SiteConfig, stored)
    except InputError as problem:
        raise InputError(f"{file}: {problem}") from None
    return replace(config, state=str(beside(file, config.state))), options


def named_in(path: str) -> str:
    """The name of the site, also where all else in the file is wrong; empty if it has none."""
    stored: Mapping[str, Any] = {}
    with suppress(InputError):
        stored = read_toml(str(Path(path).expanduser()))
    return stored["name"] if readable(stored.get("name")) else ""


def private(folder: Path) -> Path:
    """The folder, made if need be: one that others can write into is refused, since what is found there is believed."""
    os.makedirs(folder, mode=0o700, exist_ok=True)
    found = folder.stat()
    if hasattr(os, "geteuid") and (found.st_uid not in (os.geteuid(), 0) or found.st_mode & 0o022):
        raise WorldError(
            f"{folder}: others than the site's account can write there; name another folder (state), or chmod 700."
        )
    return folder


def beside(file: Path, named: str) -> Path:
    """A path as a file means it: from where it stands."""
    path = Path(named).expanduser()
    return path if path.is_absolute() else file.resolve().parent / path
