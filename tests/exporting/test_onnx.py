"""An ONNX file answers as its classifier does: every network, every kind of column, another class mix, any block."""

from __future__ import annotations

import json
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from numpy.typing import NDArray
from torch import Tensor, nn

from fedul.classifier import Classifier
from fedul.core import Scaling
from fedul.data.files.schema import ImageSchema
from fedul.data.files.schema.table import Boolean, Category, Number, TableSchema
from fedul.errors import InputError
from fedul.exporting.graph import inputs_of
from fedul.exporting.onnx import export_onnx, make_rows, silent_runtime, to_onnx
from fedul.models import MODELS, build
from fedul.models.weights import weights_of

from ..factories import CLASSES, make_classifier
from ..places import ROOT

pytest.importorskip("onnx", reason="the extra fedul[onnx] is not installed")
if find_spec("onnxruntime") is None:
    pytest.skip("the extra fedul[onnx] is not installed", allow_module_level=True)

IMAGE = (1, 4, 4)
TABLE = TableSchema(
    (
        Number("age", 40.5, 12.25, missing=True),
        Number("time stamp", 1.7e9, 1000.0, missing=False),
        Category("town", ("X", "Y", "3"), others=True, missing=True),
        Category("sex", ("f", "m"), others=False, missing=False),
        Boolean("smoker", 0.25, missing=True),
        Boolean("class", 0.5, missing=False),
    )
)


def classifier(model: str = "mlp", shape: tuple[int, ...] = IMAGE, **changes: Any) -> Classifier:
    """Return a classifier whose batch norm, if it has one, has random statistics: initial ones would hide faults."""
    made = make_classifier(model, shape, **changes)
    generator = torch.Generator().manual_seed(0)
    for name, tensor in weights_of(made.module).items():
        if "running" in name:
            tensor.uniform_(0.5, 2, generator=generator)
    return made


def of_table() -> Classifier:
    return classifier(shape=TABLE.shape, schema=TABLE)


def answers(content: bytes, feed: dict[str, Any]) -> tuple[list[str], NDArray[np.float32]]:
    onnxruntime = silent_runtime()
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    names, probabilities = session.run(["class", "probabilities"], feed)
    return list(names), probabilities


def assert_the_same(made: Classifier, rows: int = 50) -> None:
    feed, inputs = make_rows(made, rows, np.random.default_rng(1))
    names, found = answers(to_onnx(made), feed)
    assert found.dtype == np.float32
    assert_allclose(found, made.predict_proba(inputs), atol=1e-5)
    assert names == made.predict(inputs).tolist()


def column(*values: Any, kind: Any = object) -> NDArray[Any]:
    return np.array(values, dtype=kind)[:, None]


def patient(**changes: NDArray[Any]) -> dict[str, NDArray[Any]]:
    """One row of the table, or several that differ in some columns."""
    rows = max((len(values) for values in changes.values()), default=1)
    usual = {
        "age": column(*[50.0] * rows, kind=np.float64),
        "time stamp": column(*[1.7e9] * rows, kind=np.float64),
        "town": column(*["X"] * rows),
        "sex": column(*["f"] * rows),
        "smoker": column(*["no"] * rows),
        "column:class": column(*["yes"] * rows),
    }
    return {**usual, **changes}


@pytest.mark.parametrize("model", MODELS)
def test_every_network_gives_the_same_probabilities(model: str) -> None:
    assert_the_same(classifier(model), rows=4)


@pytest.mark.parametrize("rows", [0, 1, 300])
def test_a_block_may_have_any_number_of_rows(rows: int) -> None:
    assert_the_same(of_table(), rows)


def test_images_enter_as_the_bytes_they_are() -> None:
    made = classifier("small-cnn", scaling=Scaling(1 / 255, -0.5), schema=ImageSchema(*IMAGE))
    feed, _ = make_rows(made, 3, np.random.default_rng(0))
    assert feed["X"].dtype == np.uint8
    assert_the_same(made)


def test_arrays_enter_as_floats_and_are_scaled_inside() -> None:
    made = classifier(scaling=Scaling(1 / 16, -0.25))
    pixels = np.random.default_rng(0).integers(0, 17, (7, *IMAGE)).astype(np.uint8)
    _, found = answers(to_onnx(made), {"X": pixels.astype(np.float32)})
    assert_allclose(found, made.predict_proba(pixels), atol=1e-6)


@pytest.mark.parametrize("prior", [[0.7, 0.2, 0.1], [0.0, 0.4, 0.6], [0.0, 0.0, 1.0]])
def test_another_class_mix_is_in_the_file_also_one_without_some_class(prior: list[float]) -> None:
    made = of_table().with_prior(prior)
    assert_the_same(made)
    _, found = answers(to_onnx(made), patient())
    assert (found[0] == 0).tolist() == [share == 0 for share in prior]


@pytest.mark.parametrize("temperature", [0.1, 4.0])
def test_the_temperature_is_in_the_file(temperature: float) -> None:
    assert_the_same(classifier(temperature=temperature))


@pytest.mark.parametrize("missing", [True, False])
@pytest.mark.parametrize("others", [True, False])
def test_missing_and_unseen_values_are_as_in_training_whether_it_had_some_or_not(missing: bool, others: bool) -> None:
    schema = TableSchema(
        (Number("n", 1.0, 2.0, missing), Category("c", ("a", "b"), others, missing), Boolean("b", 0.25, missing))
    )
    assert_the_same(classifier("linear", shape=schema.shape, schema=schema))


def test_columns_and_words_may_have_any_name() -> None:
    names = ("", "probabilities", "fedul/0", "network/rows", "X", "a b|ü", "column:")
    words = ("ä ö", "", "1.5", "-2")
    schema = TableSchema(tuple(Category(name, words, others=True, missing=True) for name in names))
    made = classifier("linear", shape=schema.shape, schema=schema)
    assert len({given.name for given in inputs_of(made)}) == len(names)
    assert_the_same(made)


def test_a_time_stamp_is_read_to_the_second() -> None:
    stamps = column(1.7e9, 1.7e9 + 20, kind=np.float64)  # 32 bits would hold multiples of 128 only
    _, found = answers(to_onnx(of_table()), patient(**{"time stamp": stamps}))
    assert abs(found[0] - found[1]).max() > 1e-4


def test_yes_and_no_are_understood_in_any_letters() -> None:
    _, found = answers(to_onnx(of_table()), patient(smoker=column("yes", "YES", "Y", "tRuE", "no")))
    assert (found[:4] == found[0]).all()
    assert (found[4] != found[0]).any()


@pytest.mark.parametrize(
    "bad", [{"age": column(40.0, np.inf, kind=np.float64)}, {"smoker": column("no", "perhaps")}], ids=str
)
def test_a_row_that_the_classifier_would_refuse_has_no_class_and_no_probabilities(bad: dict[str, Any]) -> None:
    names, found = answers(to_onnx(of_table()), patient(**bad))
    assert names[0] in CLASSES
    assert names[1] == ""
    assert np.isnan(found).tolist() == [[False] * 3, [True] * 3]


def test_a_pixel_that_is_missing_is_not_lost_in_the_network() -> None:
    rows = np.zeros((2, *IMAGE), np.float32)
    rows[1, 0, 0, 0] = np.nan
    names, found = answers(to_onnx(classifier("small-cnn")), {"X": rows})
    assert np.isnan(found).any(axis=1).tolist() == [False, True]
    assert names[1] == ""


def test_the_file_says_what_it_is(tmp_path: Path) -> None:
    difference = export_onnx(of_table().with_prior([0.5, 0.5, 0]), tmp_path / "model.onnx")
    assert difference is not None
    assert difference < 1e-5
    session = silent_runtime().InferenceSession(tmp_path / "model.onnx", providers=["CPUExecutionProvider"])
    notes = session.get_modelmeta().custom_metadata_map
    assert json.loads(notes["classes"]) == list(CLASSES)
    assert json.loads(notes["prior"]) == {"cat": 0.5, "dog": 0.5, "owl": 0}
    assert [each["column"] for each in json.loads(notes["inputs"])] == TABLE.names
    assert [each.name for each in session.get_inputs()] == list(patient())
    assert [each.shape for each in session.get_outputs()] == [["n"], ["n", 3]]


def test_the_same_classifier_gives_the_same_file_without_a_path_of_this_machine() -> None:
    content = to_onnx(classifier("paper-cnn"))
    assert content == to_onnx(classifier("paper-cnn"))
    assert b".py" not in content
    assert str(ROOT).encode() not in content


@pytest.mark.parametrize("precision", [torch.float64, torch.bfloat16], ids=str)
def test_a_network_in_another_precision_is_exported_in_that_of_every_runtime(
    tmp_path: Path, precision: torch.dtype
) -> None:
    made = classifier(module=build("mlp", IMAGE, 3, seed=0).to(precision))
    assert export_onnx(made, tmp_path / "model.onnx") is not None
    assert next(made.module.parameters()).dtype == precision


class Branching(nn.Module):
    """Does one thing for the zeros that it is traced with, and another for all else."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(16, 3)

    def forward(self, rows: Tensor) -> Tensor:
        logits: Tensor = self.head(rows.flatten(1))
        return logits * 2 if rows.abs().sum() > 0 else logits


class Counting(Branching):
    """Works for blocks of the size that it is traced with."""

    def forward(self, rows: Tensor) -> Tensor:
        logits: Tensor = self.head(rows.flatten(1))
        return logits + torch.zeros(int(rows.shape[0]), 3)


class Unknown(Branching):
    """Uses what ONNX has no operator for."""

    def forward(self, rows: Tensor) -> Tensor:
        return torch.special.i1(self.head(rows.flatten(1)))


@pytest.mark.parametrize(
    ("module", "complaint"),
    [
        (Branching(), "probabilities differ"),
        (Counting(), "onnxruntime cannot run the exported network"),
        (Unknown(), "torch cannot export this network"),
    ],
    ids=["branching", "counting", "unknown"],
)
def test_a_network_that_does_not_survive_the_export_is_refused_and_nothing_is_written(
    tmp_path: Path, module: nn.Module, complaint: str
) -> None:
    with pytest.raises(InputError, match=complaint):
        export_onnx(classifier("custom", module=module), tmp_path / "model.onnx")
    assert list(tmp_path.iterdir()) == []


def test_a_network_of_the_users_own_is_exported(tmp_path: Path) -> None:
    module = nn.Sequential(nn.Flatten(), nn.Linear(16, 8), nn.LayerNorm(8), nn.GELU(), nn.Dropout(), nn.Linear(8, 3))
    assert export_onnx(classifier("custom", module=module), tmp_path / "model.onnx") is not None


def test_without_onnxruntime_the_file_is_written_and_said_not_to_be_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    assert export_onnx(of_table(), tmp_path / "model.onnx") is None
    assert (tmp_path / "model.onnx").read_bytes() == to_onnx(of_table())


def test_without_onnx_the_error_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(InputError, match=r"pip install 'fedul\[onnx\]'"):
        export_onnx(of_table(), tmp_path / "model.onnx")
    assert list(tmp_path.iterdir()) == []
