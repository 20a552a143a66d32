"""Report data of a made-up run, and a strict reader of pages."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from html.parser import HTMLParser
from typing import Any

from fedul.config import TrainConfig
from fedul.core import RoundMetrics
from fedul.evaluation.assumption import AssumptionTest, Misfit
from fedul.evaluation.check_result import CheckResult, ClientCheck, FederationTotals, Forecast, PairCheck
from fedul.evaluation.document import (
    MAJORITY,
    SOFT_SETS,
    TOP_CLASS,
    Baseline,
    ClassEstimate,
    Evaluation,
    SetCalibration,
)
from fedul.reporting.report_data import ClientSummary, ReportData
from fedul.training import DataCounts, RunRecord, RunResult

VOID = {"meta", "br", "link"}


def made_up(flu: str = "flu", cold: str = "cold", north: str = "North", january: str = "January") -> ReportData:
    """A finished run of two clients with everything known; the names may be any."""
    classes = (flu, cold)
    priors = [[0.25, 0.75], [0.6, 0.4]]
    clients = [ClientSummary(name, 600, (january, "February"), priors) for name in (north, "South")]
    evaluation = Evaluation(
        estimated_accuracy=0.93,
        interval=(0.90, 0.95),
        rows=1200,
        accuracy=0.92,
        width_with_labels=0.02,
        classes=classes,
        confusion=((0.94, 0.06), (0.0, 1.0)),
        confusion_low=((0.9, 0.02), (0.0, 0.97)),
        confusion_high=((0.98, 0.1), (0.03, 1.0)),
        recall=(ClassEstimate(flu, 0.94, 0.9, 0.98), ClassEstimate(cold, 1.0, 0.97, 1.0)),
        precision=(ClassEstimate(flu, 0.99, 0.96, 1.0), ClassEstimate(cold, 0.0, 0.0, 1.0)),
        calibration=(
            SetCalibration(north, january, flu, 0.25, 0.26, 0.01),
            SetCalibration("South", "February", cold, 0.4, 0.46, 0.02),
        ),
        assumption=AssumptionTest(0.4, (Misfit(north, january, 0.04, f"more {flu} than expected"),)),
        baselines=(Baseline(MAJORITY, 0.5), Baseline(TOP_CLASS, 0.66), Baseline(SOFT_SETS, 0.81, (0.75, 0.86))),
    )
    return ReportData(
        run=f"runs/{north}",
        record=RunRecord(
            data={"data": f"{january}.csv", "client_column": flu, "ignore_columns": [cold, "id"]},
            data_fingerprint="ab12",
            training=TrainConfig(model="mlp", rounds=4),
            network_fingerprint="",
            software={"fedul": "0.1.0"},
        ),
        history=[
            RoundMetrics(i, 1.3 / i, 2, held_out_loss=1.4 / i, test_error=0.3 / i, seconds=0.1) for i in range(1, 5)
        ],
        result=RunResult(4, 3, 0.47, 0, "cd34", DataCounts(2, 4, 1000, 200), 0.4, test_error=0.081),
        classes=classes,
        test_prior=(0.5, 0.5),
        temperature=0.84,
        clients=clients,
        evaluation=evaluation,
        check=CheckResult(
            verdict="enough",
            summary="Enough: the 1,200 rows are worth about 300 to 600 labelled ones (25 to 50 %).",
            advice=(f"One more set with much {flu} would help most.",),
            identifiable=True,
            totals=FederationTotals(clients=2, rows=1200, sets=4, rank=1, classes=2),
            forecast=Forecast(1200, 300, 600, 0.25, 0.5),
            clients=(ClientCheck(north, 600, 2, 2, 4.2, 0.7, 0.5), ClientCheck("South", 600, 2, 1, None, 0.3, 0.5)),
            pairs=(PairCheck(flu, cold, 0.25, 0.5, 0.2),),
        ),
    )


def refused(data: ReportData, reason: str = "the sets differ in other ways too") -> ReportData:
    """The same run, with an accuracy that cannot be estimated."""
    assert data.evaluation is not None
    evaluation = replace(
        data.evaluation,
        estimated_accuracy=None,
        interval=None,
        reason=reason,
        remedies=("Form sets in another way (--set-column).", "Label about 100 rows at random (--truth-column)."),
        width_with_labels=None,
        accuracy=None,
        confusion=(),
        confusion_low=(),
        confusion_high=(),
        recall=(),
        precision=(),
    )
    return replace(data, evaluation=evaluation)


@dataclass
class Reader(HTMLParser):
    """Reads a page strictly: every element must end where it should."""

    text: str
    tags: list[tuple[str, dict[str, str]]] = field(default_factory=list)
    words: list[str] = field(default_factory=list)
    open: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()
        self.feed(self.text)
        self.close()
        assert not self.open, self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, {name: value or "" for name, value in attrs}))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open, f"{tag} was not open"
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "style" not in self.open:
            self.words.append(data)

    def all(self, *names: str) -> list[dict[str, str]]:
        """The attributes of all elements with these names."""
        return [attributes for tag, attributes in self.tags if tag in names]

    @property
    def plain_text(self) -> str:
        """All that can be read, with ordinary spaces."""
        return " ".join("".join(self.words).replace("\u00a0", " ").split())


def as_files(data: ReportData) -> dict[str, Mapping[str, Any]]:
    """Return evaluation.json and check.json as the commands write them."""
    assert data.evaluation is not None
    assert data.check is not None
    return {"evaluation.json": data.evaluation.to_dict(), "check.json": data.check.to_dict()}
