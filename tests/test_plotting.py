"""Plots of the project: their style, and images with alternative text."""

from __future__ import annotations

import base64
import io

import matplotlib.pyplot as plt
import pytest
from matplotlib.figure import Figure
from PIL import Image

from fedul import plotting


def brightness(colour: str) -> float:
    """Return the relative luminance of a colour, as WCAG defines it."""
    channels = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_every_colour_can_be_seen_on_white() -> None:
    assert all(1.05 / (brightness(colour) + 0.05) > 2 for colour in plotting.COLOURS)
    assert all(1.05 / (brightness(colour) + 0.05) > 3 for colour in plotting.COLOURS[:3])


def test_settings_hold_within_the_context_only() -> None:
    before = plt.rcParams["axes.spines.top"]
    with plotting.styled():
        assert plt.rcParams["axes.spines.top"] is False
        assert plt.rcParams["axes.prop_cycle"].by_key()["color"] == list(plotting.COLOURS)
    assert plt.rcParams["axes.spines.top"] is before


def test_a_described_figure_is_an_image_with_its_text() -> None:
    data, metadata = plotting.describe(Figure(figsize=(2, 1)), "Nothing.")._repr_mimebundle_()
    image = Image.open(io.BytesIO(base64.b64decode(data["image/png"])))
    assert image.size == (2 * plotting.DPI, plotting.DPI)
    assert metadata["image/png"] == {"alt": "Nothing.", "width": 144}
    assert "Nothing." in data["text/plain"]


def test_a_figure_of_pyplot_is_not_shown_a_second_time() -> None:
    figure, _ = plt.subplots()
    plotting.describe(figure, "Empty axes.")
    assert not plt.fignum_exists(figure.number)


def test_a_figure_without_a_description_is_refused() -> None:
    with pytest.raises(ValueError, match="describe what the plot shows"):
        plotting.describe(Figure(), "  ")
