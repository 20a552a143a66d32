"""A folder is locked by one process at a time, and observers do not get in the way."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from fedul._utils.folder_lock import FolderLock, is_locked


def test_a_folder_is_locked_for_one_at_a_time_and_nothing_is_left_in_it(tmp_path: Path) -> None:
    folder = tmp_path / "deep" / "run"
    with FolderLock(folder) as mine:
        assert mine
        with FolderLock(folder) as theirs:
            assert not theirs
        with FolderLock(folder) as theirs:  # asking does not open it
            assert not theirs
    with FolderLock(folder) as mine:
        assert mine
    assert list(folder.iterdir()) == []


def test_a_lock_ends_with_the_process_that_holds_it(tmp_path: Path) -> None:
    code = "import sys, pathlib; from fedul._utils.folder_lock import FolderLock; "
    code += "assert FolderLock(pathlib.Path(sys.argv[1])).__enter__(); "
    code += "print('held', flush=True); sys.stdin.read()"
    command = [sys.executable, "-c", code, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        with FolderLock(tmp_path) as mine:
            assert not mine
        holder.kill()
    with FolderLock(tmp_path) as mine:
        assert mine


def test_where_no_folder_can_be_made_the_lock_leaves_the_complaint_to_the_first_write(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with FolderLock(tmp_path / "file" / "run") as mine:
        assert mine


def test_an_observer_sees_whether_a_folder_is_locked_and_locks_and_makes_nothing(tmp_path: Path) -> None:
    assert is_locked(tmp_path / "absent") is False
    assert is_locked(tmp_path) is False
    with FolderLock(tmp_path) as mine:
        assert mine
        assert is_locked(tmp_path) is True
    assert is_locked(tmp_path) is False
    assert list(tmp_path.iterdir()) == []
