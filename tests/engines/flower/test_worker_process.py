"""The worker process of a site: its replies, what it survives, and when it ends."""

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

from fedul.engines.flower.protocol.message import REQUEST_KINDS, WireMessage
from fedul.engines.flower.site.handlers import HANDLERS, reply_to

from ...waiting import wait_until
from .sabotage import sabotage
from .wire import digits_sites

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="there is a worker process on Linux only")

HELLO = {"run": "run", "resumption": 0, "classes": list("0123456789"), "secure": False}
# Sends a request for every input line, as the processes do that Flower starts; each has a parent process.
REQUESTING = """
import json, logging, sys
from fedul.engines.flower.site.worker_process import forward_to_worker
from fedul.engines.flower.protocol.message import WireMessage
logging.basicConfig(stream=sys.stderr, format="%(message)s")
for line in sys.stdin:
    settings, kind, document, size = json.loads(line)
    reply = forward_to_worker(kind, settings, WireMessage(json.dumps(document), bytes(size)))
    print(json.dumps([json.loads(reply.document), "torch" in sys.modules]), flush=True)
"""
PARENT = "import subprocess, sys; sys.exit(subprocess.run([sys.executable, '-c', sys.argv[1]]).returncode)"


class Requester:
    """A process that sends requests, started by a parent process as Flower does."""

    def __init__(self, **environment: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", PARENT, REQUESTING],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, **environment},
            start_new_session=True,
        )

    def send(self, settings: Path, kind: str = "hello", document: Any = HELLO, size: int = 0) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps([str(settings), kind, document, size]).encode() + b"\n")
        self.process.stdin.flush()

    def receive(self) -> Any:
        """Return the document of the reply; the process has not loaded PyTorch."""
        assert self.process.stdout is not None
        document, loaded = json.loads(self.process.stdout.readline())
        assert not loaded
        return document

    def end(self) -> str:
        """End both processes and return their output."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        return self.process.communicate()[1].decode()


@pytest.fixture
def settings(tmp_path: Path) -> Path:
    return digits_sites(tmp_path / ("a" * 120), 2)[1]  # longer than the name of a socket may be


@pytest.fixture
def requester() -> Iterator[Requester]:
    made = Requester()
    yield made
    made.end()


@pytest.fixture
def sabotaged(tmp_path: Path) -> Iterator[Callable[[str], Requester]]:
    made: list[Requester] = []

    def make(body: str) -> Requester:
        mark = '(Path(data.config.state) / "evaluating").touch()\n'
        made.append(Requester(PYTHONPATH=sabotage(tmp_path, "evaluate_locally", mark + body)))
        return made[-1]

    yield make
    for each in made:
        each.end()


def workers(settings: Path) -> list[int]:
    """Process ids of the worker process of a site and its forks, as the kernel lists them."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            words = (process / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if b"fedul.engines.flower.site.worker_process" in words and any(
            str(settings.parent).encode() in word for word in words
        ):
            found.append(int(process.name))
    return found


def test_every_kind_of_request_has_a_handler() -> None:
    assert tuple(HANDLERS) == REQUEST_KINDS


def test_the_worker_process_replies_as_this_process_does(requester: Requester, settings: Path) -> None:
    for _ in range(2):
        requester.send(settings)
        assert requester.receive() == json.loads(
            reply_to("hello", str(settings), WireMessage(json.dumps(HELLO))).document
        )
    wait_until(lambda: len(workers(settings)) == 1)  # the forks have ended


def test_the_process_that_flower_starts_loads_no_pytorch() -> None:
    program = "import sys, fedul.engines.flower.site.client_app; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


def test_the_worker_process_ends_with_its_parent(requester: Requester, settings: Path) -> None:
    requester.send(settings)
    requester.receive()
    assert workers(settings)
    requester.end()
    wait_until(lambda: not workers(settings))


def test_a_worker_process_that_was_killed_is_replaced(requester: Requester, settings: Path) -> None:
    for _ in range(2):
        requester.send(settings)
        assert requester.receive()["name"] == "client-1"
        for number in workers(settings):
            with suppress(ProcessLookupError):
                os.kill(number, signal.SIGKILL)


@pytest.mark.parametrize("gone", ["socket", "."])
def test_a_worker_process_without_its_socket_ends_and_is_replaced(
    requester: Requester, settings: Path, gone: str
) -> None:
    requester.send(settings)
    requester.receive()
    wait_until(lambda: len(workers(settings)) == 1)  # the fork has ended
    (before,) = workers(settings)
    (place,) = (settings.parent / "state").glob("worker-*")
    (place / "socket").unlink()
    if gone == ".":
        shutil.rmtree(settings.parent / "state")
    requester.send(settings)
    assert requester.receive()["name"] == "client-1"
    wait_until(lambda: before not in workers(settings) and len(workers(settings)) == 1)


def test_only_the_account_of_the_site_can_reach_the_worker_process(requester: Requester, settings: Path) -> None:
    requester.send(settings)
    requester.receive()
    folders = [settings.parent / "state", *(settings.parent / "state").glob("worker-*")]
    assert [folder.stat().st_mode & 0o777 for folder in folders] == [0o700, 0o700]


def test_a_request_whose_process_is_killed_gets_an_error_reply(
    sabotaged: Callable[[str], Requester], settings: Path
) -> None:
    requester = sabotaged("os.kill(os.getpid(), signal.SIGKILL)")
    requester.send(settings, "evaluate_locally")
    assert requester.receive() == {
        "error": "the process that handled the request was killed",
        "site": "client-1",
        "retry": True,
    }
    requester.send(settings)
    assert requester.receive()["name"] == "client-1"
    assert "perhaps for lack of memory" in requester.end()


def test_work_stops_when_the_requesting_process_is_gone(sabotaged: Callable[[str], Requester], settings: Path) -> None:
    requester = sabotaged("time.sleep(600)")
    requester.send(settings, "evaluate_locally")
    wait_until((settings.parent / "state" / "evaluating").exists)
    assert len(workers(settings)) == 2
    requester.end()
    wait_until(lambda: not workers(settings))


def test_errors_are_written_to_the_log_of_the_site(requester: Requester, settings: Path) -> None:
    settings.write_text(settings.read_text().replace('"digits"', '"nowhere.csv"'))
    requester.send(settings)
    assert requester.receive() == {
        "error": "its settings or its data have an error; see its log",
        "site": "client-1",
        "retry": False,
    }
    assert "nowhere.csv" in requester.end()


@pytest.mark.parametrize("change", [("state", "stat"), ("[data]", "")])
def test_a_site_with_wrong_settings_is_named_in_the_error(settings: Path, change: tuple[str, str]) -> None:
    settings.write_text(settings.read_text().replace(*change))
    document = json.loads(reply_to("hello", str(settings), WireMessage(json.dumps(HELLO))).document)
    assert "have an error; see its log" in document["error"]
    assert document["site"] == "client-1"


def test_a_message_that_is_too_large_is_not_read(settings: Path) -> None:
    settings.write_text("max-message-mb = 1\n" + settings.read_text())
    document = json.loads(reply_to("train", str(settings), WireMessage("{}", bytes(2**20 + 1))).document)
    assert document["error"] == "a message of 1,048,577 bytes is more than its max-message-mb (1,048,576)"
