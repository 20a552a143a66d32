"""The trained classifier: calibrated probabilities for its test prior or, in closed form, for another class mix.

It is saved as a folder of two files, `classifier.json` and `weights.safetensors`, and a third one if rows are adjusted
by site (`fedul.data.files.site_adjustment_file`). Loading runs no code from them.
"""

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from html import escape
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor, nn

from fedul import models
from fedul._utils.files import as_path
from fedul.core import (
    PREDICT_BATCH,
    Matrix,
    Scaling,
    Schema,
    SiteAdjustment,
    SiteAdjustments,
    compute_dtype,
    tensor_view,
    validate_class_mix,
)
from fedul.core.prediction_sets import level_for, named_sets
from fedul.data.files.classifier_file import read_classifier, write_classifier
from fedul.data.files.memory_table import is_dataframe
from fedul.data.files.new_rows import RowReader, unknown_sites_message
from fedul.data.files.schema import schema_from_dict
from fedul.data.files.schema.table import TableSchema
from fedul.data.files.site_adjustment_file import read_adjustments, write_adjustments
from fedul.errors import InputError
from fedul.models.weights import load_weights, weights_of

SHOWN_CLASSES = 12
"""Number of classes that the short representation names."""


@dataclass(frozen=True, eq=False, repr=False)
class Classifier:
    """Maps rows to class probabilities under `prior`.

    Parameters
    ----------
    module : nn.Module
        The network.
    model : str
        Name of the network (`fedul.models.MODELS`), or "custom".
    classes : sequence of str
        Names of the K classes.
    input_shape : tuple of int
        Shape of one encoded row.
    trained_prior : ndarray of shape (K,)
        The test prior of the federation.
    scaling : Scaling
        Map from stored inputs to network inputs.
    temperature : float, default=1.0
        Logits are divided by it.
    prior : ndarray of shape (K,), optional
        Class mix of the rows to classify; by default the trained prior.
    schema : Schema or None
        How tables or image files become inputs; None where training rows were arrays.
    site_adjustments : SiteAdjustments or None
        How rows of each site are adjusted; None where they are not.
    set_levels : sequence of float
        Levels of prediction sets (`core.prediction_sets`); may be empty.

    Examples
    --------
    >>> import fedul
    >>> run = fedul.train(fedul.load("digits", clients=2, sets=10, rows=400), rounds=1)
    >>> run.classifier.predict_proba(np.zeros((3, 64))).shape
    (3, 10)
    """

    module: nn.Module
    model: str
    classes: Sequence[str]
    input_shape: tuple[int, ...]
    trained_prior: Matrix
    scaling: Scaling = field(default_factory=Scaling)
    temperature: float = 1.0
    prior: Matrix = None  # type: ignore[assignment]  # None means the trained one
    schema: Schema | None = None
    site_adjustments: SiteAdjustments | None = None
    set_levels: Sequence[float] = ()

    def __post_init__(self) -> None:
        if self.prior is None:
            object.__setattr__(self, "prior", self.trained_prior)

    def __repr__(self) -> str:
        shares = [f"{name} {share:.3g}" for name, share in zip(self.classes, self.prior, strict=True)]
        more = f" and {len(shares) - SHOWN_CLASSES} more" if len(shares) > SHOWN_CLASSES else ""
        return f"<Classifier ({self.model}) of {', '.join(shares[:SHOWN_CLASSES])}{more}>"

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><td>{escape(name)}</td><td>{share:.3g}</td></tr>"
            for name, share in zip(self.classes, self.prior, strict=True)
        )
        caption = f"<caption>Classifier ({escape(self.model)})</caption>"
        return f"<table>{caption}<tr><th>class</th><th>prior</th></tr>{rows}</table>"

    def predict_proba(
        self, rows: Any, batch_size: int = PREDICT_BATCH, *, client: str | None = None
    ) -> NDArray[np.float64]:
        """Return the class probabilities of rows.

        Parameters
        ----------
        rows : DataFrame, str, Path, array-like or Tensor
            What to classify. A classifier that was trained on a table takes a DataFrame (pandas, polars, pyarrow) with
            the training columns in any order, further ones being ignored, or the path of a table. One that was trained
            on image files takes an image or a folder. Every classifier takes an array or tensor of encoded rows
            (n, *input_shape), or the path of a .npy or .npz file of such rows.
        batch_size : int, optional
            Rows that the network predicts at a time.
        client : str, optional
            Site that all rows are from, for a classifier that adjusts rows by site. Without it, the client column of a
            table decides, and rows of an unknown site get the mean adjustment, with a warning.

        Returns
        -------
        ndarray of shape (n, K)
            Probabilities, columns in the order of `classes`.

        Raises
        ------
        InputError
            If a column is missing, or a value cannot be used; the message names it.
        """
        if not isinstance(rows, str | os.PathLike) and not (
            isinstance(self.schema, TableSchema) and is_dataframe(rows)
        ):
            return self._predict_encoded(self._adjusted(rows, client), batch_size)
        if client is not None:
            self._adjustment_of(client)
        reader = RowReader(rows, self.schema, self.site_adjustments, client)
        probabilities = np.concatenate([self._predict_encoded(block, batch_size) for block in reader])
        if reader.unknown_sites:
            warnings.warn(unknown_sites_message(reader.unknown_sites), stacklevel=2)
        return probabilities

    def _adjustment_of(self, client: str | None) -> SiteAdjustment:
        if self.site_adjustments is None:
            raise InputError(f"client '{client}': the classifier does not adjust rows by site; leave it out.")
        return self.site_adjustments.of(client)

    def _adjusted(self, rows: Any, client: str | None) -> Any:
        """Return an array of encoded rows in units of a site."""
        if self.site_adjustments is None and client is None:
            return rows
        adjustment, inputs = self._adjustment_of(client), _as_tensor(rows)
        assert self.site_adjustments is not None
        if client is None and len(self.site_adjustments.sites) > 1:
            warnings.warn(unknown_sites_message(len(inputs)), stacklevel=3)
        if inputs.ndim != 2 or inputs.shape[1:] != self.input_shape:
            return rows  # refused, with its shape
        return adjustment.apply(inputs.to(compute_dtype(inputs)), self.site_adjustments.columns)

    def _predict_encoded(self, inputs: ArrayLike | Tensor, batch_size: int) -> NDArray[np.float64]:
        rows = _as_tensor(inputs)
        if rows.ndim == 0 or tuple(rows.shape[1:]) != self.input_shape:
            if math.prod(rows.shape[1:]) != math.prod(self.input_shape) or rows.ndim < 2:
                raise InputError(
                    f"rows of shape {tuple(rows.shape[1:])}, but this classifier takes {self.input_shape}; "
                    "give an array (rows, ...) of that shape."
                )
            rows = rows.reshape(-1, *self.input_shape)  # e.g. flat pixels for an image model
        with np.errstate(divide="ignore"):
            shift = torch.from_numpy(np.log(self.prior) - np.log(self.trained_prior))
        self.module.eval()
        parts = [torch.empty(0, len(self.classes), dtype=torch.float64)]
        first = next(self.module.parameters(), torch.empty(0))
        with torch.inference_mode():
            for part in torch.split(rows, batch_size):
                logits = self.module(self.scaling(part.to(first.device)).to(first.dtype)).double().cpu()
                parts.append(torch.softmax(logits / self.temperature + shift, dim=1))
        probabilities = torch.cat(parts).numpy()
        if not np.isfinite(probabilities).all():
            row = int(np.flatnonzero(~np.isfinite(probabilities).all(axis=1))[0])
            raise InputError(f"row {row + 1} gives no finite prediction; it holds missing, infinite or huge values.")
        return probabilities

    def predict(self, rows: Any, batch_size: int = PREDICT_BATCH, *, client: str | None = None) -> NDArray[Any]:
        """Return the name of the most probable class of each row (n,); arguments as for `predict_proba`."""
        probabilities = self.predict_proba(rows, batch_size, client=client)
        names: NDArray[Any] = np.asarray(self.classes)[probabilities.argmax(axis=1)]
        return names

    def predict_set(
        self, rows: Any, coverage: float = 0.9, batch_size: int = PREDICT_BATCH, *, client: str | None = None
    ) -> list[tuple[str, ...]]:
        """Return the smallest set of classes of each row that has the true one with this probability on average."""
        level = level_for(coverage, self.set_levels)
        return named_sets(self.predict_proba(rows, batch_size, client=client), self.classes, level)

    def for_site(self, client: str | None) -> Classifier:
        """Return the classifier for rows of one client; None stands for an unknown one, with the mean adjustment."""
        adjustment = self._adjustment_of(client)
        assert self.site_adjustments is not None
        if isinstance(self.schema, TableSchema):
            schema = self.schema.adjusted(adjustment.location.tolist(), adjustment.deviation.tolist())
            return replace(self, schema=schema, site_adjustments=None)
        return replace(self, site_adjustments=replace(self.site_adjustments, sites={client or "mean": adjustment}))

    def without_adjustments(self) -> Classifier:
        """Return the classifier for rows that are adjusted already, as those of a federation are."""
        return replace(self, site_adjustments=None)

    def with_prior(self, prior: ArrayLike) -> Classifier:
        """Return the classifier for another class mix: posteriors times new over old prior, in closed form.

        Parameters
        ----------
        prior : array-like of shape (K,)
            Class mix of the rows to classify, in the order of `classes`.
        """
        return replace(self, prior=validate_class_mix(prior, self.classes))

    def save(self, folder: str | Path) -> None:
        """Write the classifier into a folder.

        Parameters
        ----------
        folder : str or Path
            The folder, which is created if needed; files of another classifier in it are replaced.
        """
        folder = as_path(folder, "folder")
        description = {
            "model": self.model,
            "classes": list(self.classes),
            "input_shape": list(self.input_shape),
            "scaling": {"scale": self.scaling.scale, "shift": self.scaling.shift},
            "trained_prior": self.trained_prior.tolist(),
            "temperature": self.temperature,
            "prior": self.prior.tolist(),
            "set_levels": list(self.set_levels),
            "schema": None if self.schema is None else self.schema.to_dict(),
        }
        if self.site_adjustments is not None:
            description["site_adjustments"] = write_adjustments(folder, self.site_adjustments)
        write_classifier(folder, description, weights_of(self.module))

    @classmethod
    def load(cls, folder: str | Path, *, model: models.Model | None = None) -> Classifier:
        """Read a classifier from a folder.

        Parameters
        ----------
        folder : str or Path
            A folder that `save` wrote.
        model : nn.Module, factory or str, optional
            The network, for a classifier with a custom model: no code is stored.
        """
        folder = as_path(folder, "folder")
        description, tensors = read_classifier(folder)
        shape, classes = tuple(description["input_shape"]), tuple(description["classes"])
        if model is None and description["model"] not in models.MODELS:
            raise InputError(f"{folder}: made with a custom model; name it with --model (model=...).")
        module = models.build(description["model"] if model is None else model, shape, len(classes), seed=0)
        wanted = {name: tensor.shape for name, tensor in weights_of(module).items()}
        if wanted != {name: tensor.shape for name, tensor in tensors.items()}:
            raise InputError(f"{folder}: the weights do not fit the model '{description['model']}'.")
        load_weights(module, tensors)
        adjusted = description.get("site_adjustments")
        return cls(
            module,
            description["model"],
            classes,
            shape,
            np.array(description["trained_prior"]),
            Scaling(**description["scaling"]),
            float(description["temperature"]),
            np.array(description["prior"]),
            schema=schema_from_dict(description.get("schema")),
            site_adjustments=None if adjusted is None else read_adjustments(folder, adjusted),
            set_levels=tuple(description.get("set_levels", ())),
        )


def _as_tensor(rows: Any) -> Tensor:
    try:
        return tensor_view(rows)
    except (TypeError, ValueError):
        raise InputError("rows are not a table of numbers; give an array (rows, ...).") from None
