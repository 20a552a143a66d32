"""Images in folders client/set/: all are brought to one form, and a file that is no image is named."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import fedul
from fedul.core import Study
from fedul.data.files.image_collection import read_image
from fedul.data.files.schema import ImageSchema
from fedul.errors import InputError

from ...data_files import write_slice

PRIORS = "client,set,cat,dog\nnorth,may,0.2,0.8\nnorth,june,0.7,0.3\n"


def write(folder: Path, name: str, size: tuple[int, int] = (6, 4), mode: str = "L", value: int = 100) -> None:
    file = folder / name
    file.parent.mkdir(parents=True, exist_ok=True)
    Image.new(mode, size, value if mode == "L" else (value,) * 3).save(file)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for group, ending in (("may", "png"), ("june", "jpg")):
        for number in range(5):
            write(tmp_path / "images", f"north/{group}/{number}.{ending}", value=20 * number)
    (tmp_path / "images/north/may/notes.txt").write_text("no image")
    (tmp_path / "p.csv").write_text(PRIORS)
    return tmp_path


def load(folder: Path, **options: object) -> Study:
    return fedul.load(str(folder / "images"), priors=str(folder / "p.csv"), **options)


def test_folders_are_clients_and_sets(folder: Path) -> None:
    federation = load(folder).federation
    (client,) = federation.clients
    assert (client.name, client.set_names) == ("north", ("may", "june"))
    assert federation.input_shape == (1, 4, 6)
    assert federation.schema == ImageSchema(1, 4, 6)
    assert len(client.train) + len(client.held_out) == 10
    assert sorted({int(x) for x in client.inputs[5:].flatten()}) == [0, 20, 40, 60, 80]


def test_one_image_in_colour_makes_all_so_and_a_size_may_be_asked_for(folder: Path) -> None:
    write(folder / "images", "north/may/large.bmp", (12, 12), "RGB", 50)
    assert load(folder, image_size=8).federation.input_shape == (3, 8, 8)
    with pytest.raises(InputError, match=r"large\.bmp: is 12 x 12 pixels, but .* is 6 x 4; resize them"):
        load(folder)


def test_sixteen_bits_are_not_cut_off(tmp_path: Path) -> None:
    values = np.array([[0, 1000], [2000, 65535]], np.uint16)
    Image.fromarray(values).save(tmp_path / "x.png")
    assert read_image(tmp_path / "x.png", ImageSchema(1, 2, 2)).flatten().tolist() == [0, 4, 8, 255]


def test_dicom_slices_are_images_too(tmp_path: Path) -> None:
    write_slice(tmp_path / "x.dcm", np.arange(16).reshape(4, 4))
    assert read_image(tmp_path / "x.dcm", ImageSchema(1, 4, 4)).flatten()[[0, -1]].tolist() == [0, 255]


@pytest.mark.parametrize(
    ("name", "content", "complaint"),
    [
        ("empty.png", b"", "not a complete image"),
        ("text.png", b"hello", "not a complete image"),
        ("x.dcm", b"hello", "not a complete DICOM image"),
    ],
)
def test_a_file_that_is_no_image_is_named(folder: Path, name: str, content: bytes, complaint: str) -> None:
    (folder / "images/north/may" / name).write_bytes(content)
    with pytest.raises(InputError, match=f"{name}: {complaint}"):
        load(folder)


def test_an_image_that_is_cut_short_is_named(folder: Path) -> None:
    file = folder / "images/north/may/0.png"
    noise = np.random.default_rng(0).integers(0, 255, (4, 6), dtype=np.uint8)
    Image.fromarray(noise).save(file)
    file.write_bytes(file.read_bytes()[:-25])
    with pytest.raises(InputError, match=r"0\.png: not a complete image"):
        load(folder)


def test_options_of_tables_and_empty_folders_are_refused(folder: Path) -> None:
    with pytest.raises(InputError, match="set-column: is for tables"):
        load(folder, set_column="x")
    (folder / "none/a/b").mkdir(parents=True)
    with pytest.raises(InputError, match="there are no images below it"):
        fedul.load(str(folder / "none"), priors=str(folder / "p.csv"))
