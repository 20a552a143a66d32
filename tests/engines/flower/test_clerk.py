"""The process that stays at a site: what it answers, what it outlives, and when it ends."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from fedul.engines.flower.answering import reply
from fedul.engines.flower.envelope import QUESTIONS, Envelope
from fedul.engines.flower.site import ANSWERS

from ...waiting import until
from .sabotage import sabotage
from .wire import digits_sites

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="there is a clerk on Linux only")

HELLO = {"classes": list("0123456789")}
# Asks for every line that it is given, as a process would that Flower starts; there is a process above each of them.
ASKING = """
import json, logging, sys
from fedul.engines.flower.clerk import answer_of
from fedul.engines.flower.envelope import Envelope
logging.basicConfig(stream=sys.stderr, format="%(message)s")
for line in sys.stdin:
    settings, kind, notes, size = json.loads(line)
    answer = answer_of(kind, settings, Envelope(json.dumps(notes), bytes(size)))
    print(json.dumps([json.loads(answer.notes), "torch" in sys.modules]), flush=True)
"""
ABOVE = "import subprocess, sys; sys.exit(subprocess.run([sys.executable, '-c', sys.argv[1]]).returncode)"


class Asker:
    """A process that asks, below one that starts it as Flower does."""

    def __init__(self, **environment: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", ABOVE, ASKING],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, **environment},
            start_new_session=True,
        )

    def ask(self, settings: Path, kind: str = "hello", notes: Any = HELLO, size: int = 0) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps([str(settings), kind, notes, size]).encode() + b"\n")
        self.process.stdin.flush()

    def heard(self) -> Any:
        """The notes of the answer, from a process that has not loaded PyTorch."""
        assert self.process.stdout is not None
        notes, loaded = json.loads(self.process.stdout.readline())
        assert not loaded
        return notes

    def end(self) -> str:
        """Ends both processes; what they said."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        return self.process.communicate()[1].decode()


@pytest.fixture
def settings(tmp_path: Path) -> Path:
    return digits_sites(tmp_path / ("a" * 120), 2)[1]  # longer than the name of a socket may be


@pytest.fixture
def asker() -> Iterator[Asker]:
    made = Asker()
    yield made
    made.end()


@pytest.fixture
def spoiled(tmp_path: Path) -> Iterator[Callable[[str], Asker]]:
    made: list[Asker] = []

    def make(body: str) -> Asker:
        noted = '(Path(own.config.state) / "evaluating").touch()\n'
        made.append(Asker(PYTHONPATH=sabotage(tmp_path, "evaluate", noted + body)))
        return made[-1]

    yield make
    for each in made:
        each.end()


def clerks(settings: Path) -> list[int]:
    """The clerk of a site and its copies, as the kernel lists them."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            words = (process / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if b"fedul.engines.flower.clerk" in words and any(str(settings.parent).encode() in word for word in words):
            found.append(int(process.name))
    return found


def test_every_question_has_an_answer() -> None:
    assert tuple(ANSWERS) == QUESTIONS


def test_the_clerk_answers_what_this_process_would(asker: Asker, settings: Path) -> None:
    for _ in range(2):
        asker.ask(settings)
        assert asker.heard() == json.loads(reply("hello", str(settings), Envelope(json.dumps(HELLO))).notes)
    until(lambda: len(clerks(settings)) == 1)  # the copies that answered have gone


def test_the_process_that_flower_starts_loads_no_pytorch() -> None:
    program = "import sys, fedul.engines.flower.client_app; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


def test_the_clerk_ends_when_the_process_does_that_it_was_called_under(asker: Asker, settings: Path) -> None:
    asker.ask(settings)
    asker.heard()
    assert clerks(settings)
    asker.end()
    until(lambda: not clerks(settings))


def test_a_clerk_that_was_killed_is_replaced(asker: Asker, settings: Path) -> None:
    for _ in range(2):
        asker.ask(settings)
        assert asker.heard()["name"] == "client-1"
        for number in clerks(settings):
            with suppress(ProcessLookupError):
                os.kill(number, signal.SIGKILL)


@pytest.mark.parametrize("gone", ["socket", "."])
def test_a_clerk_that_cannot_be_found_ends_and_is_replaced(asker: Asker, settings: Path, gone: str) -> None:
    asker.ask(settings)
    asker.heard()
    until(lambda: len(clerks(settings)) == 1)  # the copy that answered has gone
    (before,) = clerks(settings)
    (place,) = (settings.parent / "state").glob("clerk-*")
    (place / "socket").unlink()
    if gone == ".":
        shutil.rmtree(settings.parent / "state")
    asker.ask(settings)
    assert asker.heard()["name"] == "client-1"
    until(lambda: before not in clerks(settings) and len(clerks(settings)) == 1)


def test_only_the_account_of_the_site_can_reach_its_clerk(asker: Asker, settings: Path) -> None:
    asker.ask(settings)
    asker.heard()
    folders = [settings.parent / "state", *(settings.parent / "state").glob("clerk-*")]
    assert [folder.stat().st_mode & 0o777 for folder in folders] == [0o700, 0o700]


def test_whoever_asked_hears_that_the_process_was_ended(spoiled: Callable[[str], Asker], settings: Path) -> None:
    asker = spoiled("os.kill(os.getpid(), signal.SIGKILL)")
    asker.ask(settings, "evaluate")
    assert asker.heard() == {
        "problem": "the process that answered was ended before it had done so",
        "name": "client-1",
        "again": True,
    }
    asker.ask(settings)
    assert asker.heard()["name"] == "client-1"
    assert "perhaps for want of memory" in asker.end()


def test_work_for_somebody_who_is_gone_is_stopped(spoiled: Callable[[str], Asker], settings: Path) -> None:
    asker = spoiled("time.sleep(600)")
    asker.ask(settings, "evaluate")
    until((settings.parent / "state" / "evaluating").exists)
    assert len(clerks(settings)) == 2
    asker.end()
    until(lambda: not clerks(settings))


def test_problems_are_told_to_the_log_of_the_site(asker: Asker, settings: Path) -> None:
    settings.write_text(settings.read_text().replace('"digits"', '"nowhere.csv"'))
    asker.ask(settings)
    assert asker.heard() == {
        "problem": "its settings or its data have a fault, which its own log tells",
        "name": "client-1",
        "again": False,
    }
    assert "nowhere.csv" in asker.end()


@pytest.mark.parametrize("change", [("state", "stat"), ("[data]", "")])
def test_a_site_with_a_fault_in_its_settings_is_known_by_its_name(settings: Path, change: tuple[str, str]) -> None:
    settings.write_text(settings.read_text().replace(*change))
    notes = json.loads(reply("hello", str(settings), Envelope(json.dumps(HELLO))).notes)
    assert "a fault, which its own log tells" in notes["problem"]
    assert notes["name"] == "client-1"


def test_a_message_that_is_too_large_is_not_read(settings: Path) -> None:
    settings.write_text("max-message-mb = 1\n" + settings.read_text())
    notes = json.loads(reply("train", str(settings), Envelope("{}", bytes(2**20 + 1))).notes)
    assert notes["problem"] == "a message of 1,048,577 bytes is more than its max-message-mb allows (1,048,576)"
