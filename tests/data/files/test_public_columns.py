"""Public columns: what a schema and a site say about a table does not depend on its rows."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import fedul
from fedul.config import FileDataConfig
from fedul.data.files.load import read_file_rows
from fedul.data.files.schema import schema_from_dict
from fedul.data.files.schema.table import Boolean, Category, Number
from fedul.errors import InputError
from fedul.privacy import statement
from fedul.training import CollectWarnings

from ...data_files import write_hospitals

COLUMNS = """
[temperature]
low = 35
high = 41

[cough]
words = ["yes", "no"]

[ward]
words = ["A", "B", "C"]
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_hospitals(tmp_path)
    (tmp_path / "columns.toml").write_text(COLUMNS)
    return tmp_path


def config(folder: Path, **changes: object) -> FileDataConfig:
    given = {
        "data": str(folder / "patients.csv"),
        "priors": str(folder / "prevalence.csv"),
        "client_column": "hospital",
        "set_column": "month",
        "truth_column": "truth",
        "public_columns": str(folder / "columns.toml"),
    }
    return FileDataConfig(**{**given, **changes})


def half_of_the_rows(folder: Path) -> None:
    lines = (folder / "patients.csv").read_text().splitlines()
    (folder / "patients.csv").write_text("\n".join([lines[0], *lines[1::2]]) + "\n")


def test_a_schema_of_public_columns_is_that_of_the_file(folder):
    schema = fedul.load(config=config(folder)).federation.schema
    assert schema.columns == (
        Number("temperature", 38.0, 1.5, True),
        Boolean("cough", 0.5, True),
        Category("ward", ("A", "B", "C"), True, True),
    )
    assert schema_from_dict(schema.to_dict()) == schema


def test_other_rows_have_the_same_signature_and_schema(folder):
    before = read_file_rows(config(folder)).signature().to_dict(), fedul.load(config=config(folder)).federation.schema
    half_of_the_rows(folder)
    after = read_file_rows(config(folder)).signature().to_dict(), fedul.load(config=config(folder)).federation.schema
    assert before == after
    without = config(folder, public_columns=None)
    assert read_file_rows(without).signature().to_dict() != before[0]


def test_rows_are_encoded_by_the_public_range(folder):
    study = fedul.load(config=config(folder))
    inputs = study.federation.clients[0].inputs.numpy()
    assert inputs.shape[1] == 2 + 2 + 5
    assert np.isfinite(inputs).all()
    assert 0 < inputs[:, 1].mean() < 0.2  # missing temperatures


def test_a_private_run_covers_how_public_columns_are_encoded(folder):
    for columns, covered in ((str(folder / "columns.toml"), True), (None, False)):
        study = fedul.load(config=config(folder, public_columns=columns))
        run = fedul.train(study, method="fedul", dp_epsilon=8.0, rounds=1, callbacks=[CollectWarnings()])
        assert (statement.ENCODING not in run.result.privacy[0].not_covered) is covered


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "names no column"),
        ("[temperature]\nlow = 3", "needs either low and high, or words"),
        ("temperature = 3", "needs either low and high, or words"),
        ("[temperature]\nlow = 3\nhigh = 3", "low below high"),
        ("[temperature]\nlow = 3\nhigh = inf", "low below high"),
        ("[ward]\nwords = []", "a list of texts"),
        ('[ward]\nwords = ["A", "A"]', "each word once"),
        ("[height]\nlow = 1\nhigh = 2", "height"),
        ("[month]\nlow = 1\nhigh = 2", "'month' is not a feature"),
        ("[", "not a readable TOML file"),
    ],
)
def test_a_wrong_file_is_refused(folder, text, message):
    (folder / "columns.toml").write_text(text)
    with pytest.raises(InputError, match=message):
        fedul.load(config=config(folder))


def test_public_columns_are_for_tables(folder):
    np.savez(folder / "rows.npz", X=np.zeros((4, 2), np.float32), set=np.array(["a", "a", "b", "b"]))
    (folder / "p.csv").write_text("set,x,y\na,0.2,0.8\nb,0.7,0.3\n")
    wrong = FileDataConfig(
        data=str(folder / "rows.npz"), priors=str(folder / "p.csv"), public_columns=str(folder / "columns.toml")
    )
    with pytest.raises(InputError, match="public-columns: is for tables"):
        fedul.load(config=wrong)
