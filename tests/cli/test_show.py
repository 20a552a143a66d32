"""Progress on a terminal and without one, notes, and JSON."""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import replace

import pytest
from rich.console import Console

from fedul.cli import show
from fedul.core import RoundMetrics
from fedul.training import DataCounts, RunInfo, RunResult

RESULT = RunResult(3, 3, 0.5, 0, "0" * 64, DataCounts(1, 2, 10, 2), 1.0)
HIDE_CURSOR, SHOW_CURSOR = "\x1b[?25l", "\x1b[?25h"


def metrics(number: int) -> RoundMetrics:
    return RoundMetrics(number, 0.5, 2, held_out_loss=0.25, test_error=0.125)


@pytest.fixture
def screen(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    text = io.StringIO()
    monkeypatch.setattr(
        show, "err", Console(file=text, force_terminal=True, width=80, highlight=False, color_system=None)
    )
    return text


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    text = io.StringIO()
    monkeypatch.setattr(show, "err", Console(file=text, width=80, highlight=False))
    return text


def run_three_rounds(progress: show.TrainingProgress, run: RunInfo) -> None:
    progress.on_run_start(run)
    for number in (1, 2, 3):
        progress.on_round_end(run, metrics(number))
    progress.on_run_end(run, RESULT)


def test_a_run_shows_rounds_and_metrics(screen: io.StringIO) -> None:
    with show.TrainingProgress("fedul on digits") as progress:
        run_three_rounds(progress, RunInfo(3))
    last = screen.getvalue().removesuffix(SHOW_CURSOR).splitlines()[-1]
    assert "fedul on digits" in last
    assert "3/3 loss 0.500 held-out 0.250 error 12.50%" in last


def test_runs_one_after_another_show_their_number_and_the_time_left_for_all(screen: io.StringIO) -> None:
    with show.TrainingProgress() as progress:
        for number in (1, 2):
            run_three_rounds(progress, RunInfo(3, "fedllp, seed 0", number, 2))
    assert "1/2 fedllp, seed 0" in screen.getvalue()
    assert "2/2 fedllp, seed 0" in screen.getvalue()
    assert "12.50% (all: 0:00:00)" in screen.getvalue()


def test_runs_that_train_together_share_one_bar_that_counts_all_rounds(screen: io.StringIO) -> None:
    first, second = (RunInfo(3, f"fold {n}", n, 2, joint_runs=2) for n in (1, 2))
    with show.TrainingProgress() as progress:
        progress.on_run_start(first)
        progress.on_run_start(second)
        for number in (1, 2):
            progress.on_round_end(first, metrics(number))
            progress.on_round_end(second, metrics(number))
        progress.on_run_end(first, RESULT)  # early
        progress.on_round_end(second, metrics(3))
        shown = screen.getvalue()
        progress.on_run_end(second, RESULT)
    assert shown.count(HIDE_CURSOR) == 1
    last = screen.getvalue().removesuffix(SHOW_CURSOR).splitlines()[-1]
    assert "fold 1 and 1 more" in last
    assert "6/6" in last


def test_concurrent_runs_share_one_bar_that_counts_runs(screen: io.StringIO) -> None:
    first, second, third = (RunInfo(3, f"seed {n}", n + 1, 3, concurrent=2) for n in range(3))
    with show.TrainingProgress() as progress:
        progress.on_run_start(first)
        progress.on_run_start(first)
        progress.on_run_end(first, RESULT)
        progress.on_run_start(second)
        progress.on_run_end(second, RESULT)
        progress.on_run_end(third, RESULT)
    assert screen.getvalue().count(HIDE_CURSOR) == 1
    last = screen.getvalue().removesuffix(SHOW_CURSOR).splitlines()[-1]
    assert "3 runs" in last
    assert "3/3 seed 2" in last


def interrupted_run(progress: show.TrainingProgress) -> None:
    progress.on_run_start(RunInfo(3))
    progress.on_round_end(RunInfo(3), metrics(1))
    raise KeyboardInterrupt


def interrupted_concurrent_runs(progress: show.TrainingProgress) -> None:
    progress.on_run_start(RunInfo(3, total=4, concurrent=2))
    raise ValueError


@pytest.mark.parametrize("work", [interrupted_run, interrupted_concurrent_runs])
def test_an_interruption_or_an_error_leaves_the_terminal_clean(
    screen: io.StringIO, work: Callable[[show.TrainingProgress], None]
) -> None:
    with pytest.raises((KeyboardInterrupt, ValueError)), show.TrainingProgress() as progress:
        work(progress)
    text = screen.getvalue()
    assert text.count(HIDE_CURSOR) == text.count(SHOW_CURSOR) == 1
    assert text.endswith((SHOW_CURSOR, "\n"))


def test_a_resumed_run_begins_where_it_stopped(screen: io.StringIO) -> None:
    with show.TrainingProgress() as progress:
        progress.on_run_start(RunInfo(5, history=[metrics(1), metrics(2)]))
    assert "2/5" in screen.getvalue()


def test_a_warning_is_printed_once(log: io.StringIO) -> None:
    progress = show.TrainingProgress()
    for message in ("[odd] priors", "[odd] priors", "another"):
        progress.on_warning(message)
    assert log.getvalue() == "note: [odd] priors\nnote: another\n"


def test_without_a_terminal_progress_is_a_line_now_and_then(log: io.StringIO, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter(range(0, 1000, 6))
    monkeypatch.setattr(show.time, "monotonic", lambda: next(clock))
    run = RunInfo(9)
    with show.TrainingProgress() as progress:
        progress.on_run_start(run)
        for number in range(1, 10):
            progress.on_round_end(run, metrics(number))
    lines = log.getvalue().splitlines()
    assert 1 < len(lines) < 9
    assert all(line.startswith("round ") and " of 9: loss 0.500" in line for line in lines)


def test_every_line_of_progress_fits_into_80_columns(screen: io.StringIO) -> None:
    run = RunInfo(30, "supervised:labels=0.1, seed 2", 12, 21)
    with show.TrainingProgress() as progress:
        run_three_rounds(progress, replace(run, number=11))
        run_three_rounds(progress, run)
    assert "…" not in screen.getvalue()
