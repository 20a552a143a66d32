"""The page of a run: one self-contained HTML file, without scripts and without anything from outside.

It is for whoever has to decide by it: plain words first, then the figures, on paper, on a phone and by ear.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import resources

from fedul.report.facts import Facts
from fedul.report.markup import Html, element
from fedul.report.sections.accuracy import accuracy_section
from fedul.report.sections.answer import answer, answer_section, question
from fedul.report.sections.assumption import assumption_section
from fedul.report.sections.calibration import calibration_section
from fedul.report.sections.clients import clients_section
from fedul.report.sections.configuration import configuration_section
from fedul.report.sections.learning import learning_section
from fedul.report.sections.priors import priors_section

POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
"""The browser is told to load nothing and to run nothing, whatever should get into the page."""

SECTIONS: dict[str, tuple[str, Callable[[Facts], Html]]] = {
    "answer": ("In short", answer_section),
    "priors": ("Class priors", priors_section),
    "learning": ("Learning curves", learning_section),
    "confusion": ("Confusion matrix", accuracy_section),
    "calibration": ("Calibration", calibration_section),
    "assumption": ("Assumption test", assumption_section),
    "clients": ("Clients", clients_section),
    "configuration": ("Configuration", configuration_section),
}


def page(facts: Facts) -> str:
    """The whole page; the same facts give the same page."""
    style = resources.files("fedul.report").joinpath("page.css").read_text(encoding="utf-8")
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=POLICY),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="color-scheme", content="light dark"),
        element("meta", name="referrer", content="no-referrer"),
        element("title", f"{question(facts)} A report of fedul"),
        element("style", Html(style)),
    )
    body = element(
        "body",
        element("a", "Skip to the answer", href="#main", class_="skip"),
        element("header", element("p", _origin(facts), class_="origin"), element("h1", question(facts))),
        _contents(),
        element(
            "main",
            element("p", answer(facts), class_="lead"),
            [show(facts) for _, show in SECTIONS.values()],
            id="main",
            tabindex=-1,
        ),
        element("footer", element("p", _colophon(facts))),
    )
    return "<!DOCTYPE html>\n" + element("html", head, body, lang="en") + "\n"


def _contents() -> Html:
    entries = [element("li", element("a", title, href=f"#{name}")) for name, (title, _) in SECTIONS.items()]
    return element("nav", element("h2", "Contents", id="contents"), element("ol", entries), aria_labelledby="contents")


def _origin(facts: Facts) -> str:
    training = facts.config.get("training", {})
    parts = [f"Run {facts.run}", *(str(training[key]) for key in ("method", "algorithm", "model") if key in training)]
    return " \u00b7 ".join(parts)


def _colophon(facts: Facts) -> str:
    version = facts.config.get("software", {}).get("fedul")
    by = f"fedul {version}" if version else "fedul"
    return f"Of a run of {by}. This page loads nothing and sends nothing."
