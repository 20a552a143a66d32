"""The small folder that `flwr run` needs: settings of coordinator and site, and the commands that both type."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import fields
from importlib.resources import files
from pathlib import Path
from typing import Any

from fedul import __version__
from fedul.config import CoordinatorConfig, TrainConfig
from fedul.errors import InputError
from fedul.files import write_bytes
from fedul.settings import names, refuse_unknown, underscored

PACKAGE = "federation"
APP = "from fedul.engines.flower import {side}_app\n\napp = {side}_app.app\n"
HELP = {"model": "linear, mlp, small-cnn, paper-cnn, resnet18, or auto; sites take models by name only."}
LEFT_OUT = ("checkpoint_every", "evaluate_every", "device", "threads", "engine_mode", "workers")
"""Settings that mean nothing across sites."""


def new_folder(folder: Path, settings: Mapping[str, Any]) -> list[Path]:
    """Writes the folder; the files that it consists of."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise InputError(f"{folder}: is there already and not empty; choose another folder.")
    given = underscored(settings)
    refuse_unknown("setting", given, CoordinatorConfig, TrainConfig)
    texts = {
        "pyproject.toml": _project(folder.resolve().name, given),
        f"{PACKAGE}/__init__.py": "",
        f"{PACKAGE}/server_app.py": APP.format(side="server"),
        f"{PACKAGE}/client_app.py": APP.format(side="client"),
        "site.toml": _template("site.toml"),
        "nginx.conf": _template("nginx.conf"),
        "README.md": _template("README.md").format(run=_about(given)),
        ".gitignore": "*.key\nstate/\nruns/\n",
    }
    for name, text in texts.items():
        write_bytes(folder / name, text.encode())
    return [folder / name for name in texts if not name.startswith(".")]


def _project(name: str, given: Mapping[str, Any]) -> str:
    """What Flower reads: the app, and every setting of a run with its meaning and its default."""
    lines = []
    for kind, title in ((CoordinatorConfig, "the run"), (TrainConfig, "the training")):
        lines += ["", f"# {title[0].upper()}{title[1:]}."]
        for each in fields(kind):
            if each.name in LEFT_OUT:
                continue
            value = _toml(given.get(each.name, each.default))
            lines += [f"# {HELP.get(each.name, each.metadata['help'])}", f"{each.name.replace('_', '-')} = {value}"]
    safe = "".join(c if c.isalnum() or c == "-" else "-" for c in name.lower()).strip("-") or "federation"
    return _template("project.toml").format(name=safe[:32], version=__version__, settings="\n".join(lines))


def _about(given: Mapping[str, Any]) -> str:
    """What the run is, in a few lines: as the settings say, which Flower reads from the folder's other file."""
    defaults = {each.name: each.default for each in fields(CoordinatorConfig)}
    classes, sites, out = (given.get(name, defaults[name]) for name in ("classes", "sites", "out"))
    told = f"a run waits for {sites} {'site' if int(sites) == 1 else 'sites'} and leaves its result in `{out}`"
    if not classes:
        return f"Fill in `classes` in `pyproject.toml`. As it stands there, {told}."
    listed = ", ".join(names(classes))
    return f"As it stands in `pyproject.toml`, {told}.\nThe classes are: {listed}."


def _toml(value: Any) -> str:
    """As TOML has it; what is not set is an empty text, since Flower lets nobody set what is not there."""
    if isinstance(value, Mapping):
        value = [f"{name}={each}" for name, each in value.items()]
    if isinstance(value, Sequence) and not isinstance(value, str):
        value = ",".join(map(str, value))
    return json.dumps("" if value is None else value)


def _template(name: str) -> str:
    return (files("fedul.engines.flower") / "template" / name).read_text(encoding="utf-8")
