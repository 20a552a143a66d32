"""A table or figure of the paper as data: its axes, the settings of every cell, and the published numbers.

There is one TOML file per table in `tables/`. Its settings are the paper's; a scale replaces some of them by what a
laptop, or a test, can finish. A cell is one value of every axis.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.resources import files
from itertools import product
from typing import Any

from fedul._utils.settings import build_configs, parse_name_values
from fedul.config import SCALES, BenchmarkDataConfig, TrainConfig
from fedul.errors import InputError, unknown_name
from fedul.experiments.cell import Cell, Published

SMOKE_SETTINGS = {"data": "digits", "rows": 0}
"""At the smallest scale, every data set is replaced by the embedded one."""
COMMAND_OPTIONS = ("data", "data_dir", "rounds")
"""Settings for all cells that are options of ``fedul reproduce``."""

Conditions = Mapping[str, Sequence[str]]
"""Allowed values by axis."""


@dataclass(frozen=True)
class Experiment:
    """A table or figure.

    Parameters
    ----------
    name, scale, title : str
        Its name, the scale, and what it shows.
    source : str
        Where it is in the paper.
    metric, unit : str
        The measured value and its unit: a field of `RunResult`, "operations" or "seconds_per_round".
    rows, columns : sequence of str
        Axes of the table.
    x : str or None
        The horizontal axis of a figure.
    seeds : int
        Runs per cell.
    note : str
        What the reproduction assumes where the paper leaves something open.
    axes : mapping of str to sequence of str
        Values by axis.
    labels : mapping of str to str
        Printed text for values of an axis.
    cells : sequence of Cell
        All combinations of values, or those that were selected.
    """

    name: str
    scale: str
    title: str
    source: str
    metric: str
    unit: str
    rows: Sequence[str]
    columns: Sequence[str]
    x: str | None
    seeds: int
    note: str
    axes: Mapping[str, Sequence[str]]
    labels: Mapping[str, str]
    cells: Sequence[Cell] = field(default_factory=tuple)

    @property
    def is_timed(self) -> bool:
        """Whether it measures seconds, so that concurrent runs would disturb each other."""
        return "seconds_per_round" in (self.metric, *self.axes.get(self.metric, ()))

    @property
    def heading(self) -> str:
        """Source, title, scale and seeds in one line."""
        seeds = "1 seed" if self.seeds == 1 else f"{self.seeds} seeds"
        return f"{self.source}: {self.title} ({self.scale} scale, {seeds})"

    def label(self, value: str) -> str:
        """Return the printed text of a value of an axis."""
        return self.labels.get(value, value)

    def metric_of(self, cell: Cell) -> str:
        """Return the metric of a cell; if `metric` is an axis, it is the cell's value on that axis."""
        return cell.values.get(self.metric, self.metric)

    def select(self, conditions: str | None) -> Experiment:
        """Return the experiment with the cells that match conditions such as 'data=mnist,sets=10|20'; all for None."""
        if conditions is None:
            return self
        wanted = parse_conditions(conditions)
        for axis, values in wanted.items():
            if axis not in self.axes:
                raise unknown_name("axis", axis, self.axes)
            for value in values:
                if value not in self.axes[axis]:
                    raise unknown_name(axis, value, self.axes[axis])
        if not wanted:
            raise InputError("only: names no cell; give AXIS=VALUE, or leave it out.")
        cells = [cell for cell in self.cells if _matches(cell.values, wanted)]
        if not cells:
            raise InputError(f"only: '{conditions}' leaves no cell of {self.name}; name values that go together.")
        return replace(self, cells=cells)


def experiment_names() -> list[str]:
    """Return the names of all tables and figures."""
    return sorted(file.name.removesuffix(".toml") for file in files(__package__).joinpath("tables").iterdir())


def load_experiment(name: str, scale: str = "laptop", changes: Mapping[str, Any] | None = None) -> Experiment:
    """Return a table or figure at a scale.

    Parameters
    ----------
    name : str
        One of `experiment_names`.
    scale : {"paper", "laptop", "smoke"}
        The published setting, what a laptop can finish, or a test on digits.
    changes : mapping of str to object, optional
        Settings for all cells.
    """
    if name not in experiment_names():
        raise unknown_name("experiment", name, experiment_names())
    if scale not in SCALES:
        raise InputError(f"scale: '{scale}' is not one of {', '.join(SCALES)}.")
    text = files(__package__).joinpath("tables", f"{name}.toml").read_text(encoding="utf-8")
    return build_experiment(name, tomllib.loads(text), scale, changes or {})


def build_experiment(name: str, document: Mapping[str, Any], scale: str, changes: Mapping[str, Any]) -> Experiment:
    """Return an experiment from its TOML document."""
    at_scale = dict(document.get("scale", {}).get(scale, {}))
    axes = {axis: [str(v) for v in values] for axis, values in document["axes"].items()}
    axes |= {axis: [str(v) for v in values] for axis, values in at_scale.pop("axes", {}).items()}
    seeds = at_scale.pop("seeds", document.get("seeds", 3))
    meanings = document.get("axis", {})
    _refuse_varied(
        changes, {*axes, *(key for values in meanings.values() for each in values.values() for key in each)}, name
    )
    other_data = changes.get("data")  # gets the settings of the first data set, and has no published numbers
    published = {} if other_data else {_full_key(axes, cells): value for cells, value in _published(document)}
    if other_data is not None and "data" in axes:
        axes["data"] = axes["data"][:1]
    layers = [*_layers(document, document.get("settings", {})), *_layers(at_scale, at_scale)]
    if scale == "smoke":
        layers.append(({}, SMOKE_SETTINGS))
    cells = []
    for combination in product(*axes.values()):
        values = dict(zip(axes, combination, strict=True))
        settings: dict[str, Any] = {"evaluate_every": 0}  # a table reports the selected round only
        for conditions, layer in layers:
            if _matches(values, conditions):
                settings |= layer
        meaning = _settings_of(values, meanings)
        if scale == "smoke":
            meaning.pop("data", None)
        data, training = build_configs(
            {**settings, **meaning, **changes}, BenchmarkDataConfig, TrainConfig, what="setting"
        )
        named = {**values, "data": str(other_data)} if other_data is not None and "data" in axes else values
        cells.append(Cell(named, data, training, published.get(tuple(values.items()), ())))
    if other_data is not None and "data" in axes:
        axes["data"] = [str(other_data)]
    title = document["title"] + (f"; here on {other_data}" if other_data else "")
    if others := [f"{key.replace('_', '-')} {value}" for key, value in changes.items() if key not in COMMAND_OPTIONS]:
        title += f"; with {', '.join(others)}"
    x = document.get("x")
    return Experiment(
        name=name,
        scale=scale,
        title=title,
        source=document["source"],
        metric=document.get("metric", "test_error_clients"),
        unit=document.get("unit", "%"),
        rows=document.get("rows", [x] if x else []),
        columns=_columns(document),
        x=x,
        seeds=seeds,
        note=document.get("note", "").strip(),
        axes=axes,
        labels=document.get("label", {}),
        cells=cells,
    )


def parse_conditions(text: str) -> dict[str, list[str]]:
    """Parse conditions on axes.

    >>> parse_conditions("data=mnist,sets=10|20")
    {'data': ['mnist'], 'sets': ['10', '20']}
    >>> parse_conditions("method=supervised:labels=0.1")
    {'method': ['supervised:labels=0.1']}
    """
    conditions: dict[str, list[str]] = {}
    for part in filter(None, (p.strip() for p in text.split(","))):
        axis, equals, values = part.partition("=")
        axis = axis.strip()
        if not equals or not values:
            raise InputError(f"only: expected AXIS=VALUE, got '{part}'; separate several values by |.")
        if axis in conditions:
            raise InputError(f"only: names {axis} twice; separate its values by |, as in {axis}=A|B.")
        conditions[axis] = [value.strip() for value in values.split("|")]
    return conditions


def _matches(values: Mapping[str, str], conditions: Conditions) -> bool:
    return all(values.get(axis) in allowed for axis, allowed in conditions.items())


def _refuse_varied(changes: Mapping[str, Any], varied: set[str], name: str) -> None:
    """Refuse to change a setting in which the cells differ; only the data set may be replaced for all cells."""
    if fixed := [key for key in changes if key in varied - {"data"}]:
        raise InputError(f"{fixed[0]}: is what the cells of {name} differ in; choose among them with --only.")


def _layers(part: Mapping[str, Any], settings: Mapping[str, Any]) -> Iterator[tuple[Conditions, dict[str, Any]]]:
    """Yield conditions with the settings of matching cells: first those for all cells, then those under "when"."""
    yield {}, {key: value for key, value in settings.items() if key != "when"}
    for layer in part.get("when", []):
        yield parse_conditions(layer["cells"]), {key: value for key, value in layer.items() if key != "cells"}


def _columns(document: Mapping[str, Any]) -> list[str]:
    columns: list[str] = document.get("columns", document.get("series", []))
    return columns


def _published(document: Mapping[str, Any]) -> Iterator[tuple[Conditions, Published]]:
    """Yield the conditions that identify a cell, with its published numbers."""
    for entry in document.get("published", []):
        cells = parse_conditions(entry["cells"])
        for key, value in entry.items():
            pairs = value if isinstance(value[0], list) else [value]
            if key != "cells":
                place = cells if key == "value" else {**cells, _columns(document)[-1]: [key]}
                yield place, tuple((float(mean), float(deviation)) for mean, deviation in pairs)


def _full_key(axes: Conditions, cell: Conditions) -> tuple[tuple[str, str], ...]:
    """Return the value of every axis of a cell; an axis with a single value need not be named."""
    return tuple((axis, (cell.get(axis) or values)[0]) for axis, values in axes.items())


def _settings_of(values: Mapping[str, str], meanings: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> dict[str, Any]:
    """Return the settings that the values of the axes stand for; by default, an axis is the setting of its name."""
    settings: dict[str, Any] = {}
    for axis, value in values.items():
        if axis in meanings:
            settings |= meanings[axis].get(value, {})
        elif axis == "method":
            name, *options = value.split(":")
            settings |= {"method": name, "method_option": parse_name_values(options)}
        else:
            settings[axis] = value
    return settings
