"""Matplotlib style of the project: colours, lines and text of every plot, and plots with alternative text.

The colours are those of Okabe and Ito (Color Universal Design, 2008), without yellow, which is too light on paper. They
can be told apart with every common form of colour blindness, and in grey their brightness differs.
"""

from __future__ import annotations

import base64
import io
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000")
"""Blue, vermilion, green, purple, light blue, orange, black: the order in which lines get them."""
INK, MUTED, LINE = "#1a232c", "#4d5b69", "#d3dae1"
HEAT = "Blues"
"""Colour map of shares, from white to dark blue."""
DPI, PALETTE = 120, 256
"""Dots per inch and number of colours of the images in notebooks."""


def style() -> dict[Any, Any]:
    """Return Matplotlib settings: ``matplotlib.rcParams.update(style())``.

    Examples
    --------
    >>> style()["axes.spines.top"]
    False
    """
    from cycler import cycler

    return {
        "axes.axisbelow": True,
        "axes.edgecolor": MUTED,
        "axes.grid": True,
        "axes.labelcolor": INK,
        "axes.prop_cycle": cycler(color=COLOURS),
        "axes.spines.right": False,
        "axes.spines.top": False,
        "axes.titlelocation": "left",
        "axes.titlesize": "medium",
        "axes.titleweight": "bold",
        "figure.constrained_layout.use": True,
        "figure.figsize": (6.4, 3.6),
        "figure.facecolor": "white",
        "font.size": 10,
        "grid.color": LINE,
        "grid.linewidth": 0.8,
        "image.cmap": HEAT,
        "legend.fontsize": "small",
        "legend.frameon": False,
        "lines.linewidth": 1.8,
        "lines.markersize": 5,
        "svg.fonttype": "none",
        "svg.hashsalt": "fedul",
        "text.color": INK,
        "xtick.color": MUTED,
        "xtick.labelcolor": INK,
        "ytick.color": MUTED,
        "ytick.labelcolor": INK,
    }


@contextmanager
def styled() -> Iterator[None]:
    """Context in which plots have the style of the project."""
    import matplotlib

    with matplotlib.rc_context(style()):
        yield


@dataclass(frozen=True, eq=False)
class DescribedFigure:
    """A plot with alternative text, which a notebook shows as a PNG image.

    Parameters
    ----------
    figure : matplotlib.figure.Figure
        The plot.
    alt : str
        What it shows, for readers who do not see it.

    Raises
    ------
    ValueError
        If the text is empty.

    Examples
    --------
    >>> from matplotlib.figure import Figure
    >>> plot = DescribedFigure(Figure(figsize=(1, 1)), alt="An empty plot.")
    >>> data, metadata = plot._repr_mimebundle_()
    >>> metadata["image/png"]["alt"]
    'An empty plot.'
    """

    figure: Figure
    alt: str

    def __post_init__(self) -> None:
        if not self.alt.strip():
            raise ValueError("alt: describe what the plot shows, for readers who do not see it")

    def __repr__(self) -> str:
        return f"<Plot: {self.alt}>"

    def _repr_mimebundle_(self, **_: Any) -> tuple[dict[str, str], dict[str, Any]]:
        from PIL import Image

        drawn, content = io.BytesIO(), io.BytesIO()
        self.figure.savefig(drawn, format="png", dpi=DPI)
        full = Image.open(drawn).convert("RGB")
        image = full.quantize(PALETTE, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE)  # a third of the bytes
        image.save(content, format="png", optimize=True)
        width = round(72 * float(self.figure.get_figwidth()))  # fewer pixels than the image has, for sharp text
        data = {"image/png": base64.b64encode(content.getvalue()).decode(), "text/plain": repr(self)}
        return data, {"image/png": {"alt": self.alt, "width": width}}


def describe(figure: Figure, alt: str) -> DescribedFigure:
    """Return a plot with alternative text; as the last line of a notebook cell it is shown.

    Parameters
    ----------
    figure : matplotlib.figure.Figure
        The plot. A figure of pyplot is closed, so that the notebook does not show it twice.
    alt : str
        What the plot shows, in one to three sentences.

    Examples
    --------
    >>> from matplotlib.figure import Figure
    >>> describe(Figure(), "Errors of three methods; fedul has the lowest one.")
    <Plot: Errors of three methods; fedul has the lowest one.>
    """
    import matplotlib.pyplot as plt

    plt.close(figure)
    return DescribedFigure(figure, alt)
