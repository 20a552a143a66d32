"""The table of an audit: one line for each number of an attack, one column for each protection."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fedul.auditing.document import (
    PROTECTIONS,
    Attack,
    AuditResult,
    CanaryResult,
    InversionResult,
    MembershipResult,
    PriorResult,
    ProtectionName,
)

TITLES: Mapping[Attack, str] = {
    "membership": "membership of rows",
    "canaries": "canaries",
    "class-priors": "class priors",
    "gradient-inversion": "rows from one step",
}
HEADS: Mapping[ProtectionName, str] = {
    "none": "no protection",
    "dp": "private rows",
    "secure-aggregation": "secure aggregation",
}
NOT_MEASURED = "not measured"
UNCHANGED = "as without"

Cells = dict[ProtectionName, str]


@dataclass(frozen=True)
class Line:
    """A line of the table.

    Parameters
    ----------
    attack : str
        Title of the attack.
    measure : str
        What is measured.
    cells : tuple of str
        Value for each of `PROTECTIONS`.
    """

    attack: str
    measure: str
    cells: tuple[str, ...]


def audit_lines(result: AuditResult) -> Sequence[Line]:
    """Return the lines of the table."""
    lines: dict[tuple[Attack, str], Cells] = {}
    for one in result.membership:
        _add(lines, "membership", one.protection, _membership(one))
    for bound in result.canaries:
        _add(lines, "canaries", bound.protection, _canaries(bound))
    for priors in result.class_priors:
        _add(lines, "class-priors", priors.protection, _priors(priors))
    for rows in result.gradient_inversion:
        _add(lines, "gradient-inversion", rows.protection, _inversion(rows))
    missing = {(each.attack, each.protection): each for each in result.not_measured}
    return [
        Line(TITLES[attack], measure, tuple(_cell(cells, attack, name, missing) for name in PROTECTIONS))
        for (attack, measure), cells in lines.items()
    ]


def _cell(
    cells: Cells, attack: Attack, protection: ProtectionName, missing: Mapping[tuple[Attack, ProtectionName], object]
) -> str:
    if protection in cells:
        return cells[protection]
    if (attack, protection) in missing:
        return UNCHANGED if (attack, protection) == ("membership", "secure-aggregation") else NOT_MEASURED
    return "-"


def _add(
    lines: dict[tuple[Attack, str], Cells], attack: Attack, protection: ProtectionName, values: Mapping[str, str]
) -> None:
    for measure, value in values.items():
        lines.setdefault((attack, measure), {})[protection] = value


def _membership(result: MembershipResult) -> Mapping[str, str]:
    auc, tpr = (result.auc, result.auc_low, result.auc_high), (result.tpr, result.tpr_low, result.tpr_high)
    return {
        f"{result.attack}, AUC": "{:.3f} ({:.3f} to {:.3f})".format(*auc),
        f"{result.attack}, found at 1 % false alarms": "{:.1%} ({:.1%} to {:.1%})".format(*tpr),
    }


def _canaries(result: CanaryResult) -> Mapping[str, str]:
    stated = "none" if result.stated is None else f"{result.stated:.2f}"
    return {
        "right guesses": f"{result.correct:,} of {result.guesses:,}",
        "lower bound on epsilon (95 %)": f"{result.bound:.2f}",
        "stated epsilon": stated,
    }


def _priors(result: PriorResult) -> Mapping[str, str]:
    return {
        "mean error of a share": f"{result.error:.4f}",
        "mean error of guessing the published share": f"{result.guess_error:.4f}",
        "closer than the guess": f"{result.wins} of {result.compared} (p = {result.p_value:.2g})",
    }


def _inversion(result: InversionResult) -> Mapping[str, str]:
    batch = f"batch of {result.batch}"
    return {
        f"{batch}, distance (mean row = 1)": f"{result.error:.2g}",
        f"{batch}, rows recovered": f"{result.recovered:.0%} of {result.rows}",
    }
