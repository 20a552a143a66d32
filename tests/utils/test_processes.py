"""No process is lost: not when a signal arrives while it is started, and not when its parent is killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from fedul._utils.processes import ENDING_SIGNALS, DeferredSignals, bound

LIMIT = 300.0
"""Seconds after which a process that does not end is taken for lost."""

# A parent whose process gets a signal after the fork of its child and before the child is recorded. The signal goes to
# another thread than the main one; the byte in the pipe says that it has arrived, so that its handler runs next.
INTERRUPTED = """
import os, signal, subprocess, sys, threading
from fedul._utils.processes import DeferredSignals

number, arrived, recorded, released = int(sys.argv[1]), os.pipe(), [], threading.Event()
for end in arrived:
    os.set_blocking(end, False)
signal.set_wakeup_fd(arrived[1])
signal.signal(number, signal.default_int_handler)
other = threading.Thread(target=released.wait)
other.start()

class Interrupted(subprocess.Popen):
    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        signal.pthread_kill(other.ident, number)
        os.set_blocking(arrived[0], True)
        os.read(arrived[0], 1)

try:
    with DeferredSignals():
        recorded.append(Interrupted([sys.executable, "-c", "input()"], stdin=subprocess.PIPE))
    print("not interrupted")
except KeyboardInterrupt:
    print(f"interrupted, {len(recorded)} recorded")
for each in recorded:
    each.kill()
    each.wait()
released.set()
"""

# A parent with a child that would stay for ever; the child says its number when it is what it was started as.
PARENT = """
import subprocess, sys
from fedul._utils.processes import bound
child = "import os, signal; print(os.getpid(), flush=True); signal.pause()"
subprocess.Popen(bound([sys.executable, "-c", child])).wait()
"""


@contextmanager
def handled(number: int, handler: object) -> Iterator[None]:
    """The signal has this handler in the block."""
    before = signal.signal(number, handler)  # type: ignore[arg-type]
    try:
        yield
    finally:
        signal.signal(number, before)


@pytest.mark.parametrize("number", ENDING_SIGNALS)
def test_a_signal_between_the_start_of_a_process_and_its_note_waits(number: signal.Signals) -> None:
    parent = [sys.executable, "-c", INTERRUPTED, str(int(number))]
    done = subprocess.run(parent, capture_output=True, text=True, timeout=LIMIT, check=False)
    assert (done.stdout, done.returncode) == ("interrupted, 1 recorded\n", 0), done.stderr


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel of Linux alone ends children with their parent")
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_a_parent_that_is_killed_takes_its_children_along(how: signal.Signals) -> None:
    with subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        parent.send_signal(how)
        lost = threading.Timer(LIMIT, os.kill, (child, signal.SIGKILL))
        lost.start()
        assert parent.stdout.read() == ""  # the pipe's end: neither of the two has it open any more
        was_killed_with_parent = lost.is_alive()
        lost.cancel()
    assert was_killed_with_parent
    assert parent.returncode == -how


@pytest.mark.skipif(sys.platform != "linux", reason="the launcher is for Linux alone")
def test_a_process_whose_parent_has_ended_already_does_not_begin() -> None:
    launcher = bound([sys.executable, "-c", "print('begun')"])
    launcher[launcher.index(str(os.getpid()))] = str(os.getppid())
    done = subprocess.run(launcher, capture_output=True, text=True, timeout=LIMIT, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (1, "", "")


@pytest.mark.skipif(not os.path.exists("/proc/self/status"), reason="reads signals from /proc")
def test_a_bound_process_has_the_signals_and_the_number_of_one_that_is_not() -> None:
    command = ["grep", "-E", "^(Pid|Sig(Blk|Ign|Cgt))", "/proc/self/status"]

    def seen(words: list[str]) -> tuple[int, list[str]]:
        with DeferredSignals(), subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
            out = process.communicate(timeout=LIMIT)[0].splitlines()
        assert out[0].split() == ["Pid:", str(process.pid)]
        return process.returncode, out[1:]

    assert seen(bound(command)) == seen(command)


def test_in_another_thread_a_command_is_not_bound_to_the_thread() -> None:
    found: list[list[str]] = []
    thread = threading.Thread(target=lambda: found.append(bound(["sleep", "1"])))
    thread.start()
    thread.join()
    assert found == [["sleep", "1"]]


def test_in_another_thread_nothing_is_deferred_and_nothing_fails() -> None:
    found: list[object] = []

    def look() -> None:
        with DeferredSignals():
            found.append(signal.getsignal(signal.SIGINT))

    before = signal.getsignal(signal.SIGINT)
    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    assert found == [before]


def test_handlers_are_put_back_and_the_first_signal_alone_takes_effect() -> None:
    seen: list[int] = []
    with handled(signal.SIGINT, lambda number, _: seen.append(number)), handled(signal.SIGTERM, signal.SIG_IGN):
        handlers = [signal.getsignal(number) for number in ENDING_SIGNALS]
        with DeferredSignals():
            assert signal.getsignal(signal.SIGTERM) is signal.SIG_IGN  # what is ignored stays so, as with nohup
            for _ in range(3):
                signal.raise_signal(signal.SIGINT)
            assert seen == []
        assert seen == [signal.SIGINT]
        assert [signal.getsignal(number) for number in ENDING_SIGNALS] == handlers


def test_a_block_in_a_block_defers_to_the_end_of_the_outer_one() -> None:
    seen: list[int] = []
    with handled(signal.SIGINT, lambda number, _: seen.append(number)):
        with DeferredSignals():
            with DeferredSignals():
                signal.raise_signal(signal.SIGINT)
            assert seen == []
        assert seen == [signal.SIGINT]
