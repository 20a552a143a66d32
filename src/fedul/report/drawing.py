"""One way to make a picture: the same data give the same file, and it is whole or not there."""

from __future__ import annotations

import io
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fedul.files import write_bytes


@contextmanager
def drawing(path: Path, size: tuple[float, float]) -> Iterator[Any]:
    """Axes to draw on; afterwards the picture is written, as SVG or PNG by the ending of its name."""
    logging.getLogger("matplotlib").setLevel(logging.ERROR)  # it tells of a home without a cache, which is no matter

    import matplotlib
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    with matplotlib.rc_context({"svg.hashsalt": "fedul", "svg.fonttype": "none"}):  # equal runs, equal files
        figure = Figure(figsize=size, layout="constrained")
        FigureCanvasAgg(figure)
        axes = figure.subplots()
        yield axes
        if axes.get_legend_handles_labels()[0]:  # nothing was measured with --evaluate-every 0
            axes.legend(frameon=False, fontsize="small")
        content = io.BytesIO()
        kind = path.suffix.lstrip(".")
        figure.savefig(content, format=kind, dpi=150, metadata={"Date": None} if kind == "svg" else None)
    write_bytes(path, content.getvalue())
