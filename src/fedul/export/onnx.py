"""A classifier as one ONNX file: from rows as users have them to class names and probabilities, all inside the graph.

Standardising, one-hot words, missing values, the network, its temperature and the correction to the class mix are in
it. It is compared with the classifier on made-up rows before it is written.
"""

from __future__ import annotations

import copy
import io
import json
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from fedul import __version__
from fedul.classifier import Classifier
from fedul.errors import InputError
from fedul.export.comparison import LARGEST_DIFFERENCE, largest_difference
from fedul.export.graph import IR_VERSION, ML, ML_OPSET, OPSET, Graph
from fedul.export.inputs import NETWORK, Input, add_encoding, inputs_of
from fedul.files import write_bytes

ROWS, LOGITS = "rows", "logits"
TRACED = "keep Python conditions on values, and numbers of rows, out of its forward function"


def export_onnx(classifier: Classifier, path: str | Path) -> float | None:
    """Writes the file; how far its probabilities are at most from the classifier's, None without onnxruntime."""
    content = to_onnx(classifier)
    try:
        difference = largest_difference(content, in_float32(classifier))
    except ImportError:
        difference = None
    except InputError:
        raise
    except Exception as problem:
        raise InputError(f"onnxruntime cannot run the exported network ({_reason(problem)}); {TRACED}.") from None
    if difference is not None and not difference <= LARGEST_DIFFERENCE:  # a NaN is no agreement either
        raise InputError(
            f"the exported network is not the trained one (probabilities differ by {difference:.1e}); {TRACED}."
        )
    write_bytes(Path(path), content)
    return difference


def to_onnx(classifier: Classifier) -> bytes:
    """The content of the file. The same classifier gives the same bytes."""
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
    _add_answers(graph, classifier)
    outputs = [
        helper.make_tensor_value_info("class", onnx.TensorProto.STRING, ["n"]),
        helper.make_tensor_value_info("probabilities", onnx.TensorProto.FLOAT, ["n", len(classifier.classes)]),
    ]
    declared = [_declared(given) for given in inputs]
    whole = helper.make_graph(graph.nodes, "fedul", declared, outputs, graph.constants)
    opsets = [*network.opset_import, helper.make_opsetid(ML, ML_OPSET)]
    model = helper.make_model(whole, opset_imports=opsets, producer_name="fedul", producer_version=__version__)
    model.ir_version = IR_VERSION
    helper.set_model_props(model, _notes(classifier, inputs))
    onnx.checker.check_model(model)
    content: bytes = model.SerializeToString(deterministic=True)
    return content


def in_float32(classifier: Classifier) -> Classifier:
    """The classifier on a CPU and in the precision that every runtime has."""
    return replace(classifier, module=copy.deepcopy(classifier.module).cpu().float().eval())


def _network(module: nn.Module, shape: tuple[int, ...]) -> Any:
    """The network alone, from `rows` to `logits`.

    By torch's older exporter: it is quick, needs no further package, and writes no source paths into the file.
    """
    import onnx

    memory: Any = io.BytesIO()  # not in the exporter's types, but taken by it
    try:
        with warnings.catch_warnings():
            # That it is the older one, and doubts about the tracing, which the comparison settles.
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
            f"torch cannot export this network to ONNX ({_reason(problem)}); use operations that its exporter knows."
        ) from None
    return onnx.load_from_string(memory.getvalue())


def _reason(problem: Exception) -> str:
    return next(iter(str(problem).strip().splitlines()), type(problem).__name__)[:200].rstrip(". ")


def _add_answers(graph: Graph, classifier: Classifier) -> None:
    """Nodes from logits to the class and the probabilities; a row that cannot be used gets '' and NaN."""
    with np.errstate(divide="ignore"):
        shift = np.log(classifier.prior) - np.log(classifier.trained_prior)  # -inf where the class mix has none
    axes = np.arange(1, 1 + len(classifier.input_shape))
    sharpened = graph.add("Div", NETWORK + LOGITS, np.float32(classifier.temperature))
    shifted = graph.add("Add", sharpened, shift.astype(np.float32)[None])
    softmax = graph.add("Softmax", shifted, axis=1)
    # Networks may lose a NaN on the way (ReLU is a maximum), so it is taken past them: 0 for rows that are finite.
    nothing = graph.add("Mul", NETWORK + ROWS, np.float32(0))
    fault = graph.add("ReduceSum", nothing, axes, keepdims=0)  # (n,)
    column = graph.add("Unsqueeze", fault, np.array([1]))
    found = graph.add("Add", softmax, column, into="probabilities")  # (n, K)
    total = graph.add("ReduceSum", found, np.array([1]), keepdims=0)
    none = graph.add("IsNaN", total)
    best = graph.add("ArgMax", found, axis=1, keepdims=0)
    place = graph.add("Where", none, np.int64(len(classifier.classes)), best)
    graph.add("Gather", np.array([*classifier.classes, ""], dtype=object), place, into="class")


def _declared(given: Input) -> Any:
    from onnx import TensorProto, helper

    types = {np.float64: TensorProto.DOUBLE, np.float32: TensorProto.FLOAT, np.uint8: TensorProto.UINT8}
    return helper.make_tensor_value_info(given.name, types.get(given.type, TensorProto.STRING), ["n", *given.shape])


def _notes(classifier: Classifier, inputs: list[Input]) -> dict[str, str]:
    classes = list(classifier.classes)
    columns = [{"name": given.name, "kind": given.kind, "column": given.column} for given in inputs]
    return {
        "fedul": __version__,
        "model": classifier.model,
        "classes": json.dumps(classes, ensure_ascii=False),
        "prior": json.dumps(dict(zip(classes, classifier.prior.tolist(), strict=True)), ensure_ascii=False),
        "inputs": json.dumps(columns, ensure_ascii=False),
    }
