"""A real site: it executes no app that a coordinator sends, and leaves no process behind."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

if importlib.util.find_spec("flwr") is None:
    pytest.skip("Flower is not installed (fedul[flower])", allow_module_level=True)

from flwr.app import RecordDict

from fedul.engines.flower.deploy.keys import make_keys
from fedul.engines.flower.deploy.loopback import Loopback, loopback
from fedul.engines.flower.processes import HOST, flower_program, free_port
from fedul.engines.flower.protocol.message import WireMessage
from fedul.engines.flower.site import runtime_api
from fedul.engines.flower.site.client_app import reply_to_content
from fedul.engines.flower.site.launcher import run_site
from fedul.errors import EnvironmentFailure, InputError

from ..engines.flower.wire import DIGITS
from ..waiting import wait_until
from .command import environment

SAFE, UNSAFE = "client-1", "client-2"
SETTINGS = {"classes": ",".join("0123456789"), "sites": 2}
# What a coordinator may send in place of fedul's app: it writes a file wherever it is executed.
CLIENT_APP = """
import os
from pathlib import Path

Path(os.environ["EXECUTED"]).touch()

from flwr.app import Message
from flwr.clientapp import ClientApp

app = ClientApp()

@app.query("hello")
def hello(message, context):
    return Message(message.content, reply_to=message)
"""
SERVER_APP = """
import json, time
from pathlib import Path
from flwr.app import Message
from flwr.serverapp import ServerApp
from fedul.engines.flower.protocol.message import WireMessage

app = ServerApp()

@app.main()
def main(grid, context):
    while len(nodes := list(grid.get_node_ids())) < 2:
        time.sleep(0.2)
    request = WireMessage(json.dumps(HELLO)).to_record()
    replies = grid.send_and_receive([Message(request, node, "query.hello") for node in nodes])
    found = [json.loads(WireMessage.from_record(reply.content).document) for reply in replies]
    file = Path(context.run_config["out"])
    file.with_suffix(".writing").write_text(json.dumps(found))
    file.with_suffix(".writing").rename(file)
"""
HELLO = {"run": "0", "resumption": 0, "classes": list("0123456789"), "secure": False}


@pytest.fixture
def federation(tmp_path: Path) -> Iterator[Loopback]:
    with loopback(tmp_path / "federation", {**SETTINGS, "out": str(tmp_path / "replies")}) as made:
        (made.app / "federation" / "client_app.py").write_text(CLIENT_APP)
        (made.app / "federation" / "server_app.py").write_text(SERVER_APP.replace("HELLO", repr(HELLO)))
        yield made


def settings_of(site: str) -> str:
    return DIGITS.format(name=site, clients=2, rows=300)


def start_without_launcher(federation: Loopback, site: str, **names: str) -> None:
    """Start a site as Flower documents it: a SuperNode that executes the app of the run."""
    file, keys = federation.folder / site / "site.toml", federation.folder / "keys"
    file.parent.mkdir()
    file.write_text(settings_of(site))
    federation._start(
        site,
        *(str(flower_program("flower-supernode")), "--superlink", f"{HOST}:{federation.port}"),
        *("--root-certificates", str(keys / "ca.pem"), "--auth-supernode-private-key", str(keys / f"{site}.key")),
        *("--host", HOST, "--port", str(free_port()), "--node-config", f'config="{file}"'),
        **names,
    )


def processes(mark: Path) -> list[str]:
    """Command lines of the processes of a site, which have this path in their environment, as the kernel lists them."""
    found = []
    for number in process_numbers(mark):
        with suppress(OSError):
            found.append(Path(f"/proc/{number}/cmdline").read_bytes().decode().replace("\0", " "))
    return found


def process_numbers(mark: Path) -> list[int]:
    """Numbers of the processes that have this path in their environment."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if f"EXECUTED={mark}\0".encode() in (process / "environ").read_bytes():
                found.append(int(process.name))
    return found


@pytest.mark.slow
def test_a_site_does_not_execute_the_app_of_a_run(federation: Loopback, tmp_path: Path) -> None:
    replies, marks = tmp_path / "replies", {site: tmp_path / f"executed-{site}" for site in (SAFE, UNSAFE)}
    federation.start_coordinator()
    for site in (SAFE, UNSAFE):
        federation.register(site)
    federation.start_site(SAFE, settings_of(SAFE), EXECUTED=str(marks[SAFE]))
    start_without_launcher(federation, UNSAFE, EXECUTED=str(marks[UNSAFE]))
    federation.run({})
    wait_until(replies.exists, lambda: federation.log("superlink")[-2000:] + federation.log(SAFE)[-2000:])
    by_fedul, by_the_app = sorted(json.loads(replies.read_text()), key=lambda reply: "name" not in reply)
    assert (by_fedul["name"], by_the_app) == (SAFE, HELLO)
    assert not marks[SAFE].exists()
    assert marks[UNSAFE].exists()  # the app does what it is here to show
    assert len(processes(marks[SAFE])) >= 3  # the launcher, its SuperNode and the worker process
    federation.processes[SAFE].send_signal(signal.SIGTERM)
    assert federation.processes[SAFE].wait() == 143
    wait_until(lambda: not processes(marks[SAFE]))


def test_a_site_refuses_messages_that_fedul_does_not_know(tmp_path: Path) -> None:
    for kind in ("query.steal", "train", "query", "query."):
        reply = reply_to_content(kind, RecordDict(), str(tmp_path / "site.toml"))
        document = json.loads(WireMessage.from_record(reply).document)
        assert document["error"] == f"messages of type '{kind}' are unknown here; this site runs fedul alone"
    damaged = WireMessage.from_record(reply_to_content("query.hello", RecordDict(), str(tmp_path / "site.toml")))
    assert json.loads(damaged.document)["error"] == "the request cannot be read: it is not a message of fedul"


@pytest.fixture
def settings(tmp_path: Path) -> Path:
    """Settings of a site whose coordinator is away."""
    make_keys(tmp_path, sites=[SAFE], hosts=[HOST])
    text = f'superlink = "{HOST}:{free_port()}"\nroot-certificates = "ca.pem"\nkey = "{SAFE}.key"\n'
    (tmp_path / "site.toml").write_text(text + settings_of(SAFE))
    return tmp_path / "site.toml"


@contextmanager
def started(settings: Path, mark: Path, log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Context with a site, which is killed at the end."""
    command = [sys.executable, "-P", "-m", "fedul", "federation", "site", str(settings)]
    with log.open("wb") as output:
        site = subprocess.Popen(command, env=environment(EXECUTED=str(mark)), stdout=output, stderr=output)
    try:
        yield site
    finally:
        site.kill()
        site.wait()


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux ends processes with a parent that was killed")
def test_a_killed_site_leaves_no_process_behind_and_others_get_no_messages_of_it(
    settings: Path, tmp_path: Path
) -> None:
    mark, log = tmp_path / "executed", tmp_path / "log"
    with started(settings, mark, log):
        wait_until(lambda: "apps that coordinators send are not executed" in log.read_text(), log.read_text)
        assert len(processes(mark)) == 2
        found = re.search(rf"running on http://{HOST}:(\d+)", log.read_text())
        assert found is not None
        kind = {"Content-Type": "application/protobuf"}
        address = f"http://{HOST}:{found[1]}/v1/runtime/acquire-task"
        with pytest.raises(urllib.error.HTTPError, match="401"):
            urllib.request.urlopen(urllib.request.Request(address, data=b"", headers=kind, method="POST"), timeout=30)
    wait_until(lambda: not processes(mark))


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads the processes of a site from the kernel")
def test_a_site_ends_with_its_supernode_and_says_which_address_it_tried(settings: Path, tmp_path: Path) -> None:
    mark, log = tmp_path / "executed", tmp_path / "log"
    with started(settings, mark, log) as site:
        wait_until(lambda: "apps that coordinators send are not executed" in log.read_text(), log.read_text)
        supernode = next(number for number in process_numbers(mark) if number != site.pid)
        os.kill(supernode, signal.SIGKILL)
        assert site.wait() == 1
    assert "the SuperNode of site 'client-1' ended" in log.read_text()
    assert re.search(rf"fedul: site 'client-1' connects to {HOST}:\d+\.", log.read_text())
    assert re.search(r"fedul: site 'client-1' has \d+ rows to train on, classes 0, 1, 2, ", log.read_text())


TABLE = """\
superlink = "127.0.0.1:9"
key = "client-1.key"
name = "client-1"

[data]
data = "patients.csv"
priors = "priors.csv"
set-column = "month"
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("patients", "priors", "problem"),
    [
        (None, "month,flu,cold\nmay,0.5,0.5\n", "patients.csv"),
        ("month,age\n" + "may,3\n" * 40, "month,flu,cold\njune,0.5,0.5\n", "has priors for set 'june'"),
        ("month,age\n" + "may,3\n" * 40, "month,flu,cold\nmay,0.5,much\n", "priors.csv"),
        ("week,age\n" + "may,3\n" * 40, "month,flu,cold\nmay,0.5,0.5\n", "month"),
        ("month,age\n" + "may,3\n" * 10, "month,flu,cold\nmay,0.5,0.5\n", "fewer than min-rows"),
    ],
    ids=["no rows", "other sets", "no numbers", "no set column", "few rows"],
)
def test_a_site_with_data_that_cannot_be_used_does_not_start(
    tmp_path: Path, patients: str | None, priors: str, problem: str
) -> None:
    make_keys(tmp_path, sites=[SAFE])
    for name, text in (("site.toml", TABLE), ("priors.csv", priors), ("patients.csv", patients)):
        if text is not None:
            (tmp_path / name).write_text(text)
    with pytest.raises(InputError, match=problem):
        run_site(str(tmp_path / "site.toml"))


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("superlink =", "# ", "site.toml: superlink is missing"),
        ("key =", "# ", "site.toml: key is missing"),
        ("client-1.key", "other.key", "other.key: there is no such file"),
        ("ca.pem", "other.pem", "root-certificates: there is no file"),
        ("ca.pem", "server.key", "server.key is not a certificate in PEM format"),
        (f'superlink = "{HOST}', f'superlink = "https://{HOST}', "superlink: 'https://.*' is not an address"),
        (f'superlink = "{HOST}:', 'superlink = "', "superlink: '.*' is not an address; give HOST:PORT"),
        ("key =", 'roster = "roster.toml"\nkey =', "roster.toml: there is no such file"),
        ("key =", 'allow-method = "a"\nkey =', "did you mean 'allow-methods'"),
        ("key =", "require-secure-aggregation = true\nkey =", "needs the key of this site and the roster of all sites"),
        ("key =", "row-delta = 1e-6\nkey =", "row-delta: limits nothing without row-epsilon"),
        ("rows =", "row =", r"unknown setting in \[data\] 'row'"),
    ],
)
def test_a_site_with_settings_that_cannot_be_used_does_not_start(
    settings: Path, old: str, new: str, problem: str
) -> None:
    settings.write_text(settings.read_text().replace(old, new))
    with pytest.raises(InputError, match=problem):
        run_site(str(settings))


def test_a_version_of_flower_that_is_not_known_is_refused(settings: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runtime_api, "VERSIONS", "1.40")
    with pytest.raises(EnvironmentFailure, match=r"Flower 1\.\d+\.\d+ is installed, and a site needs 1\.40"):
        run_site(str(settings))
