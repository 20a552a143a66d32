"""Whether an ONNX file answers as its classifier does, on made-up rows of every kind that its schema allows."""

from __future__ import annotations

import math
import os
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from fedul.classifier import Classifier
from fedul.export.inputs import inputs_of, unseen
from fedul.schema.table import NO, YES, Boolean, Column, Number, TableSchema

LARGEST_DIFFERENCE = 1e-5
MOST_ROWS, MOST_VALUES = 300, 2**19


def largest_difference(content: bytes, classifier: Classifier) -> float:
    """How far the probabilities of the two are apart at most, over many rows at once and one alone.

    Needs onnxruntime. A class that is not the most probable one counts as far apart.
    """
    onnxruntime = silent_runtime()
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    rows = max(2, min(MOST_ROWS, MOST_VALUES // math.prod(classifier.input_shape)))
    feed, inputs = made_up(classifier, rows, np.random.default_rng(0))
    expected = classifier.predict_proba(inputs)
    apart = 0.0
    for some in (slice(None), slice(0, 1)):
        names, found = session.run(["class", "probabilities"], {name: rows[some] for name, rows in feed.items()})
        apart = max(apart, float(np.abs(found - expected[some]).max()))
        if list(names) != [classifier.classes[k] for k in found.argmax(axis=1)]:
            return math.inf
    return apart


def silent_runtime() -> Any:
    """The package onnxruntime, which otherwise sends figures of its use, with an identifier, to its maker.

    To be told before it is loaded; the second is for Windows.
    """
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
    import onnxruntime

    onnxruntime.disable_telemetry_events()
    return onnxruntime


def made_up(classifier: Classifier, rows: int, generator: np.random.Generator) -> tuple[dict[str, Any], NDArray[Any]]:
    """Rows as the graph takes them, by name of the input, and as the classifier does; some values missing or unseen."""
    inputs = inputs_of(classifier)
    if isinstance(classifier.schema, TableSchema):
        columns = {column.name: _values(column, rows, generator) for column in classifier.schema.columns}
        encoded, _ = classifier.schema.encode({name: pa.array(each) for name, each in columns.items()}, "made-up rows")
        return {given.name: _given(columns[str(given.column)], given.type) for given in inputs}, encoded
    shape = (rows, *classifier.input_shape)
    if inputs[0].type is np.uint8:
        array: NDArray[Any] = generator.integers(0, 256, shape).astype(np.uint8)
    else:  # of the size that the network is used to
        scaling = classifier.scaling
        array = ((generator.normal(size=shape) - scaling.shift) / scaling.scale).astype(np.float32)
    return {inputs[0].name: array}, array


def _values(column: Column, rows: int, generator: np.random.Generator) -> list[float | str | None]:
    """Values of a column; one in ten is missing."""
    if isinstance(column, Number):
        values: list[Any] = generator.normal(column.mean, 2 * column.deviation, rows).tolist()
    else:
        words = [*YES, *NO, "Yes", "NO"] if isinstance(column, Boolean) else [*column.words, unseen(column)]
        values = [words[k] for k in generator.integers(0, len(words), rows)]
        if "" in words:  # which could not be told from what is missing
            return values
    return [None if absent else value for value, absent in zip(values, generator.random(rows) < 0.1, strict=True)]


def _given(values: list[float | str | None], kind: type[np.generic]) -> NDArray[Any]:
    """A column (n, 1) as the graph takes it."""
    if kind is np.str_:
        return np.array([value or "" for value in values], dtype=object)[:, None]
    return np.array([math.nan if value is None else value for value in values], dtype=np.float64)[:, None]
