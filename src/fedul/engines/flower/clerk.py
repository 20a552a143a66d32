"""The clerk of a site: a process that stays between messages, has PyTorch loaded, and answers each in a copy of itself.

Flower starts a process for every message. That process loads PyTorch no more; it connects to the clerk, over a socket
in the site's state folder that only the site's account can reach, and calls one if there is none. The clerk keeps
nothing between messages but its modules, ends with the SuperNode that it was called under, and after some idle time.
Where there can be no clerk the message is answered by the process that Flower started.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import select
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any, NoReturn

from fedul import __version__
from fedul.engines.flower.envelope import Envelope, apology
from fedul.engines.flower.site_file import named_in, private, read_site
from fedul.errors import FedulError
from fedul.files import Lock

IDLE_SECONDS = 600.0
LOOK_SECONDS = 2.0
"""How often a clerk looks whether its socket is still there."""
START_SECONDS = 60.0
CALLS = 3
"""How often a clerk is called before the message is answered without one."""
ENVIRONMENT = {"OMP_WAIT_POLICY": "passive"}
"""Threads that wait do not keep a core busy: a site's machine may have other work."""
AT_WORK = b"+"
LENGTHS = struct.Struct(">QQ")


def answer_of(kind: str, settings: str, asked: Envelope) -> Envelope:
    """The answer of the site that has this settings file: the clerk's, or this process's where there is no clerk."""
    if sys.platform != "linux":  # elsewhere a process with threads had better not be copied
        return _answered_here(kind, settings, asked)
    try:
        found = _asked_of_clerk(kind, settings, asked)
    except (OSError, FedulError, subprocess.SubprocessError) as problem:
        _log().warning("fedul: no process can stay here to answer messages (%s), so each takes longer.", problem)
        return _answered_here(kind, settings, asked)
    if found is None:
        _log().error("fedul: the process that answered a message was ended, perhaps for want of memory.")
        return apology("the process that answered was ended before it had done so", named_in(settings), again=True)
    return found


def _answered_here(kind: str, settings: str, asked: Envelope) -> Envelope:
    from fedul.engines.flower.answering import reply

    return reply(kind, settings, asked)


def _asked_of_clerk(kind: str, settings: str, asked: Envelope) -> Envelope | None:
    """The clerk's answer; None if whoever worked on it was ended. There may be no clerk, which is an OSError."""
    place = _place(read_site(settings)[0].state)
    for _ in range(CALLS):
        with _connected(place) as connection, suppress(ConnectionError):
            _send(connection, {"kind": kind, "settings": settings, "notes": asked.notes}, asked.tensors)
            if connection.recv(1) != AT_WORK:
                continue  # a clerk that was just leaving
            try:
                told, tensors = _receive(connection)
            except (EOFError, ConnectionError):
                return None
            for level, line in told["log"]:
                _log().log(level, "%s", line)
            return Envelope(told["notes"], tensors)
    raise OSError("none stayed")


def _place(state: str) -> Path:
    """The folder with the clerk's socket; another fedul or another Python has another clerk."""
    who = hashlib.sha256(f"{sys.executable}\n{__version__}\n{__file__}".encode()).hexdigest()[:8]
    return private(private(Path(state)) / f"clerk-{who}")


@contextmanager
def _connected(place: Path) -> Iterator[socket.socket]:
    """A connection to the clerk, who is called if nobody is there."""
    end = time.monotonic() + START_SECONDS
    with socket.socket(socket.AF_UNIX) as connection:
        while True:
            with _address(place) as address, suppress(FileNotFoundError, ConnectionRefusedError):
                connection.connect(address)
                break
            if time.monotonic() > end:
                raise OSError("none came")
            # Leaves its descendant behind when that listens. From Flower's process up, the next is what starts them.
            command = [sys.executable, "-P", "-m", __name__, str(place), str(os.getppid())]
            with (place / "log").open("wb") as log:
                subprocess.run(
                    command,
                    check=True,
                    timeout=START_SECONDS,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                    env={**ENVIRONMENT, **os.environ},
                )
            time.sleep(0.05)
        yield connection


@contextmanager
def _address(place: Path) -> Iterator[str]:
    """The socket's name. Names of sockets are short, and those of folders may be long."""
    folder = os.open(place, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{folder}/socket"
    finally:
        os.close(folder)


def serve(place: Path, boss: int) -> None:
    """Listens, then goes on in a process of its own until the boss ends, or nobody has come for long."""
    watch = os.pidfd_open(boss)
    with (lock := Lock(place)) as mine, socket.socket(socket.AF_UNIX) as door:
        if not mine:  # another is there already, or will be
            return
        (place / "socket").unlink(missing_ok=True)
        with _address(place) as address:
            door.bind(address)
        door.listen()
        if os.fork():
            os._exit(0)  # whoever called it may connect now, and waits while modules are loaded
        import fedul.engines.flower.answering  # noqa: F401

        signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody asks how a copy ended
        name, idle_since = (place / "socket").stat().st_ino, time.monotonic()
        while _is(place / "socket", name) and time.monotonic() - idle_since < IDLE_SECONDS:
            ready = select.select([door.fileno(), watch], [], [], LOOK_SECONDS)[0]
            if watch in ready:
                return
            if not ready:
                continue
            connection, _ = door.accept()
            idle_since = time.monotonic()
            if os.fork():
                connection.close()
                continue
            lock.__exit__()  # a copy that outlives the clerk must not keep the next one out
            door.close()
            _attend(connection)


def _is(socket_file: Path, number: int) -> bool:
    """Whether the file is still the one that has this number: a clerk that nobody can find is of no use."""
    try:
        return socket_file.stat().st_ino == number
    except OSError:
        return False


def _attend(connection: socket.socket) -> NoReturn:
    """Answers one message, in a process of its own, which ends with it or with whoever asked."""
    from fedul.engines.flower.answering import reply

    code = 1
    with suppress(EOFError, OSError):
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        connection.sendall(AT_WORK)
        asked, tensors = _receive(connection)
        threading.Thread(target=_end_with, args=(connection,), daemon=True).start()
        lines = _Lines()
        _log().addHandler(lines)
        answer = reply(asked["kind"], asked["settings"], Envelope(asked["notes"], tensors))
        _send(connection, {"notes": answer.notes, "log": lines.said}, answer.tensors)
        code = 0
    os._exit(code)


def _end_with(connection: socket.socket) -> None:
    """Whoever asked says nothing more: when there is something to read, it is that they are gone."""
    with suppress(OSError):
        connection.recv(1)
    os._exit(1)


class _Lines(logging.Handler):
    """What is said while a message is answered; the process that Flower started says it in the site's log."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.said: list[tuple[int, str]] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.said.append((record.levelno, self.format(record)))


def _send(connection: socket.socket, told: Mapping[str, Any], tensors: bytes) -> None:
    text = json.dumps(told).encode()
    connection.sendall(LENGTHS.pack(len(text), len(tensors)))
    connection.sendall(text)
    connection.sendall(tensors)


def _receive(connection: socket.socket) -> tuple[Any, bytes]:
    """What `_send` sent; an EOFError if the other side is gone before that."""
    with connection.makefile("rb") as stream:
        sizes = LENGTHS.unpack(_read(stream, LENGTHS.size))
        return json.loads(_read(stream, sizes[0])), _read(stream, sizes[1])


def _read(stream: IO[bytes], size: int) -> bytes:
    found = stream.read(size)
    if len(found) < size:
        raise EOFError
    return found


def _log() -> logging.Logger:
    return logging.getLogger("flwr")


if __name__ == "__main__":
    serve(Path(sys.argv[1]), int(sys.argv[2]))
