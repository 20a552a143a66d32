"""Files of a classifier: `classifier.json`, which describes it, and `weights.safetensors`.

The weights file holds the description too, under its digest, so that an altered or exchanged file is noticed.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedul._utils.files import read_json, read_tensors, write_json, write_tensors
from fedul.errors import InputError

if TYPE_CHECKING:
    from torch import Tensor

FORMAT = "fedul-classifier"
VERSION = 2
DESCRIPTION, WEIGHTS = "classifier.json", "weights.safetensors"


def write_classifier(folder: Path, description: Mapping[str, Any], weights: Mapping[str, Tensor]) -> None:
    """Write the files; `description` is JSON-serializable, and gets format and version."""
    described = {"format": FORMAT, "version": VERSION, **description}
    write_tensors(folder / WEIGHTS, weights, described)
    write_json(folder / DESCRIPTION, described)


def read_classifier(folder: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Return description and weights; an InputError says what is wrong with the files."""
    description = read_json(folder / DESCRIPTION)
    if not isinstance(description, dict) or description.get("format") != FORMAT:
        raise InputError(f"{folder}: not a classifier of fedul; give the folder of a finished run.")
    if description.get("version") != VERSION:
        raise InputError(
            f"{folder}: the classifier has format version {description.get('version')}, but this fedul reads "
            f"version {VERSION}; train again, or use the fedul that wrote it."
        )
    tensors, recorded = read_tensors(folder / WEIGHTS)
    if recorded != description:
        raise InputError(f"{folder}: {DESCRIPTION} was altered or belongs to other weights; restore a copy.")
    return description, tensors
