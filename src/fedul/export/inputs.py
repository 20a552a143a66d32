"""How rows enter an ONNX graph: one input a column for tables, one array otherwise; the rest as `TableSchema.encode`.

Words are given as fedul spells them: without blanks around them, whole numbers as '3'. What is missing is NaN, or ''
(unless '' was a word of the column). A value that `encode` refuses becomes NaN: an infinite number, or a word that is
neither yes nor no.
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
from fedul.export.graph import OWN, Graph
from fedul.schema.images import ImageSchema
from fedul.schema.table import NO, YES, Boolean, Category, Column, Number, TableSchema

ARRAY = "X"
NETWORK = "network/"
"""How the names of the network's own values begin."""
OUTPUTS = ("class", "probabilities")


@dataclass(frozen=True)
class Input:
    """One input of the graph, for a block of n rows."""

    name: str
    kind: str  # number, category, boolean, image, array
    type: type[np.generic]
    shape: tuple[int, ...]  # of one row
    column: str | None = None  # of the table


def inputs_of(classifier: Classifier) -> list[Input]:
    """The inputs that a classifier's graph has, in the order of its schema."""
    schema, shape = classifier.schema, classifier.input_shape
    if isinstance(schema, ImageSchema):
        return [Input(ARRAY, "image", np.uint8, shape)]
    if not isinstance(schema, TableSchema):  # bytes were scaled by the same factors, so floats can hold them too
        return [Input(ARRAY, "array", np.float32, shape)]
    found: list[Input] = []
    taken = {"", *OUTPUTS, *schema.names}
    for column in schema.columns:
        name = column.name
        if name in ("", *OUTPUTS) or name.startswith((OWN, NETWORK)):
            while name in taken:
                name = f"column:{name}"
            taken.add(name)
        kind = type(column).__name__.lower()
        # Doubles: a float of 32 bits cannot hold a time stamp to the second.
        found.append(Input(name, kind, np.float64 if kind == "number" else np.str_, (1,), column.name))
    return found


def add_encoding(graph: Graph, classifier: Classifier, inputs: list[Input], into: str) -> None:
    """Nodes from the inputs to what the network sees (n, ...)."""
    if isinstance(classifier.schema, TableSchema):
        columns = zip(classifier.schema.columns, inputs, strict=True)
        parts = [part for column, given in columns for part in _column(graph, column, given.name)]
        rows = graph.add("Concat", *parts, axis=1)  # (n, width)
    else:
        rows = graph.add("Cast", inputs[0].name, to=_float32())
    scaled = graph.add("Mul", rows, np.float32(classifier.scaling.scale))
    graph.add("Add", scaled, np.float32(classifier.scaling.shift), into=into)


def _column(graph: Graph, column: Column, given: str) -> Iterator[str]:
    if isinstance(column, Number):
        missing = graph.add("IsNaN", given)
        apart = graph.add("Sub", given, np.float64(column.mean))
        standard = graph.add("Div", apart, np.float64(column.deviation))
        filled = graph.add("Where", missing, np.float64(0), standard)
        yield graph.add("Cast", filled, to=_float32())
        if column.missing:
            yield graph.add("Cast", missing, to=_float32())
        return
    numbers, others, table = _answers(column)
    codes = graph.add(
        "LabelEncoder",
        given,
        keys_strings=list(numbers),
        values_int64s=list(numbers.values()),
        default_int64=others,
    )
    yield graph.add("Flatten", graph.add("Gather", table, codes, axis=0), axis=1)


def _answers(column: Category | Boolean) -> tuple[Mapping[str, int], int, NDArray[np.float32]]:
    """The number of each word, that of all other words, and the network's inputs (numbers, width) for each number."""
    if isinstance(column, Boolean):
        numbers = {"": 2} | {spelt: k for k, words in enumerate((YES, NO)) for word in words for spelt in _cases(word)}
        table = _encoded(column, [YES[0], NO[0], None])
        return numbers, 3, np.vstack([table, np.full((1, column.width), np.nan, np.float32)])
    words = list(column.words)
    numbers = {"": len(words)} | {word: k for k, word in enumerate(words)}
    return numbers, len(words) + 1, _encoded(column, [*words, None, unseen(column)])


def unseen(column: Category) -> str:
    """A word that the column did not have in training."""
    return max(column.words, key=len, default="") + "?"


def _encoded(column: Category | Boolean, words: list[str | None]) -> NDArray[np.float32]:
    into = np.empty((len(words), column.width), np.float32)
    column.encode(pa.array(words, pa.string()), into, "")
    return into


def _cases(word: str) -> Iterator[str]:
    """All ways to write a word in small and capital letters.

    The operator of ONNX that lowers letters needs a locale, which containers often lack.
    """
    return map("".join, product(*((letter, letter.upper()) for letter in word)))


def _float32() -> Any:
    from onnx import TensorProto

    return TensorProto.FLOAT
