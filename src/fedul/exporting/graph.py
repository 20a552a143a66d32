"""Graphs of ONNX: their builder, and their inputs, one per column for tables and one array otherwise.

The package onnx is an optional extra and is imported on first use. Inputs are encoded as by `TableSchema.encode`: words
have no blanks around them, and whole numbers are written as '3'. Missing values are NaN, or '' (unless '' was a value
of the column). A value that `encode` refuses becomes NaN: an infinite number, or a word other than yes and no.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from fedul.classifier import Classifier
from fedul.data.files.schema import ImageSchema
from fedul.data.files.schema.table import NO, YES, Boolean, Category, Column, Number, TableSchema

OPSET, ML_OPSET, IR_VERSION = 18, 3, 8
"""Versions of 2022, so that older runtimes can read the file; no newer operator is needed."""
ML = "ai.onnx.ml"
PREFIX = "fedul/"
"""Prefix of the names of inner values."""
ARRAY = "X"
NETWORK = "network/"
"""Prefix of the names of values inside the network."""
OUTPUTS = ("class", "probabilities")


class Graph:
    """Nodes and constants of a graph; each node has one output, whose name `add` returns."""

    def __init__(self) -> None:
        self.nodes: list[Any] = []
        self.constants: list[Any] = []

    def add(self, operator: str, *inputs: str | NDArray[Any] | np.generic, into: str = "", **attributes: Any) -> str:
        """Add a node and return the name of its output; arrays among its inputs become constants."""
        from onnx import helper

        names = [given if isinstance(given, str) else self._constant(given) for given in inputs]
        output = into or f"{PREFIX}{len(self.nodes)}"
        domain = ML if operator == "LabelEncoder" else None
        self.nodes.append(helper.make_node(operator, names, [output], domain=domain, **attributes))
        return output

    def _constant(self, values: NDArray[Any] | np.generic) -> str:
        from onnx import numpy_helper

        name = f"{PREFIX}constant{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.asarray(values), name))
        return name


@dataclass(frozen=True)
class Input:
    """One input of the graph, for a block of n rows."""

    name: str
    kind: str  # number, category, boolean, image, array
    type: type[np.generic]
    shape: tuple[int, ...]  # of one row
    column: str | None = None  # of the table


def inputs_of(classifier: Classifier) -> list[Input]:
    """Return the inputs of the graph of a classifier, in the order of its schema."""
    schema, shape = classifier.schema, classifier.input_shape
    if isinstance(schema, ImageSchema):
        return [Input(ARRAY, "image", np.uint8, shape)]
    if not isinstance(schema, TableSchema):  # floats hold bytes too, with the same scaling
        return [Input(ARRAY, "array", np.float32, shape)]
    inputs: list[Input] = []
    taken = {"", *OUTPUTS, *schema.names}
    for column in schema.columns:
        name = column.name
        if name in ("", *OUTPUTS) or name.startswith((PREFIX, NETWORK)):
            while name in taken:
                name = f"column:{name}"
            taken.add(name)
        kind = type(column).__name__.lower()
        # Doubles: a float of 32 bits cannot hold a time stamp to the second.
        inputs.append(Input(name, kind, np.float64 if kind == "number" else np.str_, (1,), column.name))
    return inputs


def add_encoding(graph: Graph, classifier: Classifier, inputs: list[Input], into: str) -> None:
    """Add the nodes that encode the inputs for the network (n, ...)."""
    if isinstance(classifier.schema, TableSchema):
        columns = zip(classifier.schema.columns, inputs, strict=True)
        parts = [part for column, given in columns for part in _add_column(graph, column, given.name)]
        rows = graph.add("Concat", *parts, axis=1)  # (n, width)
    else:
        rows = graph.add("Cast", inputs[0].name, to=_float32())
    if classifier.site_adjustments is not None:  # of one site, or the mean
        adjustment = classifier.site_adjustments.mean
        rows = graph.add("Sub", rows, adjustment.location.astype(np.float32)[None])
        rows = graph.add("Div", rows, adjustment.deviation.astype(np.float32)[None])
    scaled = graph.add("Mul", rows, np.float32(classifier.scaling.scale))
    graph.add("Add", scaled, np.float32(classifier.scaling.shift), into=into)


def _add_column(graph: Graph, column: Column, given: str) -> Iterator[str]:
    if isinstance(column, Number):
        missing = graph.add("IsNaN", given)
        apart = graph.add("Sub", given, np.float64(column.mean))
        standard = graph.add("Div", apart, np.float64(column.deviation))
        filled = graph.add("Where", missing, np.float64(0), standard)
        yield graph.add("Cast", filled, to=_float32())
        if column.missing:
            yield graph.add("Cast", missing, to=_float32())
        return
    numbers, others, table = _encoding_table(column)
    codes = graph.add(
        "LabelEncoder",
        given,
        keys_strings=list(numbers),
        values_int64s=list(numbers.values()),
        default_int64=others,
    )
    yield graph.add("Flatten", graph.add("Gather", table, codes, axis=0), axis=1)


def _encoding_table(column: Category | Boolean) -> tuple[Mapping[str, int], int, NDArray[np.float32]]:
    """Return the number of each word, that of all other words, and the encoding (numbers, width) of each number."""
    if isinstance(column, Boolean):
        numbers = {"": 2} | {spelt: k for k, words in enumerate((YES, NO)) for word in words for spelt in _cases(word)}
        table = _encoded(column, [YES[0], NO[0], None])
        return numbers, 3, np.vstack([table, np.full((1, column.width), np.nan, np.float32)])
    words = list(column.words)
    numbers = {"": len(words)} | {word: k for k, word in enumerate(words)}
    return numbers, len(words) + 1, _encoded(column, [*words, None, unseen(column)])


def unseen(column: Category) -> str:
    """Return a word that the column did not have in training."""
    return max(column.words, key=len, default="") + "?"


def _encoded(column: Category | Boolean, words: list[str | None]) -> NDArray[np.float32]:
    into = np.empty((len(words), column.width), np.float32)
    column.encode(pa.array(words, pa.string()), into, "")
    return into


def _cases(word: str) -> Iterator[str]:
    """Return all ways to write a word in small and capital letters.

    The ONNX operator for lower case needs a locale, which containers often lack.
    """
    return map("".join, product(*((character, character.upper()) for character in word)))


def _float32() -> Any:
    from onnx import TensorProto

    return TensorProto.FLOAT
