"""Text of an `AuditResult` for a terminal: the table, then sentences."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.markup import escape

from fedul._utils.display import counted, make_table
from fedul.auditing.document import PROTECTIONS, AuditResult
from fedul.auditing.table import HEADS, audit_lines


def audit_view(result: AuditResult) -> Group:
    """Return an audit as a table and sentences."""
    parts: list[RenderableType] = [
        f"attacks on {escape(result.method)} with {escape(result.algorithm)} and {escape(result.model)}: "
        f"{counted(result.rows, 'row')} of {counted(result.clients, 'client')}, {counted(result.rounds, 'round')}"
    ]
    if lines := audit_lines(result):
        table = make_table(
            ["attack", "measure"], [HEADS[name] for name in PROTECTIONS], wrap_numbers=True, wrap_names=True
        )
        before = ""
        for line in lines:
            table.add_row("" if line.attack == before else line.attack, line.measure, *line.cells)
            before = line.attack
        parts.append(table)
    parts += [
        f" • {HEADS[each.name]}: {escape(each.description)}" for each in result.protections if each.name != "none"
    ]
    for reason in dict.fromkeys((each.protection, each.reason) for each in result.not_measured):
        parts.append(f" • {HEADS[reason[0]]}: {escape(reason[1])}")
    parts += ["", *(escape(sentence) for sentence in result.sentences)]
    return Group(*parts)
