"""A schema from what is known of the columns: which are numbers or categories, which are left out, and why."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from fedul.errors import InputError
from fedul.schema.facts import RARE, Facts, like_identifiers
from fedul.schema.faults import fault
from fedul.schema.table import NO, YES, Boolean, Category, Column, Number, TableSchema

MOST_CATEGORIES = 50
"""Categories of a column that have an input of their own; the rarer ones share one."""
LABEL_NAMES = {"label", "class", "target", "diagnosis", "outcome", "y", "truth"}
IDENTIFIER_NAMES = {"id", "uuid", "guid", "key", "index", "mrn", "ssn", "name", "row"}


def schema_of(facts: Mapping[str, Facts], classes: Iterable[str] = ()) -> tuple[TableSchema, list[str]]:
    """A schema of all columns that can be used, and a sentence for each that is left out or looks odd."""
    columns: list[Column] = []
    remarks: list[str] = []
    known = {name.casefold() for name in classes}
    for name, about in facts.items():
        column, remark = _column(name, about, known)
        if remark := remark or (_by_name(name) if column else ""):
            remarks.append(f"column '{name}' {remark}")
        if column is not None:
            columns.append(column)
    if not columns:
        raise InputError(f"no column can be used as a feature; {' '.join(remarks) or 'there is none.'}")
    return TableSchema(tuple(columns)), remarks


def _by_name(name: str) -> str:
    words = {name.casefold(), *name.casefold().replace("-", "_").split("_")}
    if words & LABEL_NAMES:
        return "could be a label by its name, and is used as a feature; if it is one, name it with --label-column."
    if words & IDENTIFIER_NAMES:
        return "could be an identifier by its name, and is used as a feature; if it is one, use --ignore-columns."
    return ""


def _column(name: str, about: Facts, classes: set[str]) -> tuple[Column | None, str]:
    missing = about.missing > 0
    words = {word.casefold() for word in about.words}
    if about.strange:
        return None, f"holds {about.strange}, and is left out."
    if not about.present:
        return None, "is empty, and is left out."
    if words and words <= classes and not about.numbers:
        return None, "holds class names, and is left out; if it is the label, name it with --label-column."
    if wrong := fault(about):
        raise InputError(f"column '{name}': {wrong}")
    if about.numbers == about.present:
        return _number(name, about, missing=missing)
    if not about.numbers and not about.many and words <= {*YES, *NO}:
        yes = sum(count for word, count in about.words.items() if word.casefold() in YES)
        if yes in (0, about.present) and not missing:
            return None, "has one value only, and is left out."
        return Boolean(name, yes / about.present, missing), ""
    if like_identifiers(about):
        return None, "is different in nearly every row, as names and identifiers are, and is left out."
    return _category(name, about, missing=missing)


def _number(name: str, about: Facts, *, missing: bool) -> tuple[Column | None, str]:
    if about.low == about.high and not missing:
        return None, "has one value only, and is left out."
    remark = ""
    if about.whole and about.high - about.low + 1 == about.numbers > 20:
        remark = "counts the rows, as an identifier does, and is used as a feature; if it is one, use --ignore-columns."
    return Number(name, about.mean, about.deviation or 1.0, missing), remark


def _category(name: str, about: Facts, *, missing: bool) -> tuple[Column | None, str]:
    if len(about.words) <= 1 and not missing and not about.numbers and not about.rest:
        return None, "has one value only, and is left out."
    often = sorted(about.words, key=lambda word: (-about.words[word], word))[:MOST_CATEGORIES]
    kept = tuple(sorted(word for word in often if about.words[word] >= RARE)) or tuple(often[:1])
    others = about.rest or len(kept) < len(about.words) or about.numbers > 0
    return Category(name, kept, others, missing), ""
