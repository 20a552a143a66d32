"""Export of a classifier as one ONNX file, from raw rows to class names and probabilities.

The graph contains standardisation, one-hot encoding, missing values, the network, its temperature and the correction to
the class mix. It is compared with the classifier on random rows before it is written.
"""

from __future__ import annotations

import copy
import io
import json
import math
import os
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray
from torch import nn

from fedul import __version__
from fedul._utils.files import write_bytes
from fedul.classifier import Classifier
from fedul.data.files.schema.table import NO, YES, Boolean, Column, Number, TableSchema
from fedul.errors import InputError, first_line
from fedul.exporting.graph import (
    IR_VERSION,
    ML,
    ML_OPSET,
    NETWORK,
    OPSET,
    Graph,
    Input,
    add_encoding,
    inputs_of,
    unseen,
)

ROWS, LOGITS = "rows", "logits"
HINT = "keep Python conditions on values, and numbers of rows, out of its forward function"
LARGEST_DIFFERENCE = 1e-5
MAX_ROWS, MAX_VALUES = 300, 2**19


def export_onnx(classifier: Classifier, path: str | Path) -> float | None:
    """Write the file; return the largest difference of probabilities, None without onnxruntime."""
    content = to_onnx(classifier)
    try:
        difference = largest_difference(content, in_float32(classifier))
    except ImportError:
        difference = None
    except InputError:
        raise
    except Exception as problem:
        raise InputError(f"onnxruntime cannot run the exported network ({first_line(problem)}); {HINT}.") from None
    if difference is not None and not difference <= LARGEST_DIFFERENCE:  # also for NaN
        raise InputError(
            f"the exported network is not the trained one (probabilities differ by {difference:.1e}); {HINT}."
        )
    write_bytes(Path(path), content)
    return difference


def to_onnx(classifier: Classifier) -> bytes:
    """Return the content of the file. The same classifier gives the same bytes."""
    try:
        import onnx
        from onnx import helper
    except ImportError:
        raise InputError(
            "ONNX files are written with the package onnx, which is not installed; install it with: "
            "pip install 'fedul[onnx]'."
        ) from None
    classifier = in_float32(classifier)
    network = onnx.compose.add_prefix(_network(classifier.module, classifier.input_shape), NETWORK)
    inputs, graph = inputs_of(classifier), Graph()
    add_encoding(graph, classifier, inputs, into=NETWORK + ROWS)
    graph.nodes.extend(network.graph.node)
    graph.constants.extend(network.graph.initializer)
    _add_outputs(graph, classifier)
    outputs = [
        helper.make_tensor_value_info("class", onnx.TensorProto.STRING, ["n"]),
        helper.make_tensor_value_info("probabilities", onnx.TensorProto.FLOAT, ["n", len(classifier.classes)]),
    ]
    input_infos = [_value_info(given) for given in inputs]
    whole = helper.make_graph(graph.nodes, "fedul", input_infos, outputs, graph.constants)
    opsets = [*network.opset_import, helper.make_opsetid(ML, ML_OPSET)]
    model = helper.make_model(whole, opset_imports=opsets, producer_name="fedul", producer_version=__version__)
    model.ir_version = IR_VERSION
    helper.set_model_props(model, _metadata(classifier, inputs))
    onnx.checker.check_model(model)
    content: bytes = model.SerializeToString(deterministic=True)
    return content


def in_float32(classifier: Classifier) -> Classifier:
    """Return the classifier on the CPU, in the precision that every runtime has."""
    return replace(classifier, module=copy.deepcopy(classifier.module).cpu().float().eval())


def _network(module: nn.Module, shape: tuple[int, ...]) -> Any:
    """Return the graph of the network, from `rows` to `logits`.

    Made by torch's older exporter: it is fast, needs no other package, and writes no source paths into the file.
    """
    import onnx

    memory: Any = io.BytesIO()  # the exporter accepts it, although its types do not say so
    try:
        with warnings.catch_warnings():
            # They concern the older exporter, and tracing, which the comparison checks.
            warnings.simplefilter("ignore")
            torch.onnx.export(
                module,
                (torch.zeros(2, *shape),),
                memory,
                dynamo=False,
                opset_version=OPSET,
                input_names=[ROWS],
                output_names=[LOGITS],
                dynamic_axes={ROWS: {0: "n"}, LOGITS: {0: "n"}},
            )
    except Exception as problem:
        raise InputError(
            f"torch cannot export this network to ONNX ({first_line(problem)}); use operations that its exporter knows."
        ) from None
    return onnx.load_from_string(memory.getvalue())


def _add_outputs(graph: Graph, classifier: Classifier) -> None:
    """Add the nodes from logits to class and probabilities; a row that cannot be used gets '' and NaN."""
    with np.errstate(divide="ignore"):
        shift = np.log(classifier.prior) - np.log(classifier.trained_prior)  # -inf where the class mix has none
    axes = np.arange(1, 1 + len(classifier.input_shape))
    sharpened = graph.add("Div", NETWORK + LOGITS, np.float32(classifier.temperature))
    shifted = graph.add("Add", sharpened, shift.astype(np.float32)[None])
    softmax = graph.add("Softmax", shifted, axis=1)
    # A network may lose a NaN (ReLU is a maximum), so it bypasses the network: 0 for rows that are finite.
    nothing = graph.add("Mul", NETWORK + ROWS, np.float32(0))
    fault = graph.add("ReduceSum", nothing, axes, keepdims=0)  # (n,)
    column = graph.add("Unsqueeze", fault, np.array([1]))
    found = graph.add("Add", softmax, column, into="probabilities")  # (n, K)
    total = graph.add("ReduceSum", found, np.array([1]), keepdims=0)
    none = graph.add("IsNaN", total)
    best = graph.add("ArgMax", found, axis=1, keepdims=0)
    place = graph.add("Where", none, np.int64(len(classifier.classes)), best)
    graph.add("Gather", np.array([*classifier.classes, ""], dtype=object), place, into="class")


def _value_info(given: Input) -> Any:
    from onnx import TensorProto, helper

    types = {np.float64: TensorProto.DOUBLE, np.float32: TensorProto.FLOAT, np.uint8: TensorProto.UINT8}
    return helper.make_tensor_value_info(given.name, types.get(given.type, TensorProto.STRING), ["n", *given.shape])


def _metadata(classifier: Classifier, inputs: list[Input]) -> dict[str, str]:
    classes = list(classifier.classes)
    columns = [{"name": given.name, "kind": given.kind, "column": given.column} for given in inputs]
    return {
        "fedul": __version__,
        "model": classifier.model,
        "classes": json.dumps(classes, ensure_ascii=False),
        "prior": json.dumps(dict(zip(classes, classifier.prior.tolist(), strict=True)), ensure_ascii=False),
        "inputs": json.dumps(columns, ensure_ascii=False),
    }


def largest_difference(content: bytes, classifier: Classifier) -> float:
    """Return the largest difference of probabilities, for many rows in one batch and for a single row.

    Needs onnxruntime. It is infinite if a predicted class is not the most probable one.
    """
    onnxruntime = silent_runtime()
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    rows = max(2, min(MAX_ROWS, MAX_VALUES // math.prod(classifier.input_shape)))
    feed, inputs = make_rows(classifier, rows, np.random.default_rng(0))
    expected = classifier.predict_proba(inputs)
    largest = 0.0
    for some in (slice(None), slice(0, 1)):
        names, found = session.run(["class", "probabilities"], {name: rows[some] for name, rows in feed.items()})
        largest = max(largest, float(np.abs(found - expected[some]).max()))
        if list(names) != [classifier.classes[k] for k in found.argmax(axis=1)]:
            return math.inf
    return largest


def silent_runtime() -> Any:
    """Return the package onnxruntime with its telemetry switched off.

    The variable must be set before the package is loaded; the function call is for Windows.
    """
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
    import onnxruntime

    onnxruntime.disable_telemetry_events()
    return onnxruntime


def make_rows(classifier: Classifier, rows: int, generator: np.random.Generator) -> tuple[dict[str, Any], NDArray[Any]]:
    """Return random rows as the graph takes them, by input name, and as the classifier does; some values are absent."""
    inputs = inputs_of(classifier)
    if isinstance(classifier.schema, TableSchema):
        columns = {column.name: _values(column, rows, generator) for column in classifier.schema.columns}
        encoded, _ = classifier.schema.encode({name: pa.array(each) for name, each in columns.items()}, "made-up rows")
        return {given.name: _as_input(columns[str(given.column)], given.type) for given in inputs}, encoded
    shape = (rows, *classifier.input_shape)
    if inputs[0].type is np.uint8:
        array: NDArray[Any] = generator.integers(0, 256, shape).astype(np.uint8)
    else:  # of the magnitude that the network was trained on
        scaling = classifier.scaling
        array = ((generator.normal(size=shape) - scaling.shift) / scaling.scale).astype(np.float32)
    return {inputs[0].name: array}, array


def _values(column: Column, rows: int, generator: np.random.Generator) -> list[float | str | None]:
    """Random values of a column; one in ten is missing."""
    if isinstance(column, Number):
        values: list[Any] = generator.normal(column.mean, 2 * column.deviation, rows).tolist()
    else:
        words = [*YES, *NO, "Yes", "NO"] if isinstance(column, Boolean) else [*column.words, unseen(column)]
        values = [words[k] for k in generator.integers(0, len(words), rows)]
        if "" in words:  # it could not be distinguished from a missing value
            return values
    return [None if absent else value for value, absent in zip(values, generator.random(rows) < 0.1, strict=True)]


def _as_input(values: list[float | str | None], kind: type[np.generic]) -> NDArray[Any]:
    """Return a column (n, 1) as the graph takes it."""
    if kind is np.str_:
        return np.array([value or "" for value in values], dtype=object)[:, None]
    return np.array([math.nan if value is None else value for value in values], dtype=np.float64)[:, None]
