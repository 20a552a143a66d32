"""A real nginx with the configuration of a federation's folder forwards sites and refuses to start runs."""

from __future__ import annotations

import importlib.util
import shutil
import ssl
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

if importlib.util.find_spec("flwr") is None:
    pytest.skip("Flower is not installed (fedul[flower])", allow_module_level=True)
if shutil.which("nginx") is None:
    pytest.skip("nginx is not installed", allow_module_level=True)

from fedul.engines.flower.deploy.loopback import Loopback, loopback
from fedul.engines.flower.processes import HOST, free_port
from fedul.training import RunFolder

from ..engines.flower.wire import DIGITS
from ..waiting import wait_until

SETTINGS = {"classes": ",".join("0123456789"), "sites": 1, "min-sites": 1}


@pytest.fixture
def federation(tmp_path: Path) -> Iterator[Loopback]:
    with loopback(tmp_path / "federation", {**SETTINGS, "out": str(tmp_path / "run")}) as made:
        made.start_coordinator()
        yield made


@pytest.fixture
def public(federation: Loopback) -> Iterator[int]:
    """The port of nginx before the SuperLink."""
    port, text = free_port(), (federation.app / "nginx.conf").read_text()
    place = federation.folder / "nginx"
    place.mkdir()
    (place / "keys").symlink_to(federation.folder / "keys")
    changed = text.replace("listen 8443", f"listen {HOST}:{port}").replace(":8000/", f":{federation.port}/")
    (place / "nginx.conf").write_text(changed)
    with subprocess.Popen(["nginx", "-p", str(place), "-c", "nginx.conf", "-g", "daemon off;"]) as nginx:
        yield port
        nginx.terminate()


def status(federation: Loopback, port: int, path: str) -> int:
    """HTTP status of a request with the coordinator's certificate and without a key."""
    trusted = ssl.create_default_context(cafile=str(federation.folder / "keys" / "ca.pem"))
    kind = {"Content-Type": "application/protobuf"}
    request = urllib.request.Request(f"https://{HOST}:{port}{path}", data=b"", headers=kind, method="POST")
    found = []

    def answered() -> bool:
        try:
            with urllib.request.urlopen(request, context=trusted, timeout=30) as answer:
                found.append(int(answer.status))
        except urllib.error.HTTPError as problem:
            found.append(problem.code)
        except urllib.error.URLError:  # it has not begun to listen
            return False
        return True

    wait_until(answered, lambda: f"nothing listens on port {port}")
    return found[0]


@pytest.mark.slow
def test_nginx_forwards_sites_and_refuses_to_start_runs(federation: Loopback, public: int, tmp_path: Path) -> None:
    assert status(federation, federation.port, "/v1/control/list-nodes") == 200  # Flower asks for no password
    roundabout = ("/v1/fleet/../control/list-nodes", "/v1/fleet/%2e%2e/control/list-nodes")
    for path in ("/v1/control/list-nodes", *roundabout, "/v1/runtime/acquire-task", "/"):
        assert status(federation, public, path) == 403
    federation.register("client-1")
    federation.port = public  # where sites find it
    federation.start_site("client-1", DIGITS.format(name="client-1", clients=1, rows=0))
    run = RunFolder(tmp_path / "run")
    assert federation.until_ended(federation.run({"rounds": 1}), run, lambda: None) == "finished:completed"
