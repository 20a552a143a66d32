"""The configuration: every setting of the run, and what it means."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

from fedul.config import DataConfig, OwnDataConfig, TrainConfig
from fedul.report.facts import Facts
from fedul.report.markup import Cell, Cells, Html, Row, element, joined, paragraph, section, table, words
from fedul.report.wording import number


def configuration_section(facts: Facts) -> Html:
    """All that is needed to repeat the run."""
    tables = [
        _settings(name, settings, kind)
        for name, kind in (("data", _data_kind(facts)), ("training", TrainConfig))
        if (settings := facts.config.get(name))
    ]
    return section(
        "configuration",
        "Configuration",
        paragraph("All that is needed to repeat the run, as it stands in the run's config.json."),
        tables,
        _identity(facts),
    )


def _data_kind(facts: Facts) -> type:
    return OwnDataConfig if "client_column" in facts.config.get("data", {}) else DataConfig


def _settings(name: str, settings: Mapping[str, Any], kind: type) -> Html:
    helps = {f.name: str(f.metadata.get("help", "")) for f in fields(kind)}
    rows = [Row([words(key.replace("_", "-"))], [_value(value, helps.get(key, ""))]) for key, value in settings.items()]
    heads: Cells = [words("setting"), words("value, and what it means")]
    return table(f"{name}-table", name.capitalize(), heads, rows, kind="settings")


def _identity(facts: Facts) -> Html:
    """What tells this run from others."""
    entries = {
        **{f"version of {name}": version for name, version in facts.config.get("software", {}).items()},
        "fingerprint of the data": facts.config.get("data_fingerprint"),
        "SHA-256 of the last weights": (facts.result or {}).get("weights_sha256"),
        "temperature of the probabilities": facts.temperature,
        "seconds of training": (facts.result or {}).get("seconds"),
    }
    rows = [Row([words(key)], [_value(value)]) for key, value in entries.items() if value is not None]
    heads: Cells = [words("what"), words("value")]
    return table("identity-table", "Software and fingerprints", heads, rows, kind="settings")


def _value(value: Any, meaning: str = "") -> Cell:
    explained = element("span", meaning, class_="meaning") if meaning else None
    return words(joined([plainly(value), explained]))


def plainly(value: Any) -> str:
    """A setting as a person writes it.

    >>> plainly(None), plainly(True), plainly([10, 20]), plainly({"mu": 0.1}), plainly([])
    ('not set', 'yes', '10, 20', 'mu=0.1', 'none')
    """
    if value is None:
        return "not set"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Mapping):
        return ", ".join(f"{key}={plainly(one)}" for key, one in value.items()) or "none"
    if isinstance(value, Sequence) and not isinstance(value, str):
        return ", ".join(map(plainly, value)) or "none"
    return number(value) if isinstance(value, int | float) else str(value)
