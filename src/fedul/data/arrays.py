"""Arrays of the user's own in one .npz file: X (rows, ...), set and, where there are several, client."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from fedul.config import OwnDataConfig
from fedul.data.form import Form
from fedul.data.npz import read_npz
from fedul.data.own_sets import ALONE, Names
from fedul.errors import InputError
from fedul.federation import Scaling
from fedul.schema import Schema

REMEDY = "give X (rows, ...), set (rows) and client (rows)"


class Arrays:
    """The rows of an .npz file."""

    labels: Names | None = None

    def __init__(self, path: Path, config: OwnDataConfig) -> None:
        self.what = str(path)
        for option in ("label_column", "truth_column", "ignore_columns", "category_columns"):
            if getattr(config, option):
                raise InputError(f"{option.replace('_', '-')}: is for tables; an .npz file has no columns.")
        names = [config.set_column or "set"] + ([config.client_column] if config.client_column else [])
        try:
            stored = dict(read_npz(path, ["X", *names, *([] if config.client_column else ["client"])], REMEDY))
        except InputError:
            if config.client_column:
                raise
            stored = dict(read_npz(path, ["X", *names], REMEDY))
        self._rows = stored["X"]
        kind = self._rows.dtype
        if self._rows.ndim < 2 or not (np.issubdtype(kind, np.integer) or np.issubdtype(kind, np.floating)):
            raise InputError(f"{path}: X holds {kind} of shape {self._rows.shape}; {REMEDY}, X being numbers.")
        self.sets = self._named(path, stored[names[0]], names[0])
        clients = stored.get(config.client_column or "client")
        self.clients = (
            Names((ALONE,), np.zeros(len(self._rows), np.int64))
            if clients is None
            else self._named(path, clients, config.client_column or "client")
        )

    def _named(self, path: Path, values: NDArray[Any], name: str) -> Names:
        if values.shape != (len(self._rows),) or values.dtype.kind not in "iuUS":
            raise InputError(
                f"{path}: {name} holds {values.dtype} of shape {values.shape}; give a name or a whole number for each "
                f"of {len(self._rows)} rows."
            )
        words, codes = np.unique(values, return_inverse=True)
        names = [word.decode(errors="replace") if isinstance(word, bytes) else str(word) for word in words.tolist()]
        return Names(tuple(names), codes.astype(np.int64))

    def row(self, number: int) -> str:
        return f"{self.what}, row {number + 1}"

    def form(self, train: NDArray[np.bool_]) -> Form:
        scaling = Scaling(1 / 255) if self._rows.dtype == np.uint8 else Scaling()
        return Form("array", shape=self._rows.shape[1:], scaling=scaling)

    def encoded(self, schema: Schema | None) -> torch.Tensor:
        if self._rows.dtype == np.uint8:
            return torch.from_numpy(self._rows)
        rows = self._rows.astype(np.float32, copy=False)
        if not np.isfinite(rows).all():
            bad = int(np.flatnonzero(~np.isfinite(rows.reshape(len(rows), -1)).all(axis=1))[0])
            raise InputError(f"{self.row(bad)}: has a value that is missing or infinite; fill it or drop the row.")
        return torch.from_numpy(rows)
