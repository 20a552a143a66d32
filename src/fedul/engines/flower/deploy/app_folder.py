"""The Flower app folder for `flwr run`: settings of the coordinator and of a site, and a README with all commands."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import fields
from importlib.resources import files
from pathlib import Path
from typing import Any

from fedul import __version__
from fedul._utils.files import require_unused, write_bytes
from fedul._utils.settings import parse_names, refuse_unknown, with_underscores
from fedul.config import TrainConfig
from fedul.engines.flower.settings import CoordinatorConfig

PACKAGE = "federation"
"""Python package in the app folder."""
APP_MODULE = "from fedul.engines.flower.{part} import {side}_app\n\napp = {side}_app.app\n"
"""Source code of a module that Flower imports."""
SITE_HELP = {"model": "linear, mlp, small-cnn, paper-cnn, resnet18, or auto; sites take models by name only."}
"""Help texts that differ from those of a simulation."""
UNUSED_SETTINGS = ("checkpoint_every", "evaluate_every", "device", "threads", "engine_mode", "workers")
"""Settings of a simulation that have no effect in a federation."""


def write_app_folder(folder: Path, settings: Mapping[str, Any]) -> list[Path]:
    """Write the app folder with these settings and return the files that a user may open."""
    require_unused(folder, "folder")
    values = with_underscores(settings)
    refuse_unknown("setting", values, CoordinatorConfig, TrainConfig)
    texts = {
        "pyproject.toml": _render_project(folder.resolve().name, values),
        f"{PACKAGE}/__init__.py": "",
        f"{PACKAGE}/server_app.py": APP_MODULE.format(part="server", side="server"),
        f"{PACKAGE}/client_app.py": APP_MODULE.format(part="site", side="client"),
        "site.toml": _render_site(secure=str(values.get("secure_aggregation", False)).lower() == "true"),
        "nginx.conf": _read_template("nginx.conf"),
        "README.md": _read_template("README.md").format(run=_describe_run(values)),
        ".gitignore": "*.key\nstate/\nruns/\n",
    }
    for name, text in texts.items():
        write_bytes(folder / name, text.encode())
    return [folder / name for name in texts if not name.startswith(".")]


def _render_project(name: str, values: Mapping[str, Any]) -> str:
    """Return the text of `pyproject.toml`: the app, and every setting of a run with its help text and value."""
    lines = []
    for kind, title in ((CoordinatorConfig, "The run"), (TrainConfig, "The training")):
        lines += ["", f"# {title}."]
        for each in fields(kind):
            if each.name in UNUSED_SETTINGS:
                continue
            value = _to_toml(values.get(each.name, each.default))
            help = SITE_HELP.get(each.name, each.metadata["help"])
            lines += [f"# {help}", f"{each.name.replace('_', '-')} = {value}"]
    safe = "".join(c if c.isalnum() or c == "-" else "-" for c in name.lower()).strip("-") or "federation"
    return _read_template("project.toml").format(name=safe[:32], version=__version__, settings="\n".join(lines))


def _render_site(*, secure: bool) -> str:
    """Return the text of `site.toml`; the site of a federation with secure aggregation demands that."""
    text, demand = _read_template("site.toml"), "require-secure-aggregation = true"
    return text.replace(f"# {demand}", demand) if secure else text


def _describe_run(values: Mapping[str, Any]) -> str:
    """Return the most important settings in two sentences."""
    defaults = {each.name: each.default for each in fields(CoordinatorConfig)}
    classes, sites, out = (values.get(name, defaults[name]) for name in ("classes", "sites", "out"))
    text = f"a run waits for {sites} {'site' if int(sites) == 1 else 'sites'} and writes to `{out}`"
    if not classes:
        return f"Fill in `classes` in `pyproject.toml`. With its other settings, {text}."
    listed = ", ".join(parse_names(classes))
    return f"With the settings in `pyproject.toml`, {text}.\nThe classes are: {listed}."


def _to_toml(value: Any) -> str:
    """Return a value as TOML; None becomes "", because `flwr run` can override only keys that are in the file."""
    if isinstance(value, Mapping):
        value = [f"{name}={each}" for name, each in value.items()]
    if isinstance(value, Sequence) and not isinstance(value, str):
        value = ",".join(map(str, value))
    return json.dumps("" if value is None else value)


def _read_template(name: str) -> str:
    return (files("fedul.engines.flower.deploy") / "template" / name).read_text(encoding="utf-8")
