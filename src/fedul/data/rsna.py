"""The RSNA intracranial hemorrhage challenge in its published layout: stage_2_train.csv and stage_2_train/ID_*.dcm.

Flanders et al., Construction of a Machine Learning Dataset through Collaboration, Radiology: AI 2020. Rows are chosen
as in the appendix of Lu et al., ICLR 2022: all images with exactly one subtype of hemorrhage, and healthy images up to
their share in the appendix's table, 18,802 of 66,000. That gives the text's 106 thousand rows if 75,800 images have one
subtype, which has not been counted. The text has 21.2 thousand rows per system, the table 13.2 thousand: this is read
as 23,500 of 106,000 test rows, and a fifth of the others held out.

Both draws use generators with the keys (0, "rsna-hemorrhage", "healthy") and (..., "test"), independent of the seed
of a run. As in the paper, rows are images: slices of one patient may be in training and test rows, so that the error on
new patients may be larger than the test error.
"""

from __future__ import annotations

import csv
import hashlib
import io
import os
import re
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from fedul._utils.files import write_bytes
from fedul._utils.randomness import numpy_generator
from fedul.core import Labels, Scaling
from fedul.data import source_folder
from fedul.data.arrays import read_npz
from fedul.data.dicom import Window, hounsfield, windowed
from fedul.data.source import LabelledData, user_cache
from fedul.errors import InputError

NAME = "rsna-hemorrhage"
SUBTYPES = ("epidural", "intraparenchymal", "intraventricular", "subarachnoid", "subdural")
CLASSES = ("healthy", *SUBTYPES)
WINDOWS = (Window("brain", 40, 80), Window("subdural", 80, 200), Window("soft", 40, 380))
"""A common choice in public solutions of the challenge; the third is soft tissue, others use bone or stroke."""

SIDE = 28
"""Side length in pixels; with 224, the usual input of a ResNet18, the challenge needs 16 GB."""

HEALTHY_PER_HEMORRHAGE = 18_802 / 47_198
TEST_SHARE = 23_500 / 106_000
DAMAGED_AS_PUBLISHED = frozenset({"ID_6431af929"})
"""Images that are damaged in the published archive; they are left out."""

RECIPE = b"rsna-hemorrhage 1"
"""Version of the choice and conversion of rows; caches of other versions are not used."""

REMEDY = "restore the published file"


def load(data_dir: str | None, side: int = SIDE) -> LabelledData:
    """Read the slices as (n, 3, side, side) bytes, one window per channel; converted images are cached."""
    if side < 1:
        raise InputError(f"side: an image needs at least one pixel per side, got {side}.")
    images, labels = _load_images(source_folder(NAME, data_dir), side)
    order = numpy_generator(0, NAME, "test").permutation(len(labels))
    count = round(TEST_SHARE * len(order))
    test, train = np.sort(order[:count]), np.sort(order[count:])
    return LabelledData(images[train], labels[train], images[test], labels[test], CLASSES, Scaling(scale=1 / 255))


def cache_name(side: int) -> str:
    """Return the name of the cache file of converted images.

    >>> cache_name(28)
    'rsna-hemorrhage-28-brain40w80-subdural80w200-soft40w380.npz'
    """
    return "-".join([NAME, str(side), *(f"{w.name}{w.centre}w{w.width}" for w in WINDOWS)]) + ".npz"


def chosen_rows(table: Path) -> tuple[list[str], Labels]:
    """Return the names and classes of the images to use: one subtype each, and healthy ones up to their share."""
    subtypes = read_labels(table)
    ids = sorted(name for name in subtypes if name not in DAMAGED_AS_PUBLISHED)
    healthy = [name for name in ids if not subtypes[name]]
    single = {name: subtypes[name].bit_length() for name in ids if subtypes[name].bit_count() == 1}
    if not single:
        raise InputError(f"{table}: no image has exactly one kind of hemorrhage; {REMEDY}.")
    order = numpy_generator(0, NAME, "healthy").permutation(len(healthy))
    for i in order[: round(HEALTHY_PER_HEMORRHAGE * len(single))].tolist():
        single[healthy[i]] = 0
    names = sorted(single)
    return names, np.array([single[name] for name in names], dtype=np.int64)


def read_labels(table: Path) -> dict[str, int]:
    """Return the subtypes of every image as bits, the first subtype lowest.

    The published table has four images twice, with equal labels; contradicting lines are refused.
    """
    bits = {name: 1 << k for k, name in enumerate((*SUBTYPES, "any"))}
    positive: dict[str, int] = {}
    seen: dict[str, int] = {}
    try:
        with table.open(newline="", encoding="utf-8-sig") as file:
            lines = csv.reader(file)
            if (header := next(lines, [])) != ["ID", "Label"]:
                raise InputError(f"{table}: the first line must be ID,Label; got {','.join(header) or 'nothing'}.")
            for number, cells in enumerate(lines, start=2):
                if not cells:
                    continue
                image, _, name = cells[0].rpartition("_")
                bit = bits.get(name)
                if bit is None:
                    raise InputError(f"{table}, line {number}: '{name}' is not one of {', '.join(bits)}; {REMEDY}.")
                if len(cells) != 2 or cells[1] not in ("0", "1"):
                    raise InputError(f"{table}, line {number}: expected a label of 0 or 1; {REMEDY}.")
                if image not in seen:
                    if not re.fullmatch("ID_[0-9A-Za-z]+", image):  # it becomes the name of a file
                        raise InputError(f"{table}, line {number}: '{image}' is not an image's ID_...; {REMEDY}.")
                    seen[image] = positive[image] = 0
                value = bit if cells[1] == "1" else 0
                if seen[image] & bit and positive[image] & bit != value:
                    raise InputError(f"{table}, line {number}: {cells[0]} contradicts an earlier line; {REMEDY}.")
                seen[image] |= bit
                positive[image] |= value
    except (OSError, UnicodeDecodeError, csv.Error) as problem:
        raise InputError(f"{table}: not a readable CSV file ({problem}); {REMEDY}.") from None
    for image, known in seen.items():
        if lacking := [name for name, bit in bits.items() if not known & bit]:
            raise InputError(f"{table}: {image} has no line for {', '.join(lacking)}; {REMEDY}.")
        if bool(positive[image] & bits["any"]) != bool(positive[image] & ~bits["any"]):
            raise InputError(f"{table}: 'any' of {image} contradicts its kinds of hemorrhage; {REMEDY}.")
    return {image: kinds & ~bits["any"] for image, kinds in positive.items()}


def _load_images(folder: Path, side: int) -> tuple[torch.Tensor, Labels]:
    table, own = folder / "stage_2_train.csv", user_cache() / NAME
    made_of = _source_digest(table)
    for place in (folder, own):
        try:
            cached = read_npz(place / cache_name(side), ("images", "labels", "made_of"), "")
        except InputError:  # absent or damaged: it is written again
            continue
        if str(cached["made_of"]) == made_of:
            return torch.from_numpy(cached["images"]), cached["labels"]
    names, labels = chosen_rows(table)
    images = _convert(folder / "stage_2_train", names, side)
    content = io.BytesIO()
    np.savez(content, images=images, labels=labels, made_of=np.array(made_of))
    place = folder if os.access(folder, os.W_OK) else own  # shared data may be read-only
    write_bytes(place / cache_name(side), content.getvalue())
    return torch.from_numpy(images), labels


def _source_digest(table: Path) -> str:
    try:
        with table.open("rb") as file:
            return hashlib.sha256(RECIPE + hashlib.file_digest(file, "sha256").digest()).hexdigest()
    except OSError as problem:
        raise InputError(f"{table}: cannot be read ({problem.strerror or problem}); {REMEDY}.") from None


def _convert(folder: Path, names: list[str], side: int) -> NDArray[np.uint8]:
    paths = [folder / f"{name}.dcm" for name in names]
    if missing := [path for path in paths if not os.path.isfile(path)]:  # before minutes of work
        raise InputError(
            f"{missing[0]}: there is no such file ({len(missing):,} of {len(paths):,} images are missing); "
            "unpack the whole archive."
        )
    images: NDArray[Any] = np.empty((len(paths), len(WINDOWS), side, side), np.uint8)
    for image, path in zip(images, paths, strict=True):
        image[:] = windowed(hounsfield(path), WINDOWS, side).numpy()
    return images
