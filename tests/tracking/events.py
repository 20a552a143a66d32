"""TensorBoard's reader of event files."""

from __future__ import annotations

from pathlib import Path
from typing import Any


def read_events(folder: Path) -> Any:
    """Return an accumulator that has read all events below a folder as TensorBoard shows them."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    accumulator = EventAccumulator(str(folder))
    accumulator.Reload()
    return accumulator


def scalars(events: Any, tag: str) -> list[tuple[int, float]]:
    """Return the steps and values of a series."""
    return [(event.step, event.value) for event in events.Scalars(tag)]


def texts(events: Any, tag: str) -> str:
    """Return the last text with this tag."""
    value: bytes = events.Tensors(f"{tag}/text_summary")[-1].tensor_proto.string_val[0]
    return value.decode()
