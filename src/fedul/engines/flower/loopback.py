"""A whole federation on this machine: a SuperLink and sites on loopback, with TLS and keys, for trials and tests.

Everything that is started here is ended here, by its process, also when something goes wrong.
"""

from __future__ import annotations

import json
import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from fedul.engines.flower.folder import new_folder
from fedul.engines.flower.keys import make_keys
from fedul.errors import WorldError
from fedul.files import write_bytes
from fedul.runs import PAGE, RunFolder

HOST = "127.0.0.1"
QUIET = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
}
"""Flower reports nothing to its makers, asks for no newer version and installs nothing."""
PORTS = range(20_000, 32_000)
ASK_SECONDS, LOOK_SECONDS = 20.0, 0.5
QUICK = {"FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.1"}
"""How often Flower looks for work, in seconds; on one machine nobody minds."""


class Loopback:
    """A federation in a folder: its app, keys, settings and logs, and the processes that were started for it."""

    def __init__(self, folder: Path, settings: Mapping[str, Any]) -> None:
        self.folder = folder
        self.app = folder / "app"
        new_folder(self.app, settings)
        make_keys(folder / "keys", hosts=[HOST])
        self.port = free_port()
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        connection = f'[superlink]\ndefault = "here"\n\n[superlink.here]\naddress = "{HOST}:{self.port}"\n'
        connection += f"root-certificates = {json.dumps(str(folder / 'keys' / 'ca.pem'))}\n"
        write_bytes(folder / "flwr" / "config.toml", connection.encode())

    def start_coordinator(self) -> None:
        """A SuperLink that takes registered sites only."""
        keys = self.folder / "keys"
        self._start(
            "superlink",
            *("flower-superlink", "--host", HOST, "--port", str(self.port), "--enable-supernode-auth"),
            *("--disable-runtime-dependency-installation", "--database", str(self.folder / "superlink.db")),
            *("--ssl-ca-certfile", str(keys / "ca.pem"), "--ssl-certfile", str(keys / "server.pem")),
            *("--ssl-keyfile", str(keys / "server.key")),
        )
        self._until(lambda: _answers(self.port), "the SuperLink does not answer", "superlink", 300)

    def register(self, site: str) -> None:
        """Makes a key for a site and lets it in."""
        make_keys(self.folder / "keys", sites=[site])
        self.flwr("supernode", "register", str(self.folder / "keys" / f"{site}.pub"))

    def start_site(self, site: str, settings: str, **environment: str) -> None:
        """A SuperNode with the settings of a site, a text in TOML; it needs a key, which need not be registered."""
        file = self.folder / site / "site.toml"
        if not file.exists():
            write_bytes(file, settings.encode())
        self._start(
            site,
            *("flower-supernode", "--superlink", f"{HOST}:{self.port}", "--host", HOST, "--port", str(free_port())),
            *("--root-certificates", str(self.folder / "keys" / "ca.pem")),
            *("--auth-supernode-private-key", str(self.folder / "keys" / f"{site}.key")),
            *("--node-config", f'config="{file}"'),
            **environment,
        )

    def run(self, settings: Mapping[str, Any]) -> int:
        """Starts a run; its number at Flower."""
        given = " ".join(f"{name.replace('_', '-')}={json.dumps(value)}" for name, value in settings.items())
        told = self.flwr("run", str(self.app), "--format", "json", *(("--run-config", given) if given else ()))
        found = json.loads(told[told.index("{") :])
        if not found["success"]:
            raise WorldError(f"Flower does not start the run: {found.get('error-message', '').strip()}")
        return int(found["run-id"])

    def status(self, run: int) -> str:
        """What Flower says of a run, such as 'running' or 'finished:completed'."""
        return str(self._told(run)["status"])

    def reason(self, run: int) -> str:
        """Why a run has failed: the coordinator's own sentence, as Flower keeps it."""
        told = str(self._told(run).get("status-details") or "").removeprefix("ServerApp failed with exception: ")
        return told or f"Flower does not say why; see {self.folder / 'logs'}."

    def _told(self, run: int) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.flwr("ls", "--run-id", str(run), "--format", "json"))["runs"][0]
        return found

    def until_ended(self, run: int, folder: RunFolder, meanwhile: Callable[[], object]) -> str:
        """What Flower says of a run when it has ended; something is done now and then meanwhile.

        To ask Flower takes a process that keeps a core busy for a second, so the run's folder is watched instead.
        """
        while True:
            end = time.monotonic() + ASK_SECONDS
            ended = False
            while time.monotonic() < end and not ended:
                meanwhile()
                time.sleep(LOOK_SECONDS)
                ended = (folder.path / PAGE).exists()
            if (status := self.status(run)).startswith("finished"):
                meanwhile()
                return status

    def flwr(self, *arguments: str) -> str:
        """The output of a command of Flower; a failure is an error."""
        command = [str(_program("flwr")), *arguments]
        done = subprocess.run(command, env=self._environment, capture_output=True, text=True, timeout=120)
        if done.returncode:
            raise WorldError(f"flwr {arguments[0]} failed: {(done.stderr or done.stdout).strip()[-400:]}")
        return done.stdout

    def log(self, name: str) -> str:
        """What a process has said so far."""
        return (self.folder / "logs" / f"{name}.log").read_text(encoding="utf-8", errors="replace")

    def kill(self, name: str) -> None:
        """Ends a process and all that it started, at once and without a word to them."""
        process = self.processes.pop(name)
        for number in _started_by(process.pid):
            with suppress(ProcessLookupError):
                os.kill(number, signal.SIGKILL)
        with suppress(ProcessLookupError):  # its group has also what it started after that, or has left behind
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    def close(self) -> None:
        """Ends everything: first kindly, then for good."""
        numbers = [number for process in self.processes.values() for number in _started_by(process.pid)]
        for process in self.processes.values():
            process.terminate()
        end = time.monotonic() + 5
        for process in self.processes.values():
            with suppress(subprocess.TimeoutExpired):
                process.wait(max(end - time.monotonic(), 0.01))
        for name in list(self.processes):
            self.kill(name)
        for number in numbers:  # whoever outlived the one that started it
            with suppress(ProcessLookupError):
                os.kill(number, signal.SIGKILL)

    def _start(self, name: str, program: str, *arguments: str, **environment: str) -> None:
        log = self.folder / "logs" / f"{name}.log"
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("ab") as output:
            self.processes[name] = subprocess.Popen(
                [str(_program(program)), *arguments],
                env={**self._environment, **environment},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # Ctrl-C is for whoever shows the progress, who then ends it properly
            )

    def _until(self, done: Any, problem: str, name: str, seconds: float) -> None:
        end = time.monotonic() + seconds
        while not done():
            if time.monotonic() > end or self.processes[name].poll() is not None:
                raise WorldError(f"{problem}; it said: {self.log(name).strip()[-400:]}")
            time.sleep(0.1)

    @property
    def _environment(self) -> dict[str, str]:
        home = {
            "FLWR_HOME": str(self.folder / "flwr"),
            "PATH": f"{_program('flwr').parent}:{os.environ.get('PATH', '')}",
        }
        return {**os.environ, **QUIET, **QUICK, **home}


@contextmanager
def loopback(folder: Path, settings: Mapping[str, Any]) -> Iterator[Loopback]:
    """A federation that is ended at the end of the block."""
    made = Loopback(folder, settings)
    try:
        yield made
    finally:
        with _undisturbed():
            made.close()


@contextmanager
def _undisturbed() -> Iterator[None]:
    """Nobody who is impatient with Ctrl-C can leave processes behind."""
    if threading.current_thread() is not threading.main_thread():  # others are not disturbed
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def free_port() -> int:
    """A port that nobody uses; it is not taken at once, so it is none that the system gives to whoever asks for any."""
    for port in random.sample(PORTS, 100):
        with suppress(OSError), socket.socket() as found:
            found.bind((HOST, port))
            return port
    raise WorldError("no port of this machine is free; end what uses them.")


def _answers(port: int) -> bool:
    with suppress(OSError), socket.create_connection((HOST, port), timeout=1):
        return True
    return False


def _started_by(number: int) -> list[int]:
    """The processes that a process has started, and those that they have; some are in sessions of their own."""
    children: dict[int, list[int]] = {}
    for child, parent in _parents():
        children.setdefault(parent, []).append(child)
    found, left = [], [number]
    while left:
        own = children.get(left.pop(), [])
        found += own
        left += own
    return found


def _parents() -> Iterator[tuple[int, int]]:
    """Every process, with the one that started it."""
    if not Path("/proc/self/stat").exists():
        listed = subprocess.run(["ps", "-A", "-o", "pid=,ppid="], capture_output=True, text=True, check=True).stdout
        for line in listed.splitlines():
            child, parent = map(int, line.split())
            yield child, parent
        return
    for process in Path("/proc").glob("[0-9]*"):  # small Linux systems have no ps
        with suppress(OSError):  # it has just ended
            yield int(process.name), int((process / "stat").read_text().rpartition(")")[2].split()[1])


def _program(name: str) -> Path:
    """A program that was installed beside this Python."""
    found = Path(sys.executable).parent / name
    if not found.exists():
        raise WorldError(f"{name} is not installed here; install fedul[flower].")
    return found
