"""DataFrames load, train and predict like the CSV file that they would be written to."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import torch

import fedul
from fedul.core import Study
from fedul.errors import InputError

ROWS = 60
COLUMNS = {"client_column": "hospital", "set_column": "month"}


def patients() -> pd.DataFrame:
    generator = np.random.default_rng(0)
    temperature = generator.normal(37, 1, ROWS).round(2)
    temperature[3] = np.nan
    return pd.DataFrame(
        {
            "hospital": ["North", "South"] * (ROWS // 2),
            "month": np.repeat(["Jan", "Feb", "Mar"], ROWS // 3),
            "temperature": temperature,
            "visits": generator.integers(0, 9, ROWS),
            "cough": pd.Categorical(generator.choice(["dry", "wet", "none"], ROWS)),
            "aches": generator.random(ROWS) < 0.5,
            "ward": [None if i % 7 == 0 else f"W{i % 3}" for i in range(ROWS)],
            "score": [str(i % 5) if i % 2 else i % 5 for i in range(ROWS)],  # objects of two types
        }
    )


def prevalence() -> pd.DataFrame:
    keys = [(hospital, month) for hospital in ("North", "South") for month in ("Jan", "Feb", "Mar")]
    flu = [0.1, 0.5, 0.9, 0.2, 0.6, 0.8]
    return pd.DataFrame(keys, columns=["hospital", "month"]).assign(flu=flu, cold=[1 - share for share in flu])


def load(data: Any = None, priors: Any = None, **options: Any) -> Study:
    data = patients() if data is None else data
    return fedul.load(data, prevalence() if priors is None else priors, **{**COLUMNS, **options})


def fingerprint_of_csv(folder: Path) -> str:
    patients().to_csv(folder / "patients.csv", index=False)
    prevalence().to_csv(folder / "prevalence.csv", index=False)
    return load(folder / "patients.csv", folder / "prevalence.csv").federation.fingerprint()


def test_a_dataframe_gives_the_same_federation_as_its_csv_file(tmp_path: Path) -> None:
    assert load().federation.fingerprint() == fingerprint_of_csv(tmp_path)


def test_whole_numbers_beyond_64_bits_are_numbers() -> None:
    sizes = [None if i == 5 else i * 10**24 for i in range(ROWS)]
    whole, decimal = (load(patients().assign(size=pd.Series(sizes, dtype=kind))) for kind in (object, float))
    assert whole.federation.fingerprint() == decimal.federation.fingerprint()


def test_a_pyarrow_table_and_a_parquet_file_give_the_same_federation_as_a_dataframe(tmp_path: Path) -> None:
    frame = patients().astype({"score": str})
    frame.to_parquet(tmp_path / "patients.parquet")
    expected = load().federation.fingerprint()
    assert load(pa.Table.from_pandas(frame)).federation.fingerprint() == expected
    assert load(tmp_path / "patients.parquet").federation.fingerprint() == expected


@pytest.mark.parametrize(
    "priors",
    [
        prevalence().set_index(["hospital", "month"]),
        prevalence().set_index(["hospital", "month"]).rename_axis(index=[None, None]),
        prevalence().rename(columns={"hospital": "client", "month": "set"}).set_index(["client", "set"]),
        prevalence()
        .sample(frac=1, random_state=0)
        .sort_values(["hospital", "flu"]),  # with an index of shuffled numbers
        pa.Table.from_pandas(prevalence(), preserve_index=False),
    ],
)
def test_priors_may_be_indexed_by_client_and_set(priors: Any) -> None:
    assert load(priors=priors).federation.fingerprint() == load().federation.fingerprint()


def test_priors_of_a_single_client_may_be_indexed_by_set() -> None:
    priors = pd.DataFrame({"flu": [10, 50, 90], "cold": [90, 50, 10]}, index=["Jan", "Feb", "Mar"])
    study = load(patients().drop(columns="hospital"), priors, client_column=None)
    assert study.federation.clients[0].priors[:, 0].tolist() == [0.1, 0.5, 0.9]


def test_client_and_set_may_be_levels_of_the_index_of_the_data_and_other_levels_are_ignored() -> None:
    indexed = patients().assign(patient=range(ROWS)).set_index(["patient", "hospital", "month"])
    assert load(indexed).federation.fingerprint() == load().federation.fingerprint()


def test_dates_and_numbers_name_the_same_set_in_data_and_priors(tmp_path: Path) -> None:
    months = {"Jan": 1, "Feb": 2, "Mar": 3}
    expected = load().federation.clients[0].inputs
    for key in (pd.to_datetime, lambda texts: texts.str.slice(5, 7), lambda texts: texts.str.slice(6, 7).astype(float)):
        frames = [
            frame.assign(month=key(frame["month"].map(lambda name: f"2025-0{months[name]}-01")))
            for frame in (patients(), prevalence())
        ]
        assert torch.equal(load(*frames).federation.clients[0].inputs, expected)
        frames[1].to_csv(tmp_path / "prevalence.csv", index=False)
        assert torch.equal(load(frames[0], tmp_path / "prevalence.csv").federation.clients[0].inputs, expected)


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"set_column": "moth"}, "^data: there is no column 'moth': did you mean 'month'"),
        ({"data": patients().assign(visits=["many" if i == 7 else "3" for i in range(ROWS)])}, "column 'visits'"),
        ({"data": patients().assign(month=[None] + ["Jan"] * (ROWS - 1))}, "^data, row 1: names no set"),
        ({"priors": prevalence().head(5)}, "^priors: has no priors for set 'Mar' of client 'South'"),
        ({"priors": prevalence().assign(flu=-1)}, "^priors, row 1: '-1' of 'flu' is not a share"),
        ({"data": patients()["visits"]}, "^data: the Series cannot be read as a table"),
        ({"data": 7}, "^data: expected a path or a DataFrame, got an object of type int"),
        ({"set_column": ["month"]}, "^set-column: expected text"),
        ({"clients": 3}, "^clients: is for data sets by name, not for <DataFrame>"),
    ],
)
def test_what_is_wrong_with_a_dataframe_is_named_by_argument_and_row(changes: dict[str, Any], complaint: str) -> None:
    with pytest.raises(InputError, match=complaint):
        load(**changes)


def test_the_origin_says_that_data_is_in_memory() -> None:
    study = load()
    assert not study.reloadable
    assert json.loads(json.dumps(study.origin))["data"] == "<DataFrame>"
    with pytest.raises(InputError, match="data: was passed as a DataFrame, which is not stored"):
        fedul.load(**study.origin)


def test_the_origin_of_files_holds_absolute_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    patients().to_csv(tmp_path / "patients.csv", index=False)
    prevalence().to_csv(tmp_path / "prevalence.csv", index=False)
    (tmp_path / "mix.csv").write_text("cold,flu\n0.8,0.2\n")
    monkeypatch.chdir(tmp_path)
    for data in ("patients.csv", "pat*.csv"):
        study = load(data, "prevalence.csv", test_prior="mix.csv")
        paths = [study.origin[name] for name in ("data", "priors", "test_prior")]
        assert paths == [str(tmp_path / data), str(tmp_path / "prevalence.csv"), str(tmp_path / "mix.csv")]
        assert study.reloadable
        monkeypatch.chdir("/")
        assert fedul.load(**study.origin).federation.fingerprint() == study.federation.fingerprint()
        monkeypatch.chdir(tmp_path)
    (tmp_path / "patients.csv").rename(tmp_path / "moved.csv")
    with pytest.raises(InputError, match=r"patients\.csv: there is no such file"):
        fedul.load(**{**study.origin, "data": str(tmp_path / "patients.csv")})


def test_the_origin_of_a_data_set_by_name_holds_absolute_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    study = fedul.load("digits", data_dir="here", rows=400, clients=2)
    assert study.origin["data_dir"] == str(tmp_path / "here")
    assert study.origin["data"] == "digits"
    assert study.reloadable


def test_a_data_set_by_name_takes_priors_from_a_dataframe() -> None:
    classes = [str(k) for k in range(10)]
    priors = pd.DataFrame(np.full((4, 10), 0.1), columns=classes)
    priors = priors.assign(client=["client-1", "client-1", "client-2", "client-2"], set=["a", "b", "a", "b"])
    study = fedul.load("digits", priors, clients=2, rows=1000, sets=2)
    assert [client.priors.shape for client in study.federation.clients] == [(2, 10)] * 2
    np.testing.assert_allclose(study.federation.clients[0].priors, 0.1, atol=0.06)
    assert not study.reloadable


def test_load_takes_configurations() -> None:
    config = fedul.BenchmarkDataConfig(data="digits", clients=2, rows=400)
    expected = fedul.load("digits", clients=2, rows=400).federation.fingerprint()
    assert fedul.load(config).federation.fingerprint() == expected
    assert fedul.load(config=config).federation.fingerprint() == expected
    assert len(fedul.load(config, clients=3).federation.clients) == 3


def test_rows_that_the_user_labelled_count_as_labels_used() -> None:
    labels = [("flu" if i % 2 else "cold") if i < 15 else None for i in range(ROWS)]
    study = load(patients().assign(known=labels), label_column="known")
    assert sum(client.labelled_rows for client in study.federation.clients) == 15
    assert fedul.train(study, rounds=1).labels_used == 15
    assert fedul.train(load(), rounds=1).labels_used == 0


def test_a_classifier_predicts_dataframes_arrays_and_paths_alike(tmp_path: Path) -> None:
    study = load()
    classifier = fedul.train(study, rounds=1).classifier
    expected = classifier.predict_proba(study.federation.clients[0].inputs)
    assert expected.shape == (ROWS, 2)
    columns = ["score", "ward", "aches", "cough", "visits", "temperature"]
    patients().to_csv(tmp_path / "new.csv", index=False)
    for rows in (patients(), patients()[columns], tmp_path / "new.csv", str(tmp_path / "new.csv")):
        np.testing.assert_array_equal(classifier.predict_proba(rows), expected)
    assert classifier.predict(patients()).tolist() == [classifier.classes[k] for k in expected.argmax(axis=1)]


def test_a_classifier_refuses_a_dataframe_without_a_training_column_and_suggests_one() -> None:
    classifier = fedul.train(load(), rounds=1).classifier
    with pytest.raises(InputError, match=r"^rows: there is no column 'visits': did you mean 'visit'"):
        classifier.predict(patients().rename(columns={"visits": "visit"}))
    with pytest.raises(InputError, match=r"^rows, row 3: column 'visits' has 'many' where numbers are expected"):
        classifier.predict(patients().assign(visits=["1", "2", "many"] + ["4"] * (ROWS - 3)))


def test_a_classifier_of_arrays_takes_dataframes_of_numbers_and_array_files(tmp_path: Path) -> None:
    study = fedul.load("digits", clients=2, rows=400)
    classifier = fedul.train(study, rounds=1).classifier
    pixels = study.federation.clients[0].inputs.numpy().reshape(-1, 64)[:5]
    np.save(tmp_path / "new.npy", pixels)
    expected = classifier.predict_proba(pixels)
    np.testing.assert_array_equal(classifier.predict_proba(pd.DataFrame(pixels)), expected)
    np.testing.assert_array_equal(classifier.predict_proba(tmp_path / "new.npy"), expected)
    with pytest.raises(InputError, match=r"gone\.npy: there is no such file"):
        classifier.predict(tmp_path / "gone.npy")
