"""Columns become inputs: standardised, one-hot, with what is missing told; read back, a schema says the same."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pytest
from numpy.testing import assert_allclose

from fedul.data.files.schema import ImageSchema, schema_from_dict
from fedul.data.files.schema.column_stats import column_stats
from fedul.data.files.schema.infer import infer_schema
from fedul.data.files.schema.table import Boolean, Category, Number, TableSchema
from fedul.errors import InputError

ROWS = 60
TABLE = {
    "age": pa.array([str(20 + i % 37) for i in range(ROWS - 1)] + [None]),
    "sex": pa.array(["f", "m"] * (ROWS // 2)),
    "smoker": pa.array(["Yes", "no", "no"] * (ROWS // 3)),
    "town": pa.array(["X"] * 30 + ["Y"] * 25 + ["Z"] * 3 + [None] * 2),
}


def learned(table: dict[str, pa.Array], classes: tuple[str, ...] = ()) -> tuple[TableSchema, list[str]]:
    return infer_schema({name: column_stats(column) for name, column in table.items()}, classes)


def test_every_column_gets_the_kind_that_its_values_show() -> None:
    schema, warnings = learned(TABLE)
    kinds = [type(column) for column in schema.columns]
    assert kinds == [Number, Category, Boolean, Category]
    assert schema.columns[3] == Category("town", ("X", "Y"), others=True, missing=True)
    assert warnings == []
    assert [column.width for column in schema.columns] == [2, 2, 1, 4]  # inputs, with those of other and missing values
    assert [column.missing for column in schema.columns] == [True, False, False, True]


def test_inputs_of_the_training_rows_are_standardised_and_one_hot() -> None:
    schema, _ = learned(TABLE)
    inputs, unseen = schema.encode(TABLE, "f.csv")
    assert inputs.shape == (ROWS, *schema.shape)
    assert unseen == {}
    ages = inputs[:-1, 0]
    assert_allclose([ages.mean(), ages.std()], [0, 1], atol=1e-6)
    assert inputs[-1, :2].tolist() == [0, 1]  # missing: the mean, and its indicator
    assert (inputs[:, 2:4].sum(axis=1) == 1).all()
    assert_allclose(inputs[:, 4].mean(), 0, atol=1e-6)
    assert (inputs[:, 5:].sum(axis=1) == 1).all()


def test_values_not_seen_in_training_are_counted_and_encoded_as_unknown() -> None:
    schema, _ = learned(TABLE)
    new = {
        **{name: column[:2] for name, column in TABLE.items()},
        "sex": pa.array(["d", None]),
        "town": pa.array(["Q", "Z"]),
    }
    inputs, unseen = schema.encode(new, "new.csv")
    assert unseen == {"sex": 1}
    assert inputs[:, 2:4].sum() == 0
    assert inputs[:, 7].tolist() == [1, 1]  # towns that are not known are among the others


def test_a_schema_that_is_stored_is_the_same_when_read_back() -> None:
    schema, _ = learned(TABLE)
    assert schema_from_dict(json.loads(json.dumps(schema.to_dict()))) == schema
    images = ImageSchema(3, 28, 32)
    assert schema_from_dict(json.loads(json.dumps(images.to_dict()))) == images
    assert schema_from_dict(None) is None


@pytest.mark.parametrize(
    "stored", [{}, {"kind": "table"}, {"kind": "table", "columns": [{"kind": "x"}]}, {"kind": "images", "a": 1}]
)
def test_a_stored_schema_that_is_damaged_is_refused(stored: dict[str, object]) -> None:
    with pytest.raises(InputError, match="damaged"):
        schema_from_dict(stored)


@pytest.mark.parametrize(
    ("column", "classes", "remark"),
    [
        (pa.array(["flu", "cold", None] * 20), ("flu", "cold"), "holds the class names and is left out"),
        (pa.array([f"p{i}" for i in range(60)]), (), "is different in nearly every row"),
        (pa.array(["1", "2", "3", "other"] * 15), (), "mixes numbers and text"),
        (pa.array(["x"] * 60), (), "has only one value"),
        (pa.array(["3"] * 60), (), "has only one value"),
        (pa.array(["yes"] * 60), (), "has only one value"),
        (pa.nulls(60, pa.string()), (), "is empty"),
        (pa.array([[1]] * 60), (), "holds list"),
        (pa.array(range(60)), (), "numbers the rows like an identifier"),
    ],
)
def test_a_column_that_is_no_feature_is_pointed_out(column: pa.Array, classes: tuple[str, ...], remark: str) -> None:
    _, warnings = learned({**TABLE, "odd": column}, classes)
    assert len(warnings) == 1
    assert warnings[0].startswith("column 'odd' ")
    assert remark in warnings[0]


@pytest.mark.parametrize(
    ("column", "classes"),
    [
        (pa.array(["yes", "no"] * 30), ("yes", "no")),  # an answer, to whatever question
        (pa.array(["flu", "none"] * 30), ("flu", "cold")),
        (pa.array(["flu", "flu", None] * 20), ("flu", "cold")),
    ],
)
def test_a_column_that_shares_a_word_with_the_classes_is_kept_with_a_note(
    column: pa.Array, classes: tuple[str, ...]
) -> None:
    schema, warnings = learned({**TABLE, "odd": column}, classes)
    assert "odd" in schema.names
    assert any(w.startswith("column 'odd' has class names as values and is used as a feature") for w in warnings)


@pytest.mark.parametrize(
    ("name", "remark"), [("diagnosis", "has the name of a label"), ("patient_id", "has the name of an identifier")]
)
def test_a_name_may_give_a_label_or_an_identifier_away(name: str, remark: str) -> None:
    _, warnings = learned({**TABLE, name: pa.array([i % 7 for i in range(60)])})
    assert remark in warnings[0]


@pytest.mark.parametrize(
    ("column", "complaint"),
    [
        (pa.array(["1"] * 59 + ["l2"]), "'l2' is not a number, but the other values are"),
        (pa.array([1.0] * 59 + [float("inf")]), "infinite or huge"),
        (pa.array(["1e308", "-1e308"] * 30), "infinite or huge"),
        (pa.array([f"14.{i:03},97" for i in range(60)]), "'14.000,97' looks like a number with thousands separators"),
        (pa.array([f"{i},960.97" for i in range(60)]), "'0,960.97' looks like a number with thousands separators"),
        (pa.array(["7"] * 50 + ["14'960"] * 10), "'14'960' looks like a number with thousands separators"),
        (pa.array(["0,5", "1,25"] * 30), "'0,5' looks like a number with a decimal comma; write a point"),
    ],
)
def test_a_number_that_is_none_is_refused(column: pa.Array, complaint: str) -> None:
    with pytest.raises(InputError, match=f"column 'odd': .*{complaint}"):
        learned({**TABLE, "odd": column})


def test_thousands_of_numbers_with_separators_are_refused_too_though_no_word_is_kept() -> None:
    amounts = pa.array([f"{i}.{i % 1000:03},97" for i in range(100)] * 20 + [f"{i}.000,5" for i in range(999)])
    with pytest.raises(InputError, match=r"column 'odd': .*thousands separators; remove them"):
        learned({"odd": amounts})


def test_codes_that_look_like_numbers_in_a_few_rows_are_categories() -> None:
    schema, warnings = learned({"code": pa.array(["A1"] * 30 + ["1,200"] * 30)})
    assert schema.columns == (Category("code", ("1,200", "A1"), others=False, missing=False),)
    assert warnings == []


def test_a_table_without_a_feature_is_refused() -> None:
    with pytest.raises(InputError, match="no column can be used as a feature; column 'a' is empty"):
        learned({"a": pa.nulls(3, pa.string())})


@pytest.mark.parametrize(
    ("column", "values", "complaint"),
    [
        ("age", ["old"], r"new\.csv, row 7: column 'age' has 'old' where numbers are expected"),
        ("age", ["1e999"], "column 'age' has an infinite value"),
        ("age", ["40", "-1e308"], "column 'age' has -1e.308, far outside the range of training"),
        ("smoker", ["maybe"], "column 'smoker' has 'maybe' where yes or no is expected"),
    ],
)
def test_new_rows_that_do_not_fit_are_refused(column: str, values: list[str], complaint: str) -> None:
    schema, _ = learned(TABLE)
    new = {**{name: each[:1] for name, each in TABLE.items()}, column: pa.array(values)}
    with pytest.raises(InputError, match=complaint):
        schema.encode(new, "new.csv", first=6)


def test_rows_keep_their_inputs_whatever_block_they_are_read_in() -> None:
    schema, _ = learned(TABLE)
    whole, _ = schema.encode(TABLE, "f")
    halves = [schema.encode({n: c[a:b] for n, c in TABLE.items()}, "f")[0] for a, b in ((0, 17), (17, ROWS))]
    assert np.array_equal(whole, np.concatenate(halves))
