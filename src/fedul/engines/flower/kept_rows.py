"""A site's rows as the network sees them, kept for a run: every message is answered by a process of its own.

They are made once, when the site joins. What it counts, and what an algorithm keeps beside them, rests on just these.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import torch

from fedul.errors import InputError
from fedul.federation import Rows, UnlabeledSets
from fedul.files import read_tensors, write_tensors


def write_rows(file: Path, client: UnlabeledSets, made_of: Mapping[str, str]) -> None:
    """Keeps a client, with a digest of each thing that it was made of."""
    tensors = {
        "inputs": client.inputs,
        "train/index": client.train.index,
        "train/sets": client.train.sets,
        "held/index": client.held_out.index,
        "held/sets": client.held_out.sets,
        "priors": torch.from_numpy(np.ascontiguousarray(client.priors)),
    }
    write_tensors(file, tensors, {"made_of": dict(made_of), "sets": list(client.set_names)})


def read_rows(file: Path, name: str) -> tuple[UnlabeledSets, Mapping[str, Any]] | None:
    """The client and what it was made of; None if there is no copy, or a damaged one, which is then made again."""
    with suppress(InputError, KeyError):
        tensors, notes = read_tensors(file)
        train, held_out = (Rows(tensors[f"{part}/index"], tensors[f"{part}/sets"]) for part in ("train", "held"))
        priors = tensors["priors"].numpy()
        return UnlabeledSets(name, tensors["inputs"], train, held_out, priors, notes["sets"]), notes["made_of"]
    return None
