"""A table or figure of the paper as data: its axes, the settings of every cell, and the numbers that were published.

One TOML file each in `declared/`. Settings are the paper's; a scale replaces some of them by what a laptop, or a test,
can finish. A cell is one value of every axis.
"""

from __future__ import annotations

import hashlib
import json
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from importlib.resources import files
from itertools import product
from typing import Any

from fedul.config import DataConfig, TrainConfig
from fedul.errors import InputError, unknown
from fedul.settings import make, name_values, plain

SCALES = ("paper", "laptop", "smoke")
SMOKE = {"data": "digits", "rows": 0}
"""At the smallest scale every data set is the embedded one."""

Published = tuple[tuple[float, float], ...]
"""Mean and standard deviation as printed; several where a cell has one for each client."""


@dataclass(frozen=True)
class Cell:
    """One value of every axis, and what is run for it."""

    values: Mapping[str, str]
    data: DataConfig
    training: TrainConfig
    published: Published = ()

    def key(self, seed: int) -> str:
        """A name for the run of this cell and seed: cells with the same settings, of any table, share it."""
        settings = [plain(replace(self.data, data_dir=None, seed=seed)), plain(replace(self.training, seed=seed))]
        for name in ("threads", "workers", "engine_mode", "device", "checkpoint_every"):
            settings[1].pop(name)
        digest = hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()
        return f"{self.data.data}-{self.training.method}-{digest[:12]}"


@dataclass(frozen=True)
class Declaration:
    """A table or a figure."""

    name: str
    scale: str
    title: str
    source: str  # where it is in the paper
    metric: str
    unit: str
    rows: Sequence[str]  # axes down
    columns: Sequence[str]  # axes across
    x: str | None  # the axis of a figure
    seeds: int
    note: str
    axes: Mapping[str, Sequence[str]]
    labels: Mapping[str, str]
    cells: Sequence[Cell] = field(default_factory=tuple)

    @property
    def timed(self) -> bool:
        """Whether seconds are among its figures, so that runs must not disturb each other."""
        return "seconds_a_round" in (self.metric, *self.axes.get(self.metric, ()))

    def label(self, value: str) -> str:
        """What a reader sees for a value of an axis."""
        return self.labels.get(value, value)

    def only(self, chosen: str | None) -> Declaration:
        """With those cells alone that 'data=mnist,sets=10|20' names."""
        if chosen is None:
            return self
        wanted = self._checked(conditions(chosen))
        if not wanted:
            raise InputError("only: names no cell; give AXIS=VALUE, or leave it out.")
        left = [cell for cell in self.cells if matches(cell.values, wanted)]
        if not left:
            raise InputError(f"only: '{chosen}' leaves no cell of {self.name}; name values that go together.")
        return replace(self, cells=left)

    def _checked(self, wanted: Mapping[str, Sequence[str]]) -> Mapping[str, Sequence[str]]:
        for axis, values in wanted.items():
            if axis not in self.axes:
                raise unknown("axis", axis, self.axes)
            for value in values:
                if value not in self.axes[axis]:
                    raise unknown(axis, value, self.axes[axis])
        return wanted


def names() -> list[str]:
    """The tables and figures there are."""
    return sorted(file.name.removesuffix(".toml") for file in files(__package__).joinpath("declared").iterdir())


def declared(name: str, scale: str = "laptop", changes: Mapping[str, Any] | None = None) -> Declaration:
    """The table or figure of this name at a scale; `changes` are settings that hold for all cells."""
    if name not in names():
        raise unknown("experiment", name, names())
    if scale not in SCALES:
        raise InputError(f"scale: '{scale}' is not one of {', '.join(SCALES)}.")
    text = files(__package__).joinpath("declared", f"{name}.toml").read_text(encoding="utf-8")
    return from_document(name, tomllib.loads(text), scale, changes or {})


def from_document(name: str, document: Mapping[str, Any], scale: str, changes: Mapping[str, Any]) -> Declaration:
    at_scale = dict(document.get("scale", {}).get(scale, {}))
    axes = {axis: [str(v) for v in values] for axis, values in document["axes"].items()}
    axes |= {axis: [str(v) for v in values] for axis, values in at_scale.pop("axes", {}).items()}
    seeds = at_scale.pop("seeds", document.get("seeds", 3))
    other_data = changes.get("data")  # has the settings of the first, and no published numbers
    replaced = other_data is not None and "data" in axes
    stood_for = (meant for values in document.get("axis", {}).values() for meant in values.values())
    varied = {*axes, *(key for meant in stood_for for key in meant)} - {"data"}
    if fixed := [key for key in changes if key in varied]:
        raise InputError(f"{fixed[0]}: is what the cells of {name} differ in; choose among them with --only.")
    if replaced:
        axes["data"] = axes["data"][:1]
    layers = [
        ({}, {"evaluate_every": 0}),  # the tables are of the chosen round alone
        ({}, document.get("settings", {})),
        *_conditional(document.get("when", [])),
        ({}, {key: value for key, value in at_scale.items() if key != "when"}),
        *_conditional(at_scale.get("when", [])),
    ]
    if scale == "smoke":
        layers.append(({}, SMOKE))
    published = {_cell_key(axes, cells): value for cells, value in _published(document)}
    made = []
    for chosen in product(*axes.values()):
        values = dict(zip(axes, chosen, strict=True))
        settings: dict[str, Any] = {}
        for wanted, layer in layers:
            if matches(values, wanted):
                settings |= layer
        meant = _meant(values, document.get("axis", {}))
        if scale == "smoke":
            meant.pop("data", None)
        data, training = _configs({**settings, **meant, **changes})
        theirs = () if other_data else published.get(tuple(values.items()), ())
        made.append(Cell({**values, "data": str(other_data)} if replaced else values, data, training, theirs))
    own = ("data", "data_dir", "rounds")
    also = ", ".join(f"{key.replace('_', '-')} {value}" for key, value in changes.items() if key not in own)
    columns = document.get("columns", document.get("series", []))
    x = document.get("x")
    return Declaration(
        name=name,
        scale=scale,
        title=document["title"]
        + (f"; here on {other_data}" if other_data else "")
        + (f"; with {also}" if also else ""),
        source=document["source"],
        metric=document.get("metric", "test_error_clients"),
        unit=document.get("unit", "%"),
        rows=document.get("rows", [x] if x else []),
        columns=columns,
        x=x,
        seeds=seeds,
        note=document.get("note", "").strip(),
        axes={**axes, "data": [str(other_data)]} if replaced else axes,
        labels=document.get("label", {}),
        cells=made,
    )


def conditions(text: str) -> dict[str, list[str]]:
    """'data=mnist,sets=10|20' as axis -> values.

    >>> conditions("data=mnist,sets=10|20")
    {'data': ['mnist'], 'sets': ['10', '20']}
    >>> conditions("method=supervised:labels=0.1")
    {'method': ['supervised:labels=0.1']}
    """
    wanted: dict[str, list[str]] = {}
    for part in filter(None, (p.strip() for p in text.split(","))):
        axis, equals, values = part.partition("=")
        if not equals or not values:
            raise InputError(f"only: expected AXIS=VALUE, got '{part}'; several values are parted by |.")
        if axis.strip() in wanted:
            raise InputError(f"only: names {axis.strip()} twice; part its values by |, as in {axis.strip()}=A|B.")
        wanted[axis.strip()] = [value.strip() for value in values.split("|")]
    return wanted


def matches(values: Mapping[str, str], wanted: Mapping[str, Sequence[str]]) -> bool:
    return all(values.get(axis) in allowed for axis, allowed in wanted.items())


def _conditional(layers: Sequence[Mapping[str, Any]]) -> Iterator[tuple[dict[str, list[str]], dict[str, Any]]]:
    for layer in layers:
        yield conditions(layer["cells"]), {key: value for key, value in layer.items() if key != "cells"}


def _published(document: Mapping[str, Any]) -> Iterator[tuple[dict[str, list[str]], Published]]:
    """Every published number with the cell it is of."""
    across = document.get("columns", document.get("series", []))
    for entry in document.get("published", []):
        cells = conditions(entry["cells"])
        for key, value in entry.items():
            if key == "value":
                yield cells, _pairs(value)
            elif key != "cells":
                yield {**cells, across[-1]: [key]}, _pairs(value)


def _pairs(value: Sequence[Any]) -> Published:
    several = value if isinstance(value[0], list) else [value]
    return tuple((float(mean), float(deviation)) for mean, deviation in several)


def _cell_key(axes: Mapping[str, Sequence[str]], cells: Mapping[str, Sequence[str]]) -> tuple[tuple[str, str], ...]:
    """The cell that is meant; an axis that has but one value need not be named."""
    return tuple((axis, (cells.get(axis) or values)[0]) for axis, values in axes.items())


def _meant(values: Mapping[str, str], stands_for: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> dict[str, Any]:
    """The settings that the values of the axes are, or stand for."""
    settings: dict[str, Any] = {}
    for axis, value in values.items():
        if axis in stands_for:
            settings |= stands_for[axis].get(value, {})
        elif axis == "method":
            name, *options = value.split(":")
            settings |= {"method": name, "method_option": name_values(options)}
        else:
            settings[axis] = value
    return settings


def _configs(settings: Mapping[str, Any]) -> tuple[DataConfig, TrainConfig]:
    known = {f.name for kind in (DataConfig, TrainConfig) for f in fields(kind)}
    if strange := [name for name in settings if name not in known]:
        raise unknown("setting", strange[0], known)
    parts = (
        {f.name: settings[f.name] for f in fields(kind) if f.name in settings} for kind in (DataConfig, TrainConfig)
    )
    return make(DataConfig, next(parts)), make(TrainConfig, next(parts))
