"""A model card as Markdown, from its JSON and nothing else, so that the two agree."""

from __future__ import annotations

import html
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

SHARES = {"estimated_accuracy", "accuracy", "interval", "test_error", "recall", "precision"}
"""Figures that are read as percentages."""


def as_markdown(card: Mapping[str, Any]) -> str:
    """The card for people to read."""
    model, use, data = card["model"], card["intended_use"], card["training_data"]
    about = {name: value for name, value in model.items() if name not in ("classes", "settings", "software")}
    software = {f"version of {name}": version for name, version in model["software"].items()}
    parts = [
        ["# Model card", "", _text(use["purpose"])],
        [
            "## What it is",
            "",
            *_facts({"classes": ", ".join(model["classes"]), **model["settings"], **about, **software}),
        ],
        [
            "## Intended use",
            "",
            "For a population in which the classes are this common:",
            "",
            *_table(
                ["class", "share", "share in training"],
                ([name, share, use["trained_class_mix"][name]] for name, share in use["class_mix"].items()),
            ),
        ],
        ["## Training data", "", *_facts({name: value for name, value in data.items() if name != "columns"})],
        _columns(data["columns"]),
        ["## Diagnosis of the class proportions", "", *_diagnosis(card["diagnosis"])],
        ["## Figures without labels", "", *_figures(card["figures_without_labels"])],
        ["## Figures with labels", "", *(_facts(card["figures_with_labels"] or {}) or ["No labels were at hand."])],
        ["## Limits", "", *(f"- {_text(sentence)}" for sentence in card["limits"])],
    ]
    return "\n\n".join("\n".join(part) for part in parts if part) + "\n"


def _columns(columns: Sequence[Mapping[str, str]]) -> list[str]:
    names = ["name", "kind", "values", "missing"]
    return _table(names, ([column[name] for name in names] for column in columns)) if columns else []


def _diagnosis(found: Mapping[str, Any] | None) -> list[str]:
    if found is None:
        return ["None was made."]
    return _facts(found)


def _figures(found: Mapping[str, Any] | None) -> list[str]:
    if found is None:
        return ["None were estimated."]
    by_class = {name: found[name] for name in ("recall", "precision") if found.get(name)}
    lines = _facts({name: value for name, value in found.items() if name not in by_class})
    if by_class:
        classes = next(iter(by_class.values()))
        rows = ([name, *(_with_interval(each.get(name, {})) for each in by_class.values())] for name in classes)
        lines += ["", *_table(["class", *by_class], rows)]
    return lines


def _with_interval(figure: Mapping[str, float | None]) -> str:
    value, low, high = (_value("accuracy", figure.get(end)) for end in ("value", "low", "high"))
    return f"{value} ({low} to {high})"


def _facts(values: Mapping[str, Any]) -> list[str]:
    """A line for each; what is nested gets the names above it too."""
    lines: list[str] = []
    for name, value in values.items():
        if isinstance(value, Mapping):
            lines += _facts({f"{name} {inner}": each for inner, each in value.items()})
        else:
            lines.append(f"- {_text(name.replace('_', ' '))}: {_text(_value(name, value))}")
    return lines


def _value(name: str, value: Any) -> str:
    if value is None:
        return "not known"
    if isinstance(value, list):
        return " to ".join(_value(name, each) for each in value)
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.1%}" if name in SHARES else f"{value:.4g}"
    return f"{value:,}" if isinstance(value, int) else str(value)


def _table(head: Sequence[str], rows: Iterable[Sequence[Any]]) -> list[str]:
    lines = [head, ["---"] * len(head), *([_value("", cell) for cell in row] for row in rows)]
    return [f"| {' | '.join(_text(cell) if cell != '---' else cell for cell in line)} |" for line in lines]


def _text(words: str) -> str:
    """Words that come out as they are, whatever signs they hold."""
    flat = html.escape(" ".join(words.split()), quote=False)
    return "".join(f"\\{sign}" if sign in "\\`*[]|#" else sign for sign in flat)
