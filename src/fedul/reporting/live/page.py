"""The live page: one HTML document whose sections are replaced when they change.

The sections are rendered here, with the templates of the report, so that the page also shows the run where scripts are
off; `live.js` only fetches and replaces them.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from fedul._utils.display import counted
from fedul._utils.documents import Document
from fedul.core import RoundMetrics
from fedul.reporting import wording
from fedul.reporting.live.run_view import GOING_ON, RunView
from fedul.reporting.page import environment, metric_charts
from fedul.training.status import SiteStatus

SECTIONS = ("progress", "report", "curves", "sites", "warnings")
"""Sections of the page, in order."""

STATES = {
    "ready": "ready",
    "working": "working",
    "failed": "failed",
    "away": "not connected",
    "refused": "refused",
    "private": "connected",
}
"""States of a site as the page names them."""

CALL_FOR_HELP = ("failed", "away", "refused")
"""States of a site that somebody should look at."""

LATEST_ROUNDS = 8
"""Rounds in the table beside the curves."""

ANNOUNCED_STEP = 10
"""Percent of the rounds after which a screen reader says how far the run is."""


@dataclass(frozen=True)
class PageState(Document):
    """What the page shows now, as its script fetches it.

    Parameters
    ----------
    title : str
        Title of the window.
    going_on : bool
        Whether the process of the run is there.
    announcement : str
        What a screen reader says when it changes.
    sections : mapping of str to str
        HTML of each section.
    """

    title: str
    going_on: bool
    announcement: str
    sections: dict[str, str]


@dataclass(frozen=True)
class SiteRow:
    """One row of the table of sites.

    Parameters
    ----------
    site : SiteStatus
        What is known of it.
    state : str
        Its state in words; empty if the run does not go on, so that it would be out of date.
    is_bad : bool
        Whether the state calls for help.
    failed_rounds : int
        Rounds in which it failed.
    problem : str
        The last thing that went wrong.
    """

    site: SiteStatus
    state: str
    is_bad: bool
    failed_rounds: int
    problem: str


def render_live_page(view: RunView) -> str:
    """Return the page as it is when it is opened."""
    state = page_state(view)
    return environment().get_template("live/page.html.j2").render(state=state, names=SECTIONS)


@cache
def static_files() -> dict[str, tuple[str, bytes]]:
    """Return the type and content of the files that belong to the page, by name."""
    loader = environment().loader
    assert loader is not None
    text = {name: loader.get_source(environment(), name)[0] for name in ("page.css", "live/live.css", "live/live.js")}
    icon = loader.get_source(environment(), "live/icon.svg")[0]
    return {
        "live.css": ("text/css; charset=utf-8", f"{text['page.css']}\n{text['live/live.css']}".encode()),
        "live.js": ("text/javascript; charset=utf-8", text["live/live.js"].encode()),
        "icon.svg": ("image/svg+xml", icon.encode()),
    }


def page_state(view: RunView) -> PageState:
    """Return what the page shows of a run."""
    heading, rows = _heading(view), _site_rows(view)
    values: dict[str, Any] = {
        "view": view,
        "heading": heading,
        "going_on": view.state in GOING_ON,
        "done": min(1.0, view.round / view.rounds) if view.rounds else 0.0,
        "time_left": _time_left(view),
        "figures": _figures(view),
        "charts": metric_charts(view.history, None if view.result is None else view.result.selected_round),
        "rows": rows,
        "latest": view.history[: -LATEST_ROUNDS - 1 : -1],
        "latest_columns": _latest_columns(view),
        "client": _client_word(view),
        "columns": _columns(rows, view),
        "run_word": shlex.quote(view.folder),
        "table": view.status.table if view.status else None,
        "warnings": list(reversed(view.status.warnings)) if view.status else [],
    }
    sections = {name: environment().get_template(f"live/{name}.html.j2").render(values).strip() for name in SECTIONS}
    return PageState(f"{heading} \u2013 fedul", view.state in GOING_ON, _announcement(view, heading), sections)


def _heading(view: RunView) -> str:
    """Return what the run does, in a few words."""
    of = f"{view.round:,} of {view.rounds:,}" if view.rounds else f"{view.round:,}"
    match view.state:
        case "absent":
            return "Waiting for a run"
        case "starting":
            return "Starting"
        case "waiting":
            return "Waiting for sites"
        case "choosing":
            return "Choosing settings"
        case "training":
            return f"Training: {of} rounds are done"
        case "finishing":
            return "All rounds are done; the result is being written"
        case "finished":
            return f"Finished after {counted(view.round, 'round')}"
        case "stopped" | "failed" as ended:
            return f"{ended.capitalize()} after round {of}" if view.round else f"{ended.capitalize()} before round 1"


def _time_left(view: RunView) -> str:
    """Return the time left in words; empty if it is not known."""
    if view.seconds_left is None:
        return ""
    return f"{'at most' if view.ends_early else 'about'} {wording.duration(view.seconds_left)} left"


def _announcement(view: RunView, heading: str) -> str:
    """Return what a screen reader says: each tenth of the rounds, a change of state, and new warnings."""
    warnings = counted(len(view.status.warnings), "warning") if view.status and view.status.warnings else ""
    if view.state == "training" and view.rounds:
        share = 100 * view.round // view.rounds // ANNOUNCED_STEP * ANNOUNCED_STEP
        heading = f"Training, {share} % of the rounds are done"
    return ". ".join(filter(None, [heading, warnings]))


def _figures(view: RunView) -> list[tuple[str, str]]:
    """Return names and values of the most important numbers."""
    last = view.history[-1] if view.history else None
    figures: list[tuple[str, str]] = []
    if last is not None:
        known = (
            ("training loss", last.loss, wording.number),
            ("held-out loss", last.held_out_loss, wording.number),
            ("error on labelled test rows", last.test_error, _percent),
            ("\u03b5 of rows, largest", last.epsilon, wording.number),
            ("\u03b5 of clients", last.client_epsilon, wording.number),
        )
        figures += [(name, text(value)) for name, value, text in known if value is not None]
        figures.append(("time of the last round", wording.duration(last.seconds)))
        figures.append((f"{_client_word(view)}s in the last round", wording.number(last.clients)))
        traffic = [(m.bytes_sent or 0) + (m.bytes_received or 0) for m in view.history if m.bytes_sent is not None]
        if traffic:
            figures.append(("traffic of all rounds", wording.size(sum(traffic))))
    if view.result is not None and view.state == "finished":
        figures.insert(0, ("round delivered", f"{view.result.selected_round:,} of {view.round:,}"))
    return figures


def _client_word(view: RunView) -> str:
    return "site" if view.across_sites else "client"


def _percent(share: float) -> str:
    return wording.percent(share, 1)


def _latest_columns(view: RunView) -> list[str]:
    """Return the columns of the table of the latest rounds: those in which something is known."""
    latest = view.history[-LATEST_ROUNDS:]
    known = {
        "training loss": any(metrics.loss is not None for metrics in latest),
        "held-out loss": any(metrics.held_out_loss is not None for metrics in latest),
        "test error": any(metrics.test_error is not None for metrics in latest),
        "\u03b5": any(metrics.epsilon is not None for metrics in latest),
    }
    return ["round", *(name for name, is_known in known.items() if is_known), f"{_client_word(view)}s", "time"]


def _site_rows(view: RunView) -> list[SiteRow]:
    """Return one row for each site that is known from the status or has failed in a round."""
    table = view.status.table.sites if view.status else ()
    errors = _site_errors(view.history)
    known = {site.name: site for site in table}
    known |= {name: SiteStatus(name, "ready") for name in errors if name not in known}
    rows = []
    for name, site in sorted(known.items(), key=lambda item: (item[1].state == "refused", item[0])):
        found = errors.get(name, [])
        problem = site.problem or (f"round {found[-1][0]}: {found[-1][1]}" if found else "")
        lasting = site.state == "refused" or view.state in GOING_ON
        state = STATES[site.state] if lasting and (site in table) else ""
        is_bad = bool(state) and site.state in CALL_FOR_HELP
        rows.append(SiteRow(site, state, is_bad, len(found), problem))
    return rows


def _columns(rows: Sequence[SiteRow], view: RunView) -> list[str]:
    """Return the columns of the table of sites: those in which something is known."""
    sites = [row.site for row in rows]
    known = {
        "state": view.across_sites,
        "last seen": any(site.last_seen is not None for site in sites),
        "last round": any(site.seconds is not None for site in sites),
        "sent": any(site.bytes_sent is not None for site in sites),
        "received": any(site.bytes_received is not None for site in sites),
        "failed rounds": view.across_sites,
        "\u03b5 of rows": any(site.epsilon is not None for site in sites),
    }
    return [_client_word(view), *(name for name, is_known in known.items() if is_known)]


def _site_errors(history: Sequence[RoundMetrics]) -> dict[str, list[tuple[int, str]]]:
    """Return the rounds in which each site failed, with the reasons."""
    errors: dict[str, list[tuple[int, str]]] = {}
    for metrics in history:
        for name, reason in metrics.site_errors.items():
            errors.setdefault(name, []).append((metrics.round, reason))
    return errors
