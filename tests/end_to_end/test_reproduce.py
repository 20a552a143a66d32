"""`fedul reproduce`, as a user types it."""

from __future__ import annotations

import csv
import os
import signal
from pathlib import Path

import pytest

from ..waiting import wait_until
from .checks import refuses
from .command import Fedul, Warm

SMALL = "reproduce table1 --scale smoke --only split=iid,data=mnist,sets=10,method=fedul|supervised"


@pytest.mark.slow
def test_every_cell_of_table_1_runs_end_to_end(fedul: Fedul, tmp_path: Path) -> None:
    outcome = fedul("reproduce table1 --scale smoke --out R --json")
    assert outcome.code == 0, outcome.err
    cells = outcome.document["cells"]
    assert len(cells) == 2 * 2 * 3 * 7
    assert all(0 < cell["means"][0] < 100 for cell in cells)
    lines = list(csv.DictReader((tmp_path / "R/table1-smoke/runs.csv").read_text().splitlines()))
    assert len(lines) == len(cells)
    table = (tmp_path / "R/table1-smoke/table.md").read_text()
    assert "*0.78 (0.06)*" in table
    assert "| -- |" not in table


def test_a_finished_table_is_printed_without_running_it_again(fedul: Fedul, tmp_path: Path) -> None:
    first, again = (fedul(f"{SMALL} --out R --json") for _ in range(2))
    assert first.document == again.document
    assert "0.78 (0.06)" in fedul(f"{SMALL} --out R").out
    assert len(list((tmp_path / "R/runs").iterdir())) == 2


def test_without_a_name_the_tables_are_listed(fedul: Fedul) -> None:
    listed = fedul("reproduce").out
    assert all(name in listed for name in ("table1", "table2", "noise", "departures"))


def test_the_list_of_tables_can_be_printed_as_json(fedul: Fedul) -> None:
    listed = {one["name"]: one for one in fedul("reproduce --json").document["experiments"]}
    assert listed["table1"]["axes"]["sets"] == ["10", "20", "40"]


def test_a_missing_published_deviation_is_null_in_json(fedul: Fedul) -> None:
    chosen = "--only split=iid,method=fedul,measure=operations"
    (cell,) = fedul(f"reproduce efficiency --scale smoke --out R --json {chosen}").document["cells"]
    assert cell["published"] == [[48125422, None]]
    assert cell["means"] == [64 * 10 + 10 * 10 + 10]


def test_running_some_cells_keeps_the_others_in_the_files(fedul: Fedul, tmp_path: Path) -> None:
    for method in ("fedul", "supervised"):
        chosen = f"--only split=iid,data=mnist,sets=10,method={method}"
        assert fedul(f"reproduce table1 --scale smoke --out R {chosen}").code == 0
    lines = (tmp_path / "R/table1-smoke/runs.csv").read_text().splitlines()
    # Cells of CIFAR-10 are there as well: at this scale they are the same runs.
    assert {line.split(",")[3] for line in lines[1:]} == {"fedul", "supervised"}
    assert "not a reproduction" in (tmp_path / "R/table1-smoke/table.md").read_text()


def test_a_setting_can_be_changed_for_all_cells(fedul: Fedul, tmp_path: Path) -> None:
    one = SMALL.removesuffix("|supervised")  # which has no loss to choose
    assert fedul(f"{one} --set loss=brier --set batch-size=all --out R").code == 0
    page = (tmp_path / "R/table1-smoke-loss=brier-batch-size=all/page.md").read_text()
    assert "five clients; with loss brier, batch-size all" in page
    assert "`fedul reproduce table1 --scale smoke --set loss=brier --set batch-size=all`" in page


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("reproduce tabel1", "unknown experiment 'tabel1': did you mean 'table1'"),
        ("reproduce table1 --scale huge", "scale: 'huge' is not one of paper, laptop, smoke"),
        ("reproduce table1 --only data=minst", "unknown data 'minst': did you mean 'mnist'"),
        ("reproduce table1 --data-dir . --only data=cifar10 --scale paper", "cifar10: not on this machine"),
        ("reproduce noise --scale smoke --out ''", "out: '' is not a folder; name one"),
        ("reproduce table1 --data nothing", "unknown data set 'nothing'"),
        ("reproduce table1 --seeds 0", "Invalid value for '--seeds'"),
        ("reproduce table1 --only ''", "only: names no cell"),
        ("reproduce table1 --data nothing --only data=mnist", "unknown data set 'nothing'"),
        ("reproduce table1 --set loss", "set: expected NAME=VALUE, got 'loss'"),
        ("reproduce table1 --set los=brier", "unknown setting 'los': did you mean 'loss'"),
        ("reproduce table1 --set method=fedul", "method: is what the cells of table1 differ in"),
        ("reproduce table1 --set rounds=3", "set: rounds has its own option"),
    ],
)
def test_what_cannot_be_reproduced_is_refused(fedul: Fedul, tmp_path: Path, line: str, complaint: str) -> None:
    refuses(fedul, tmp_path, line, complaint)


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="counts processes in /proc")
@pytest.mark.parametrize(("how", "code"), [(signal.SIGKILL, -9), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_worker_processes_do_not_outlive_their_parent(
    warm: Warm, tmp_path: Path, how: signal.Signals, code: int
) -> None:
    parent = warm.start("reproduce table1 --scale smoke --rounds 100000 --jobs 2 --out R", tmp_path)
    try:
        parent.wait_until(lambda: runs_begun(tmp_path) == 2, pause=0.1)
        assert len(in_session(parent.pid)) >= 3
        parent.send(how)
        assert parent.outcome().code == code
        wait_until(lambda: in_session(parent.pid) == [])
    finally:
        for pid in in_session(parent.pid):
            os.kill(pid, signal.SIGKILL)


def runs_begun(folder: Path) -> int:
    return len(list(folder.glob("R/runs/*/config.json")))


def in_session(session: int) -> list[int]:
    """Return the running processes of a session."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            state, _, _, its = (folder / "stat").read_text().rpartition(")")[2].split()[:4]
        except OSError:
            continue
        if int(its) == session and state != "Z":
            found.append(int(folder.name))
    return found
