"""Cache of a site's encoded rows for one run.

Rows are encoded once, when the site joins. Row counts, and the state of an algorithm, refer to exactly these rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path

import numpy as np
import torch

from fedul._utils.files import read_tensors, write_tensors
from fedul.core import PriorScope, Rows, UnlabeledSets
from fedul.errors import InputError


def write_row_cache(file: Path, client: UnlabeledSets, sources: Mapping[str, str]) -> None:
    """Write a client, with a digest of each source that it was made from."""
    tensors = {
        "inputs": client.inputs,
        "train/index": client.train.index,
        "train/sets": client.train.sets,
        "held_out/index": client.held_out.index,
        "held_out/sets": client.held_out.sets,
        "priors": torch.from_numpy(np.ascontiguousarray(client.priors)),
    }
    notes = {
        "sources": dict(sources),
        "sets": list(client.set_names),
        "labelled_sets": list(client.labelled_sets),
        "prior_scope": asdict(client.prior_scope),
    }
    write_tensors(file, tensors, notes)


def read_row_cache(file: Path, name: str) -> tuple[UnlabeledSets, Mapping[str, str]] | None:
    """Return the client and its sources; None if the cache is missing or damaged."""
    with suppress(InputError, KeyError):
        tensors, notes = read_tensors(file)
        parts = ("train", "held_out")
        train, held_out = (Rows(tensors[f"{part}/index"], tensors[f"{part}/sets"]) for part in parts)
        client = UnlabeledSets(
            name,
            tensors["inputs"],
            train,
            held_out,
            tensors["priors"].numpy(),
            notes["sets"],
            notes["labelled_sets"],
            PriorScope(**notes["prior_scope"]),
        )
        return client, notes["sources"]
    return None
