"""Tables of the paper are data: every cell has its settings and its published number."""

from __future__ import annotations

from typing import Any

import pytest

from fedul.config import SCALES, TrainConfig
from fedul.errors import InputError
from fedul.experiments.paper import Experiment, build_experiment, experiment_names, load_experiment

DOCUMENT: dict[str, Any] = {
    "title": "Errors",
    "source": "Table 9",
    "rows": ["split", "sets"],
    "columns": ["method"],
    "seeds": 3,
    "axes": {"split": ["iid", "noniid"], "sets": ["10", "20"], "method": ["fedul", "supervised:labels=0.1"]},
    "label": {"supervised:labels=0.1": "FedAvg 10 %"},
    "settings": {"rounds": 100, "data": "mnist", "l1": 1e-6},
    "when": [{"cells": "sets=20", "l1": 5e-6}, {"cells": "split=noniid,sets=20", "l1": 7e-6}],
    "scale": {
        "laptop": {
            "rounds": 15,
            "when": [{"cells": "method=fedul", "epochs": 2}],
            "axes": {"sets": ["10"]},
            "seeds": 2,
        },
        "smoke": {"rounds": 2},
    },
    "published": [{"cells": "split=iid,sets=10", "fedul": [0.78, 0.06], "supervised:labels=0.1": [2.5, 0.1]}],
}


def table(scale: str = "paper", **changes: Any) -> Experiment:
    return build_experiment("errors", DOCUMENT, scale, changes)


def test_cells_are_all_combinations_of_the_axes() -> None:
    assert len({tuple(cell.values.items()) for cell in table().cells}) == len(table().cells) == 8


def test_later_settings_replace_earlier_ones_in_the_cells_they_name() -> None:
    found = {(c.values["split"], c.values["sets"]): c.training.l1 for c in table().cells}
    assert found == {("iid", "10"): 1e-6, ("iid", "20"): 5e-6, ("noniid", "10"): 1e-6, ("noniid", "20"): 7e-6}


def test_values_of_axes_become_settings() -> None:
    cell = table().cells[-1]
    assert (cell.data.split, cell.data.sets) == ("noniid", (20,))
    assert (cell.training.method, cell.training.method_option) == ("supervised", {"labels": 0.1})


def test_a_scale_replaces_settings_axes_and_seeds() -> None:
    laptop = table("laptop")
    assert {cell.training.rounds for cell in laptop.cells} == {15}
    assert {(c.training.method, c.training.epochs) for c in laptop.cells} == {("fedul", 2), ("supervised", 1)}
    assert (laptop.axes["sets"], laptop.seeds) == (["10"], 2)


def test_at_smoke_scale_all_data_are_the_embedded_digits() -> None:
    assert {cell.data.data for cell in table("smoke").cells} == {"digits"}


def test_changes_apply_to_all_cells() -> None:
    assert {cell.training.rounds for cell in table(rounds=7).cells} == {7}


def test_a_title_names_what_was_changed() -> None:
    assert table(loss="brier", rounds=3).title == "Errors; with loss brier"
    assert all(cell.training.loss == "brier" for cell in table(loss="brier").cells)


@pytest.mark.parametrize("change", [{"sets": 5}, {"split": "iid"}, {"momentum": 0.9}])
def test_a_setting_that_cells_differ_in_cannot_be_changed_for_all(change: dict[str, Any]) -> None:
    document = {**DOCUMENT, "axis": {"split": {"iid": {"momentum": 0.0}}}}
    (name,) = change
    with pytest.raises(
        InputError, match=f"{name}: is what the cells of errors differ in; choose among them with --only"
    ):
        build_experiment("errors", document, "paper", change)


def test_published_numbers_belong_to_their_cells() -> None:
    published = [cell.published for cell in table().cells if cell.published]
    assert published == [((0.78, 0.06),), ((2.5, 0.1),)]


def test_another_data_set_has_no_published_numbers_and_is_named_in_the_title() -> None:
    other = table(data="fashion-mnist")
    assert {cell.data.data for cell in other.cells} == {"fashion-mnist"}
    assert not any(cell.published for cell in other.cells)
    assert other.title == "Errors; here on fashion-mnist"
    (cell,) = load_experiment("table2", "laptop", {"data": "mednist"}).select("sets=12,method=fedul").cells
    assert (cell.values["data"], cell.data.data, cell.published) == ("mednist", "mednist", ())


def test_cells_can_be_selected() -> None:
    chosen = table().select("split=iid,sets=10|20,method=supervised:labels=0.1").cells
    assert [cell.values["sets"] for cell in chosen] == ["10", "20"]


@pytest.mark.parametrize(
    ("chosen", "complaint"),
    [
        ("splits=iid", "unknown axis 'splits': did you mean 'split'"),
        ("split=idd", "unknown split 'idd': did you mean 'iid'"),
        ("split", "only: expected AXIS=VALUE, got 'split'"),
        ("sets=10,sets=20", "only: names sets twice"),
    ],
)
def test_a_selection_of_unknown_axes_or_values_is_refused(chosen: str, complaint: str) -> None:
    with pytest.raises(InputError, match=complaint):
        table().select(chosen)


def test_an_empty_selection_is_refused() -> None:
    for chosen in ("", " , ,"):
        with pytest.raises(InputError, match="only: names no cell; give AXIS=VALUE, or leave it out"):
            table().select(chosen)


def test_cells_with_the_same_settings_share_their_run() -> None:
    cell, changed = table().cells[0], table(learning_rate=0.1).cells[0]
    assert cell.key(0) == table().select("split=iid").cells[0].key(0)
    assert len({cell.key(0), cell.key(1), changed.key(0)}) == 3
    assert cell.key(0) == table(threads=1, workers=2, data_dir="elsewhere").cells[0].key(0)


def test_a_setting_that_a_later_version_adds_does_not_change_where_a_run_is() -> None:
    explicit = {name: getattr(TrainConfig(), name) for name in ("precision", "participation", "patience")}
    assert table(**explicit).cells[0].key(0) == table().cells[0].key(0)
    assert table(precision="float32").cells[0].key(0) != table().cells[0].key(0)


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("name", experiment_names())
def test_every_table_can_be_read(name: str, scale: str) -> None:
    experiment = load_experiment(name, scale)
    assert experiment.cells
    assert {*experiment.rows, *experiment.columns} <= set(experiment.axes)
    assert experiment.x is None or experiment.x in experiment.axes


@pytest.mark.parametrize("name", experiment_names())
def test_every_published_number_belongs_to_a_cell(name: str) -> None:
    import tomllib
    from importlib.resources import files

    document = tomllib.loads(files("fedul.experiments").joinpath("tables", f"{name}.toml").read_text())
    numbers = sum(len(entry) - 1 for entry in document.get("published", []))
    assert sum(bool(cell.published) for cell in load_experiment(name, "paper").cells) == numbers
