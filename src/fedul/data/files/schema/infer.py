"""Inference of a schema from the statistics of columns: numbers, categories, and columns that are left out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from fedul.data.files.schema.column_problems import column_problem
from fedul.data.files.schema.column_stats import RARE, ColumnStats, looks_like_identifiers
from fedul.data.files.schema.table import NO, YES, Boolean, Category, Column, Number, TableSchema
from fedul.errors import InputError

MAX_CATEGORIES = 50
"""Categories of a column that have their own input; the others share one."""
LABEL_NAMES = {"label", "class", "target", "diagnosis", "outcome", "y", "truth"}
IDENTIFIER_NAMES = {"id", "uuid", "guid", "key", "index", "mrn", "ssn", "name", "row"}


def infer_schema(stats: Mapping[str, ColumnStats], classes: Iterable[str] = ()) -> tuple[TableSchema, list[str]]:
    """Return a schema of all usable columns, and one sentence for each column that is left out or looks odd."""
    columns: list[Column] = []
    warnings: list[str] = []
    known = {name.casefold() for name in classes}
    for name, column_stats in stats.items():
        column, warning = _infer_column(name, column_stats, known)
        if column and not warning:
            warning = _name_warning(name) or _value_warning(column_stats, known)
        if warning:
            warnings.append(f"column '{name}' {warning}")
        if column is not None:
            columns.append(column)
    if not columns:
        raise InputError(f"no column can be used as a feature; {' '.join(warnings) or 'there are no columns.'}")
    return TableSchema(tuple(columns)), warnings


def _name_warning(name: str) -> str:
    words = {name.casefold(), *name.casefold().replace("-", "_").split("_")}
    if words & LABEL_NAMES:
        return "has the name of a label and is used as a feature; if it is a label, name it with --label-column."
    if words & IDENTIFIER_NAMES:
        return "has the name of an identifier and is used as a feature; if it is one, use --ignore-columns."
    return ""


def _value_warning(stats: ColumnStats, classes: set[str]) -> str:
    if classes & {word.casefold() for word in stats.words}:
        return "has class names as values and is used as a feature; if it is the label, use --ignore-columns."
    return ""


def _infer_column(name: str, stats: ColumnStats, classes: set[str]) -> tuple[Column | None, str]:
    missing = stats.missing > 0
    words = {word.casefold() for word in stats.words}
    if stats.strange:
        return None, f"holds {stats.strange} and is left out."
    if not stats.present:
        return None, "is empty and is left out."
    # "yes" and "no" say nothing about what they answer, so only a column of other class names is taken for the label.
    if words and words == classes and not stats.numbers and not words <= {*YES, *NO}:
        return None, "holds the class names and is left out; if it is the label, name it with --label-column."
    if wrong := column_problem(stats):
        raise InputError(f"column '{name}': {wrong}")
    if stats.numbers == stats.present:
        return _infer_number(name, stats, missing=missing)
    if not stats.numbers and not stats.many and words <= {*YES, *NO}:
        yes = sum(count for word, count in stats.words.items() if word.casefold() in YES)
        if yes in (0, stats.present) and not missing:
            return None, "has only one value and is left out."
        return Boolean(name, yes / stats.present, missing), ""
    if looks_like_identifiers(stats):
        if stats.numbers:
            return None, "mixes numbers and text and is left out; name it with --category-columns to use it."
        return None, "is different in nearly every row, like names and identifiers, and is left out."
    return _infer_category(name, stats, missing=missing)


def _infer_number(name: str, stats: ColumnStats, *, missing: bool) -> tuple[Column | None, str]:
    if stats.low == stats.high and not missing:
        return None, "has only one value and is left out."
    warning = ""
    if stats.whole and stats.high - stats.low + 1 == stats.numbers > 20:
        warning = "numbers the rows like an identifier and is used as a feature; if it is one, use --ignore-columns."
    return Number(name, stats.mean, stats.deviation or 1.0, missing), warning


def _infer_category(name: str, stats: ColumnStats, *, missing: bool) -> tuple[Column | None, str]:
    if len(stats.words) <= 1 and not missing and not stats.numbers and not stats.rest:
        return None, "has only one value and is left out."
    frequent = sorted(stats.words, key=lambda word: (-stats.words[word], word))[:MAX_CATEGORIES]
    words = tuple(sorted(word for word in frequent if stats.words[word] >= RARE)) or tuple(frequent[:1])
    others = stats.rest or len(words) < len(stats.words) or stats.numbers > 0
    return Category(name, words, others, missing), ""
