"""Facts of a made-up run, and a reader of pages that notices what a browser forgives."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from html.parser import HTMLParser
from typing import Any

from fedul.report.facts import ClientFacts, Facts
from fedul.report.judged import Calibrated, Check, Checked, Estimate, Evaluation, Misfit

VOID = {"meta", "br"}


def made_up(flu: str = "flu", cold: str = "cold", north: str = "North", january: str = "January") -> Facts:
    """A finished run of two clients with everything known; the names may be any."""
    classes = (flu, cold)
    priors = [[0.25, 0.75], [0.6, 0.4]]
    clients = [ClientFacts(name, 600, (january, "February"), priors) for name in (north, "South")]
    evaluation = Evaluation(
        accuracy=Estimate(0.93, 0.90, 0.95),
        true_accuracy=0.92,
        width_with_labels=0.02,
        classes=classes,
        confusion=[[0.94, 0.06], [-0.01, 1.01]],
        confusion_low=[[0.9, 0.02], [-0.05, 0.97]],
        confusion_high=[[0.98, 0.1], [0.03, 1.05]],
        recall={flu: Estimate(0.94, 0.9, 0.98), cold: Estimate(1.01, 0.97, 1.05)},
        precision={flu: Estimate(0.99, 0.96, 1.0), cold: Estimate(None)},
        calibration=[
            Calibrated(north, january, flu, 0.25, 0.26, 0.01),
            Calibrated("South", "February", cold, 0.4, 0.46, 0.02),
        ],
        p_value=0.4,
        misfits=[Misfit(north, january, 0.04, f"more {flu} than expected")],
        reason=None,
    )
    return Facts(
        run=f"runs/{north}",
        config={
            "software": {"fedul": "0.1.0"},
            "data": {"data": f"{january}.csv", "client_column": flu, "ignore_columns": [cold, "id"]},
            "data_fingerprint": "ab12",
            "training": {"method": "fedul", "algorithm": "fedavg", "model": "mlp", "rounds": 4, "select": "held-out"},
        },
        history=[
            {"round": i, "loss": 1.3 / i, "held_out_loss": 1.4 / i, "test_error": 0.3 / i, "seconds": 0.1}
            for i in range(1, 5)
        ],
        result={"selected_round": 3, "labels_used": 0, "test_error": 0.081, "weights_sha256": "cd34"},
        classes=classes,
        test_prior=(0.5, 0.5),
        temperature=0.84,
        clients=clients,
        evaluation=evaluation,
        check=Check(
            identifiable=True,
            advice=[f"One more set with much {flu} would help most."],
            clients=[Checked(north, 600, 2, 2, 4.2, 0.7), Checked("South", 600, 2, 1, None, 0.3)],
        ),
    )


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
    def plain(self) -> str:
        """All that can be read, with ordinary spaces."""
        return " ".join("".join(self.words).replace("\u00a0", " ").split())


def as_files(facts: Facts) -> dict[str, Mapping[str, Any]]:
    """evaluation.json and check.json as the commands write them, for these facts."""
    found, check = facts.evaluation, facts.check
    assert found is not None
    assert check is not None
    return {
        "evaluation.json": {
            "estimated_accuracy": found.accuracy.value,
            "interval": [found.accuracy.low, found.accuracy.high],
            "accuracy": found.true_accuracy,
            "width_with_labels": found.width_with_labels,
            "classes": list(found.classes),
            "confusion": found.confusion,
            "confusion_low": found.confusion_low,
            "confusion_high": found.confusion_high,
            "recall": [{"class": name, **vars(one)} for name, one in found.recall.items()],
            "precision": [{"class": name, **vars(one)} for name, one in found.precision.items()],
            "calibration": [{**vars(one), "class": one.of_class} for one in found.calibration],
            "assumption": {
                "p_value": found.p_value,
                "misfits": [vars(one) for one in found.misfits],
                "reason": found.reason,
            },
        },
        "check.json": {
            "identifiable": check.identifiable,
            "advice": list(check.advice),
            "clients": [{**vars(one), "client": one.name} for one in check.clients],
            "forecast": {},
        },
    }
