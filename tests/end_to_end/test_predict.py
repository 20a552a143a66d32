from __future__ import annotations

import csv
import io
import json
import os
import shutil
import signal
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from numpy.typing import NDArray
from PIL import Image

from fedul.classifier import Classifier
from fedul.data import read_source
from fedul.data.files.schema import ImageSchema
from fedul.models import build

from .checks import refuses
from .command import Fedul, Outcome, Warm

CLASSES = tuple("0123456789")


@pytest.fixture(scope="module")
def folder(canonical: tuple[Path, Outcome], tmp_path_factory: pytest.TempPathFactory) -> Path:
    here = tmp_path_factory.mktemp("predict")
    shutil.copytree(canonical[0], here / "RUN")
    flat: NDArray[np.uint8] = read_source("digits").test_inputs[:50].reshape(50, 64).numpy()
    np.save(here / "rows.npy", flat)
    np.save(here / "images.npy", flat.reshape(50, 1, 8, 8))
    np.save(here / "floats.npy", flat.astype(np.float64))
    np.savez(here / "rows.npz", X=flat, other=np.zeros(3))
    np.savez_compressed(here / "only.npz", anything=flat)
    np.savetxt(here / "rows.csv", flat, delimiter=",", fmt="%d")
    np.savetxt(here / "header.csv", flat, delimiter=",", fmt="%d", comments="", header=",".join("p" * 64))
    sizes = b"".join(size.to_bytes(4, "big") for size in (50, 8, 8))
    (here / "rows-idx3-ubyte").write_bytes(b"\0\0\x08\x03" + sizes + flat.tobytes())
    return here


@pytest.fixture(scope="module")
def fedul(warm: Warm, folder: Path) -> Fedul:
    return partial(warm.run, at=folder)


@pytest.fixture(scope="module")
def prediction(fedul: Fedul) -> Outcome:
    return fedul("predict RUN rows.npy --json")


@pytest.fixture(scope="module")
def probabilities(prediction: Outcome) -> NDArray[np.float64]:
    return np.array(prediction.document["probabilities"])


def table(text: str, first: int = 1) -> tuple[list[str], list[str], NDArray[np.float64]]:
    """Return the header, the first column, and the numbers from the column `first` on."""
    header, *rows = list(csv.reader(io.StringIO(text)))
    return header, [row[0] for row in rows], np.array([[float(cell) for cell in row[first:]] for row in rows])


def test_predictions_are_a_table_of_classes_and_probabilities_in_the_order_of_the_rows(
    fedul: Fedul, probabilities: NDArray[np.float64]
) -> None:
    outcome = fedul("predict RUN rows.npy")
    assert (outcome.code, outcome.err) == (0, "")
    header, names, figures = table(outcome.out)
    assert header == ["class", *(f"p({name})" for name in CLASSES)]
    assert figures.shape == (50, 10)
    np.testing.assert_allclose(figures.sum(axis=1), 1, atol=1e-4)
    np.testing.assert_allclose(figures, probabilities, atol=1e-5)
    assert names == [CLASSES[k] for k in probabilities.argmax(axis=1)]


def test_the_json_document_says_all_that_the_table_says(
    prediction: Outcome, probabilities: NDArray[np.float64]
) -> None:
    assert (prediction.code, prediction.err) == (0, "")
    assert prediction.document["rows"] == 50
    assert prediction.document["classes"] == list(CLASSES)
    assert prediction.document["class"] == [CLASSES[k] for k in probabilities.argmax(axis=1)]
    np.testing.assert_allclose(probabilities.sum(axis=1), 1, rtol=1e-9)


def test_most_predictions_of_a_trained_classifier_are_right(probabilities: NDArray[np.float64]) -> None:
    assert (probabilities.argmax(axis=1) == read_source("digits").test_labels[:50]).mean() > 0.5


@pytest.mark.parametrize(
    "file", ["images.npy", "floats.npy", "rows.npz", "only.npz", "rows.csv", "header.csv", "rows-idx3-ubyte"]
)
def test_the_same_rows_in_another_kind_of_file_are_predicted_the_same(
    fedul: Fedul, probabilities: NDArray[np.float64], file: str
) -> None:
    document = fedul(f"predict RUN {file} --json").document
    np.testing.assert_allclose(document["probabilities"], probabilities, rtol=1e-5, atol=1e-9)


def test_another_prior_changes_the_probabilities_in_closed_form(
    fedul: Fedul, probabilities: NDArray[np.float64]
) -> None:
    prior = np.array([0.55] + [0.05] * 9)
    given = ",".join(f"{name}={share}" for name, share in zip(CLASSES, prior, strict=True))
    document = fedul(f"predict RUN rows.npy --json --prior {given}").document
    expected = probabilities * prior / 0.1
    np.testing.assert_allclose(
        document["probabilities"], expected / expected.sum(axis=1, keepdims=True), rtol=1e-6, atol=1e-12
    )


def test_out_writes_the_table_to_a_file(fedul: Fedul, folder: Path, probabilities: NDArray[np.float64]) -> None:
    outcome = fedul("predict RUN rows.npy --out 'new/[mine].csv'")
    assert outcome.code == 0
    assert "new/[mine].csv" in outcome.out
    _, names, figures = table((folder / "new/[mine].csv").read_text())
    assert len(names) == 50
    np.testing.assert_allclose(figures, probabilities, atol=1e-5)


def test_out_and_json_together_write_the_table_and_print_where_it_is(fedul: Fedul, folder: Path) -> None:
    outcome = fedul("predict RUN rows.npy --out table.csv --json")
    assert outcome.document["out"] == "table.csv"
    assert len(table((folder / "table.csv").read_text())[1]) == 50


def test_the_folder_of_the_model_alone_is_enough(fedul: Fedul, probabilities: NDArray[np.float64]) -> None:
    assert fedul("predict RUN/model rows.npy --json").document["probabilities"] == probabilities.tolist()


def test_predictions_do_not_replace_the_rows_they_are_made_from(fedul: Fedul, folder: Path) -> None:
    np.save(folder / "precious.npy", np.zeros((2, 64), np.uint8))
    outcome = fedul("predict RUN precious.npy --out precious.npy")
    assert outcome.code == 2
    assert "is the file with the rows" in outcome.err
    assert np.load(folder / "precious.npy").shape == (2, 64)


def test_predictions_do_not_replace_a_folder(fedul: Fedul, folder: Path) -> None:
    (folder / "a folder").mkdir()
    assert fedul("predict RUN rows.npy --out 'a folder'").code == 2


@pytest.fixture(scope="module")
def pictures(folder: Path) -> list[str]:
    """Train a classifier of images; return the files of a folder of images in their order."""
    module, schema = build("linear", (1, 4, 4), 2, seed=0), ImageSchema(1, 4, 4)
    Classifier(module, "linear", ("flu", "cold"), (1, 4, 4), np.array([0.5, 0.5]), schema=schema).save(folder / "EYES")
    names = ["=1+1.png", "a/x.png", "b, c.png"]
    (folder / "photos/a").mkdir(parents=True)
    for name in (*names, "._hidden.png"):
        Image.fromarray(np.full((4, 4), 10 * len(name), np.uint8)).save(folder / "photos" / name)
    return ["./=1+1.png", *names[1:]]


def test_predictions_of_images_name_their_files(fedul: Fedul, folder: Path, pictures: list[str]) -> None:
    document = fedul("predict EYES photos --json").document
    assert document["file"] == pictures
    for name in ("p.csv", "p.parquet"):
        assert fedul(f"predict EYES photos --out {name} --estimate-prior").code == 0
    stored = pq.read_table(folder / "p.parquet")
    assert stored.column_names == ["file", "class", "p(flu)", "p(cold)"]
    assert stored.column("file").to_pylist() == pictures
    header, names, _ = table((folder / "p.csv").read_text(), first=2)
    assert (header, names) == (stored.column_names, pictures)
    header, names, _ = table(fedul("predict EYES photos/a/x.png").out, first=2)
    assert (header[0], names) == ("file", ["x.png"])


def test_an_old_leftover_of_a_killed_command_is_removed(fedul: Fedul, folder: Path) -> None:
    (folder / ".writing-old").write_bytes(b"")
    os.utime(folder / ".writing-old", (0, 0))
    assert fedul("predict RUN rows.npy --out again.csv").code == 0
    assert not (folder / ".writing-old").exists()


@pytest.mark.parametrize("name", ["t.xlsx", "t.npy", "t.txt", "t"])
def test_predictions_need_a_file_name_of_a_known_format(fedul: Fedul, folder: Path, name: str) -> None:
    refuses(fedul, folder, f"predict RUN rows.npy --out {name}", "name a file that ends in .csv or .parquet")


def test_a_folder_is_refused_where_arrays_are_expected(fedul: Fedul, folder: Path) -> None:
    refuses(fedul, folder, "predict RUN RUN", "RUN: is a folder, but the classifier takes arrays")


@pytest.mark.usefixtures("finished_run")
def test_stopped_predictions_leave_no_file_and_say_so(warm: Warm, tmp_path: Path) -> None:
    np.save(tmp_path / "many.npy", np.zeros((300_000, 64), np.uint8))
    running = warm.start("predict RUN many.npy --out new/stopped.csv", tmp_path)
    running.wait_until(lambda: list(tmp_path.glob("new/.writing-*")))
    running.send(signal.SIGINT)
    outcome = running.outcome()
    assert (outcome.code, outcome.err) == (130, "fedul: stopped; no file was written.\n")
    assert list((tmp_path / "new").iterdir()) == []


def test_a_class_may_have_share_0_in_the_prior(fedul: Fedul) -> None:
    prior = ",".join(f"{k}={0.5 if k < 2 else 0}" for k in range(10))
    document = json.loads(fedul(f"predict RUN rows.npy --prior {prior} --json").out)
    assert {value for row in document["probabilities"] for value in row[2:]} == {0.0}
