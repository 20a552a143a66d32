"""File of site adjustments, `site_adjustments.safetensors`: in the folder of a classifier, or in the state of a site.

It holds `location` and `deviation` (sites, inputs) in float64. Its notes, and `classifier.json`, name the sites in this
order, the column with the client of a row, and the places of the adjusted inputs with their indicators.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from fedul._utils.files import read_tensors, tensors_digest, write_tensors
from fedul.core import SiteAdjustment, SiteAdjustments
from fedul.errors import InputError

FILE = "site_adjustments.safetensors"


def write_adjustments(folder: Path, adjustments: SiteAdjustments) -> dict[str, Any]:
    """Write the file into a folder; return its description, JSON-serializable, with a digest of its numbers."""
    locations, deviations = map(torch.from_numpy, adjustments.stack())
    tensors = {"location": locations, "deviation": deviations}
    description = {
        "sites": list(adjustments.sites),
        "client_column": adjustments.client_column,
        "columns": [list(each) for each in adjustments.columns.items()],
        "sha256": tensors_digest(tensors),
    }
    write_tensors(folder / FILE, tensors, description)
    return description


def read_adjustments(folder: Path, description: Any = None) -> SiteAdjustments:
    """Read the file of a folder; InputError if it is damaged, or does not match a description."""
    tensors, notes = read_tensors(folder / FILE)
    if description not in (None, notes):
        raise InputError(f"{folder}: {FILE} belongs to another classifier; restore a copy.")
    rows = zip(tensors["location"].numpy(), tensors["deviation"].numpy(), strict=True)
    sites = {name: SiteAdjustment(*row) for name, row in zip(notes["sites"], rows, strict=True)}
    return SiteAdjustments(sites, dict(notes["columns"]), notes["client_column"])
