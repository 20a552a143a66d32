"""The settings file of a site, `site.toml`: the site's own limits, and its rows and priors."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from fedul._utils.settings import build_config, read_toml, refuse_unknown, with_underscores
from fedul.config import BenchmarkDataConfig, FileDataConfig
from fedul.data import SOURCES
from fedul.data.load import resolve_data_config
from fedul.engines.flower.settings import SiteConfig, is_valid_site_name
from fedul.errors import EnvironmentFailure, InputError

PATHS = ("state", "root_certificates", "key", "roster")
"""Settings that are paths."""
DATA_PATHS = ("data", "priors", "data_dir", "public_columns")
"""Options of the part [data] that are paths."""


def read_site_file(path: str) -> tuple[SiteConfig, dict[str, Any]]:
    """Return a site's settings and its [data] options; relative paths are resolved beside the file."""
    file = Path(path).expanduser()
    stored = read_toml(str(file))
    options = stored.pop("data", None)
    if not isinstance(options, dict):
        raise InputError(f"{file}: needs a part [data] with the options of 'fedul train' that name rows and priors.")
    try:
        refuse_unknown("setting", stored, SiteConfig)
        config = build_config(SiteConfig, stored)
    except InputError as problem:
        raise InputError(f"{file}: {problem}") from None
    paths: dict[str, Any] = {
        name: str(resolve_beside(file, path)) for name in PATHS if (path := getattr(config, name)) is not None
    }
    return replace(config, **paths), options


def read_site_settings(path: str) -> tuple[SiteConfig, BenchmarkDataConfig | FileDataConfig]:
    """Return a site's settings and the options of its rows and priors; no row is read."""
    file = Path(path).expanduser()
    config, options = read_site_file(path)
    try:
        refuse_unknown("setting in [data]", options, BenchmarkDataConfig, FileDataConfig)
        options = with_underscores(options)
        for name in DATA_PATHS:
            if isinstance(options.get(name), str) and options[name] not in SOURCES:
                options[name] = str(resolve_beside(file, options[name]))
        data = resolve_data_config(options)
        if isinstance(data, FileDataConfig) and data.site_adjustment != "off":
            raise InputError("site-adjustment: is set at the coordinator, for all sites; leave it out here.")
    except InputError as problem:
        raise InputError(f"{file}: {problem}") from None
    return config, data


def site_name_in(path: str) -> str:
    """Return the name of the site, even if everything else in the file is wrong; empty if it has none."""
    stored: Mapping[str, Any] = {}
    with suppress(InputError):
        stored = read_toml(str(Path(path).expanduser()))
    return stored["name"] if is_valid_site_name(stored.get("name")) else ""


def private_folder(folder: Path) -> Path:
    """Create a folder if needed; refuse one that others can write to, because its content is trusted."""
    os.makedirs(folder, mode=0o700, exist_ok=True)
    status = folder.stat()
    if hasattr(os, "geteuid") and (status.st_uid not in (os.geteuid(), 0) or status.st_mode & 0o022):
        raise EnvironmentFailure(
            f"{folder}: other accounts can write to it; choose another folder (state), or run chmod 700."
        )
    return folder


def resolve_beside(file: Path, path: str) -> Path:
    """Return a path that is relative to the folder of a file."""
    resolved = Path(path).expanduser()
    return resolved if resolved.is_absolute() else file.resolve().parent / resolved
