"""Trackers: callbacks that show runs in MLflow, in TensorBoard, or as JSON lines.

A tracker never ends a run that has begun: what could not be written is a warning. It contacts only what the user named.
"""

from __future__ import annotations

from fedul._utils.lazy import lazy_exports

__getattr__, __dir__ = lazy_exports(
    __name__,
    {
        "JsonLinesLogger": "json_lines",
        "MLflowTracker": "mlflow",
        "TensorBoardTracker": "tensorboard",
        "make_trackers": "make",
    },
)
