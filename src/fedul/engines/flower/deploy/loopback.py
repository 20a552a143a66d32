"""A federation on this machine: a SuperLink and sites on loopback, with TLS and keys, for demonstrations and tests.

Every process that is started here is ended here, also after an error. On Linux it also ends when this process ends.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from fedul._utils.files import write_bytes
from fedul._utils.processes import DeferredSignals, bound
from fedul.engines.flower.deploy.app_folder import write_app_folder
from fedul.engines.flower.deploy.keys import make_keys
from fedul.engines.flower.identity.roster import Roster
from fedul.engines.flower.processes import HOST, QUIET, flower_program, free_port, is_listening
from fedul.errors import EnvironmentFailure
from fedul.training import RunFolder
from fedul.training.run_files import REPORT

STATUS_SECONDS, POLL_SECONDS = 20.0, 0.5
STALLED_SECONDS = 900.0
"""Time without a change of the run folder after which a run is given up: Flower may lose a run without ending it."""
POLLING = {"FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.1"}
"""Seconds between two polls for work; on one machine this is cheap."""
COLOURED = ("FORCE_COLOR", "CLICOLOR_FORCE")
"""Variables, set in notebooks and at CI services, with which Flower's commands put colours into their JSON."""


class Loopback:
    """A federation in a folder: app, keys, settings, logs, and the processes that were started.

    Parameters
    ----------
    folder : Path
        Where to write everything.
    settings : mapping of str to object
        Settings of the run, as in the app's `pyproject.toml`.
    """

    def __init__(self, folder: Path, settings: Mapping[str, Any]) -> None:
        self.folder = folder
        self.app = folder / "app"
        write_app_folder(self.app, settings)
        make_keys(folder / "keys", hosts=[HOST])
        self.port = free_port()
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        connection = f'[superlink]\ndefault = "here"\n\n[superlink.here]\naddress = "{HOST}:{self.port}"\n'
        connection += f"root-certificates = {json.dumps(str(folder / 'keys' / 'ca.pem'))}\n"
        write_bytes(folder / "flwr" / "config.toml", connection.encode())

    def start_coordinator(self) -> None:
        """Start a SuperLink that accepts registered sites only."""
        keys = self.folder / "keys"
        self._start(
            "superlink",
            *(
                str(flower_program("flower-superlink")),
                "--host",
                HOST,
                "--port",
                str(self.port),
                "--enable-supernode-auth",
            ),
            *("--disable-runtime-dependency-installation", "--database", str(self.folder / "superlink.db")),
            *("--ssl-ca-certfile", str(keys / "ca.pem"), "--ssl-certfile", str(keys / "server.pem")),
            *("--ssl-keyfile", str(keys / "server.key")),
        )
        self._until(lambda: is_listening(self.port), "the SuperLink does not respond", "superlink", 300)

    def register(self, site: str) -> None:
        """Make a key for a site and register it."""
        make_keys(self.folder / "keys", sites=[site])
        self.flwr("supernode", "register", str(self.folder / "keys" / f"{site}.pub"))

    def write_roster(self) -> None:
        """Write the roster of the sites that are registered; sites that are started from now on hold it."""
        keys = self.folder / "keys"
        Roster.of_files(sorted(keys.glob("*.pub"))).write(self.roster)

    @property
    def roster(self) -> Path:
        """File of the roster."""
        return self.folder / "roster.toml"

    def start_site(self, site: str, settings: str, **environment: str) -> None:
        """Start a site with these settings (TOML); its key must exist but need not be registered."""
        file, keys = self.folder / site / "site.toml", self.folder / "keys"
        if not file.exists():
            own = {
                "superlink": f"{HOST}:{self.port}",
                "root-certificates": str(keys / "ca.pem"),
                "key": str(keys / f"{site}.key"),
                **({"roster": str(self.roster)} if self.roster.exists() else {}),
            }
            lines = [f"{name} = {json.dumps(value)}\n" for name, value in own.items()]
            write_bytes(file, "".join([*lines, settings]).encode())
        # "-P": no module beside the settings takes the place of an installed one.
        self._start(site, sys.executable, "-P", "-m", "fedul", "federation", "site", str(file), **environment)

    def run(self, settings: Mapping[str, Any]) -> int:
        """Start a run and return its number at Flower."""
        changed = " ".join(f"{name.replace('_', '-')}={json.dumps(value)}" for name, value in settings.items())
        output = self.flwr("run", str(self.app), "--format", "json", *(("--run-config", changed) if changed else ()))
        status = json.loads(output[output.index("{") :])
        if not status["success"]:
            raise EnvironmentFailure(f"Flower does not start the run: {status.get('error-message', '').strip()}")
        return int(status["run-id"])

    def status(self, run: int) -> str:
        """Return Flower's status of a run, such as 'running' or 'finished:completed'."""
        return str(self._status(run)["status"])

    def reason(self, run: int) -> str:
        """Return why a run failed, in the words of the coordinator."""
        text = str(self._status(run).get("status-details") or "").removeprefix("ServerApp failed with exception: ")
        return text or f"Flower gives no reason; see {self.folder / 'logs'}."

    def _status(self, run: int) -> Any:
        return json.loads(self.flwr("ls", "--run-id", str(run), "--format", "json"))["runs"][0]

    def until_ended(self, run: int, folder: RunFolder, meanwhile: Callable[[], object]) -> str:
        """Wait for the end of a run and return its status; `meanwhile` is called twice per second.

        A status query is a process that keeps a core busy for a second, so mostly the run folder is polled.

        Raises
        ------
        EnvironmentFailure
            If the run folder has not changed for `STALLED_SECONDS`.
        """
        changed, seen = time.monotonic(), _newest_change(folder.path)
        while True:
            end = time.monotonic() + STATUS_SECONDS
            ended = False
            while time.monotonic() < end and not ended:
                meanwhile()
                time.sleep(POLL_SECONDS)
                ended = (folder.path / REPORT).exists()
            if (status := self.status(run)).startswith("finished"):
                meanwhile()
                return status
            if (newest := _newest_change(folder.path)) != seen:
                changed, seen = time.monotonic(), newest
            elif time.monotonic() - changed > STALLED_SECONDS:
                raise EnvironmentFailure(
                    f"the run has not progressed for {STALLED_SECONDS / 60:g} minutes; "
                    f"the logs in {self.folder / 'logs'} may say why, and the same command starts it again."
                )

    def flwr(self, *arguments: str) -> str:
        """Return the output of a Flower command; EnvironmentFailure if it fails."""
        command = bound([str(flower_program("flwr")), *arguments])
        done = subprocess.run(command, env=self._environment, capture_output=True, text=True, timeout=120)
        if done.returncode:
            raise EnvironmentFailure(f"flwr {arguments[0]} failed: {(done.stderr or done.stdout).strip()[-400:]}")
        return done.stdout

    def log(self, name: str) -> str:
        """Return the log of a process."""
        return (self.folder / "logs" / f"{name}.log").read_text(encoding="utf-8", errors="replace")

    def kill(self, name: str) -> None:
        """Kill a process and its descendants."""
        process = self.processes[name]
        for number in _descendants(process.pid):
            with suppress(ProcessLookupError):
                os.kill(number, signal.SIGKILL)
        with suppress(ProcessLookupError):  # the group includes processes that were started since
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        del self.processes[name]  # last, so that an interrupted kill can be repeated

    def close(self) -> None:
        """End all processes: terminate them, then kill what is left."""
        numbers = [number for process in self.processes.values() for number in _descendants(process.pid)]
        for process in self.processes.values():
            process.terminate()
        end = time.monotonic() + 5
        for process in self.processes.values():
            with suppress(subprocess.TimeoutExpired):
                process.wait(max(end - time.monotonic(), 0.01))
        for name in list(self.processes):
            self.kill(name)
        for number in numbers:  # descendants that outlived their parent
            with suppress(ProcessLookupError):
                os.kill(number, signal.SIGKILL)

    def _start(self, name: str, program: str, *arguments: str, **environment: str) -> None:
        log = self.folder / "logs" / f"{name}.log"
        log.parent.mkdir(parents=True, exist_ok=True)
        command = bound([program, *arguments])
        with log.open("ab") as output, DeferredSignals():
            self.processes[name] = subprocess.Popen(
                command,
                env={**self._environment, **environment},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # Ctrl-C reaches this process only, which then ends the others
            )

    def _until(self, done: Any, problem: str, name: str, seconds: float) -> None:
        end = time.monotonic() + seconds
        while not done():
            if time.monotonic() > end or self.processes[name].poll() is not None:
                raise EnvironmentFailure(f"{problem}; its log ends with: {self.log(name).strip()[-400:]}")
            time.sleep(0.1)

    @property
    def _environment(self) -> dict[str, str]:
        home = {
            "FLWR_HOME": str(self.folder / "flwr"),
            "PATH": f"{flower_program('flwr').parent}:{os.environ.get('PATH', '')}",
        }
        inherited = {name: value for name, value in os.environ.items() if name not in COLOURED}
        return {**inherited, **QUIET, **POLLING, **home}


@contextmanager
def loopback(folder: Path, settings: Mapping[str, Any]) -> Iterator[Loopback]:
    """Context with a federation that is ended at its end."""
    federation = Loopback(folder, settings)
    try:
        yield federation
    finally:
        with DeferredSignals():  # a second Ctrl-C must not leave processes behind
            federation.close()


def _newest_change(folder: Path) -> float:
    """Return when a file of a folder was last changed; 0 if there is none."""
    times = [0.0]
    for file in folder.rglob("*"):
        with suppress(OSError):  # replaced meanwhile
            times.append(file.stat().st_mtime)
    return max(times)


def _descendants(number: int) -> list[int]:
    """Return the descendants of a process; some are in other sessions."""
    children: dict[int, list[int]] = {}
    for child, parent in _parents():
        children.setdefault(parent, []).append(child)
    descendants = [number]
    for each in descendants:  # grows while it is iterated
        descendants += children.get(each, [])
    return descendants[1:]


def _parents() -> Iterator[tuple[int, int]]:
    """Yield the ids of every process and its parent."""
    if not Path("/proc/self/stat").exists():
        listed = subprocess.run(["ps", "-A", "-o", "pid=,ppid="], capture_output=True, text=True, check=True).stdout
        for line in listed.splitlines():
            child, parent = map(int, line.split())
            yield child, parent
        return
    for process in Path("/proc").glob("[0-9]*"):  # small Linux systems have no ps
        with suppress(OSError):  # the process has ended
            yield int(process.name), int((process / "stat").read_text().rpartition(")")[2].split()[1])
