"""Files of a finished run for a tracker: the classifier, the report, and the model card."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from fedul._utils.documents import read_document_file
from fedul._utils.files import write_bytes
from fedul.errors import InputError
from fedul.evaluation.document import Evaluation
from fedul.exporting.card import model_card
from fedul.reporting.page import render_page
from fedul.reporting.report_data import collect_folder
from fedul.training import RunFolder
from fedul.training.run_files import (
    CONFIG,
    EVALUATION,
    METRICS,
    MODEL,
    MODEL_CARD,
    REPORT,
    RESULT,
)

COPIED = (CONFIG, METRICS, RESULT, EVALUATION)
"""Documents of the run that are recorded as they are."""


@contextmanager
def result_files(folder: RunFolder) -> Iterator[list[Path]]:
    """Context with the files and folders of a finished run.

    The report and the card are made for it, without the data of the run: they show no class priors.
    """
    with TemporaryDirectory(prefix="fedul-") as scratch:
        found = [folder.path / name for name in (*COPIED, MODEL)]
        report, card = Path(scratch) / REPORT, (Path(scratch) / MODEL_CARD).with_suffix(".md")
        write_bytes(report, render_page(replace(collect_folder(folder), check=None)).encode())
        if text := card_text(folder):
            write_bytes(card, text.encode())
        yield [each for each in (*found, report, card) if each.exists()]


def card_text(folder: RunFolder) -> str:
    """Return the model card of a finished run as Markdown; empty for a network that was passed as an object."""
    try:
        return model_card(folder, folder.load_classifier()).to_markdown()
    except InputError:
        return ""


def stored_evaluation(folder: RunFolder) -> Evaluation | None:
    """Return the evaluation of a run; None if there is none."""
    return read_document_file(Evaluation, folder.path / EVALUATION, "'fedul evaluate'")
