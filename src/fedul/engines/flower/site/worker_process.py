"""Worker process of a site: it stays between messages with PyTorch loaded, and replies to each in a fork of itself.

For every message there is a process that forwards it: a fork of the launcher, or a process that Flower starts. It does
not load PyTorch; it connects to the worker process over a socket in the site's state folder, which only the site's
account can reach, and starts a worker process if there is none. The worker process keeps nothing between messages but
its modules. It ends with the launcher or the SuperNode under which it was started, or after an idle timeout. Where
there can be no worker process, the process that forwards replies itself.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from multiprocessing.connection import Client, Connection
from pathlib import Path
from typing import Any, NoReturn

from fedul import __version__
from fedul._utils.folder_lock import FolderLock
from fedul.engines.flower.protocol.message import ErrorReply, WireMessage
from fedul.engines.flower.site.site_file import private_folder, read_site_file, site_name_in
from fedul.errors import FedulError

IDLE_SECONDS = 600.0
POLL_SECONDS = 2.0
"""Interval at which the worker process checks that its socket still exists."""
START_SECONDS = 60.0
ATTEMPTS = 3
"""Connections to a worker process before a message is handled without one."""
ENVIRONMENT = {"OMP_WAIT_POLICY": "passive"}
"""Waiting threads do not keep a core busy: a site's machine may have other work."""
STARTED = b"+"


def forward_to_worker(kind: str, settings: str, request: WireMessage) -> WireMessage:
    """Return the reply of the site with this settings file: from its worker process, or else from this process."""
    if sys.platform != "linux":  # elsewhere a process with threads cannot be forked safely
        return _reply_here(kind, settings, request)
    try:
        reply = _request_reply(kind, settings, request)
    except (OSError, FedulError, subprocess.SubprocessError) as problem:
        _log().warning("fedul: there is no worker process (%s), so each message takes longer.", problem)
        return _reply_here(kind, settings, request)
    if reply is None:
        _log().error("fedul: the process that handled a message was killed, perhaps for lack of memory.")
        return ErrorReply("the process that handled the request was killed", site_name_in(settings), True).serialize()
    return reply


def _reply_here(kind: str, settings: str, request: WireMessage) -> WireMessage:
    from fedul.engines.flower.site.handlers import reply_to

    return reply_to(kind, settings, request)


def _request_reply(kind: str, settings: str, request: WireMessage) -> WireMessage | None:
    """Return the reply of the worker process; None if its fork was killed. OSError if there is no worker process."""
    folder = _worker_folder(read_site_file(settings)[0].state)
    for _ in range(ATTEMPTS):
        with _connect(folder) as connection, suppress(ConnectionError):
            _send(connection, {"kind": kind, "settings": settings, "document": request.document}, request.tensors)
            try:
                connection.recv_bytes()  # the worker process has forked
            except EOFError:
                continue  # it was about to end
            try:
                header, tensors = _receive(connection)
            except (EOFError, ConnectionError):
                return None
            for level, line in header["log"]:
                _log().log(level, "%s", line)
            return WireMessage(header["document"], tensors)
    raise OSError("it ended again and again")


def _worker_folder(state: str) -> Path:
    """Return the folder of the socket; another fedul or another Python has another worker process."""
    identity = hashlib.sha256(f"{sys.executable}\n{__version__}\n{__file__}".encode()).hexdigest()[:8]
    return private_folder(private_folder(Path(state)) / f"worker-{identity}")


def _connect(folder: Path) -> Connection:
    """Connect to the worker process, and start it if it does not listen."""
    end = time.monotonic() + START_SECONDS
    while True:
        with _socket_address(folder) as address, suppress(FileNotFoundError, ConnectionRefusedError):
            return Client(address, "AF_UNIX")
        if time.monotonic() > end:
            raise OSError("it does not start")
        # The command returns when its fork listens. The parent of this process is the launcher, or Flower's launcher.
        command = [sys.executable, "-P", "-m", __name__, str(folder), str(os.getppid())]
        with (folder / "log").open("wb") as log:
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


@contextmanager
def _socket_address(folder: Path) -> Iterator[str]:
    """Yield the address of the socket through a file descriptor: addresses are limited to about 100 characters."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{descriptor}/socket"
    finally:
        os.close(descriptor)


def serve(folder: Path, parent: int) -> None:
    """Listen, then serve in a fork until the parent exits or the idle timeout expires."""
    parent_descriptor = os.pidfd_open(parent)
    with (lock := FolderLock(folder)) as acquired, socket.socket(socket.AF_UNIX) as listener:
        if not acquired:  # another worker process is starting or running
            return
        (folder / "socket").unlink(missing_ok=True)
        with _socket_address(folder) as address:
            listener.bind(address)
        listener.listen()
        if os.fork():
            os._exit(0)  # clients may connect now, and wait while modules are loaded
        import fedul.engines.flower.site.handlers  # noqa: F401

        signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # forks are not waited for
        inode, idle_since = (folder / "socket").stat().st_ino, time.monotonic()
        while _has_inode(folder / "socket", inode) and time.monotonic() - idle_since < IDLE_SECONDS:
            ready = select.select([listener.fileno(), parent_descriptor], [], [], POLL_SECONDS)[0]
            if parent_descriptor in ready:
                return
            if not ready:
                continue
            accepted, _ = listener.accept()
            idle_since = time.monotonic()
            with Connection(accepted.detach()) as connection:
                if os.fork():
                    continue
                lock.__exit__()  # a fork that outlives the worker process must not block the next one
                listener.close()
                _serve_connection(connection)


def _has_inode(file: Path, inode: int) -> bool:
    """Return whether the socket is still the one that was bound: without it nothing can connect."""
    try:
        return file.stat().st_ino == inode
    except OSError:
        return False


def _serve_connection(connection: Connection) -> NoReturn:
    """Reply to one message in this fork, which ends with the reply or with the process that asked."""
    from fedul.engines.flower.site.handlers import reply_to

    code = 1
    with suppress(EOFError, OSError):
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        connection.send_bytes(STARTED)
        header, tensors = _receive(connection)
        threading.Thread(target=_exit_with_client, args=(connection,), daemon=True).start()
        log = _LogLines()
        _log().addHandler(log)
        _log().setLevel(logging.INFO)  # Flower, which would set it, is not loaded here
        reply = reply_to(header["kind"], header["settings"], WireMessage(header["document"], tensors))
        _send(connection, {"document": reply.document, "log": log.lines}, reply.tensors)
        code = 0
    os._exit(code)


def _exit_with_client(connection: Connection) -> None:
    """End this process when the client closes the connection; it sends nothing else."""
    with suppress(OSError):
        connection.poll(None)
    os._exit(1)


class _LogLines(logging.Handler):
    """Collects log lines of a fork; the process that Flower started writes them to the site's log."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.lines: list[tuple[int, str]] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append((record.levelno, self.format(record)))


def _send(connection: Connection, header: dict[str, Any], tensors: bytes) -> None:
    connection.send_bytes(json.dumps(header).encode())
    connection.send_bytes(tensors)


def _receive(connection: Connection) -> tuple[Any, bytes]:
    """Return what `_send` sent; EOFError if the other side is gone."""
    return json.loads(connection.recv_bytes()), connection.recv_bytes()


def _log() -> logging.Logger:
    return logging.getLogger("flwr")


if __name__ == "__main__":
    serve(Path(sys.argv[1]), int(sys.argv[2]))
