"""A graph of ONNX, put together node by node. The package onnx is an optional extra, imported when it is used."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

OPSET, ML_OPSET, IR_VERSION = 18, 3, 8
"""Of 2022, so that runtimes which are years old can read the file; no newer operator is needed."""
ML = "ai.onnx.ml"
OWN = "fedul/"
"""How the names of inner values begin."""


class Graph:
    """Nodes and constants; each node has one output, whose name `add` gives back."""

    def __init__(self) -> None:
        self.nodes: list[Any] = []
        self.constants: list[Any] = []

    def add(self, operator: str, *inputs: str | NDArray[Any] | np.generic, into: str = "", **attributes: Any) -> str:
        """One more node; an array among its inputs becomes a constant."""
        from onnx import helper

        names = [given if isinstance(given, str) else self._constant(given) for given in inputs]
        output = into or f"{OWN}{len(self.nodes)}"
        domain = ML if operator == "LabelEncoder" else None
        self.nodes.append(helper.make_node(operator, names, [output], domain=domain, **attributes))
        return output

    def _constant(self, values: NDArray[Any] | np.generic) -> str:
        from onnx import numpy_helper

        name = f"{OWN}constant{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.asarray(values), name))
        return name
