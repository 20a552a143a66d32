"""The live page as HTML: well formed in every state, safe whatever the names are, honest about what is unknown."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from fedul.engines.flower.server.site_activity import PRIVATE
from fedul.reporting.live.page import page_state, render_live_page
from fedul.reporting.live.run_view import RunView
from fedul.training.status import RunWarning, SiteStatus, SiteTable

from .live_folders import going_on, rounds, status, view, write_run
from .pages import Reader

NASTY = "<script>alert(1)</script>"
AWAY = "not connected"


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return write_run(tmp_path / "RUN", rounds(7), status())


def shown(seen: RunView) -> str:
    """Return all sections of the page."""
    return "\n".join(page_state(seen).sections.values()).replace("\u00a0", " ")


def test_a_run_that_goes_on_shows_progress_time_left_curves_sites_and_warnings(run: Path) -> None:
    with going_on(run):
        text = shown(view(run))
    for part in (
        "Training: 7 of 12 rounds are done",
        "about 20 s left",
        "Loss by round",
        "north",
        "working",
        AWAY,
        "3.4 MB",
        "1.25",
        "column &#39;age&#39; is missing",
        "tell all classes apart",
    ):
        assert part in text, part


@pytest.mark.parametrize("phase", ["waiting", "training", "finishing", "finished", "stopped", "failed"])
@pytest.mark.parametrize("count", [0, 1, 7])
def test_the_page_is_well_formed_in_every_state(tmp_path: Path, phase: str, count: int) -> None:
    run = write_run(tmp_path / "RUN", rounds(count), status(phase), finished=phase == "finished" and count > 3)
    Reader(render_live_page(view(run)))
    with going_on(run):
        Reader(render_live_page(view(run)))


def test_the_page_of_a_run_that_is_not_there_yet_says_so(tmp_path: Path) -> None:
    page = render_live_page(view(tmp_path / "RUN"))
    Reader(page)
    assert "There is no run in" in page


def test_a_stopped_run_says_how_to_continue_and_not_what_its_sites_do(run: Path) -> None:
    text = shown(view(run))
    assert "Stopped after round 7 of 12" in text
    assert "flwr run . --run-config &#39;resume=true&#39;" in text
    assert AWAY not in text
    assert "working" not in text


def test_a_resumed_run_says_after_which_round(run: Path) -> None:
    write_run(run, rounds(7), status(resumed_after=5))
    with going_on(run):
        assert "after round 5 of an earlier one" in shown(view(run))


def test_a_finished_run_embeds_its_report_or_says_how_to_get_one(run: Path) -> None:
    write_run(run, rounds(12), status("finished"), finished=True)
    assert f"fedul report {run}" in shown(view(run))
    write_run(run, report=True)
    assert '<iframe src="report?' in shown(view(run))
    assert "fedul report" not in shown(view(run))


def test_names_and_messages_are_text_and_not_markup(run: Path) -> None:
    sites = SiteTable(1, (SiteStatus(NASTY, "failed", problem=NASTY),), NASTY)
    warning = RunWarning(0.0, 1, NASTY)
    write_run(
        run, rounds(2, site_errors={NASTY: NASTY}), status("failed", table=sites, warnings=(warning,), problem=NASTY)
    )
    page = render_live_page(view(run))
    Reader(page)
    assert page.count("<script") == 1  # its own
    assert page.count("&lt;script&gt;alert(1)&lt;/script&gt;") >= 5


def test_where_participants_are_private_the_page_says_why_columns_are_missing(run: Path) -> None:
    table = SiteTable(1, (SiteStatus("north", "private"),), PRIVATE)
    write_run(run, rounds(7, site_errors={}), status(table=table))
    with going_on(run):
        text = shown(view(run))
    assert "take part at random" in text
    assert "last seen</th>" not in text
    assert ">connected<" in text


def test_with_secure_aggregation_the_page_says_what_is_not_known_of_a_site(run: Path) -> None:
    seen = view(run)
    assert seen.record is not None
    secure = replace(seen.record, training=replace(seen.record.training, secure_aggregation=True))
    assert "losses and updates of a single site are not known" in shown(replace(seen, record=secure))


def test_a_run_without_losses_has_no_curve_and_says_why(run: Path) -> None:
    write_run(run, rounds(3, loss=None, held_out_loss=None, epsilon=2.5), status())
    text = shown(view(run))
    assert "releases no loss" in text
    assert "2.5" in text


def test_many_warnings_of_a_run_are_not_all_shown(run: Path) -> None:
    write_run(run, rounds(3), status(warnings_left_out=12))
    assert "12 earlier messages not shown" in shown(view(run))


def test_a_screen_reader_hears_of_tenths_and_not_of_every_round(run: Path) -> None:
    heard = []
    for count in range(1, 13):
        write_run(run, rounds(count), status())
        with going_on(run):
            heard.append(page_state(view(run)).announcement)
    assert len(set(heard)) < len(heard)
    assert heard[6] == "Training, 50 % of the rounds are done. 1 warning"
