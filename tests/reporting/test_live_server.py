"""The server of the live page: loopback, read-only, and closed to those without the address."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path

import pytest

import fedul
from fedul.errors import EnvironmentFailure, InputError
from fedul.reporting.live.watch import LivePage

from ..runs import contents
from .live_folders import going_on, rounds, status, write_run

SECRET = "not for others"


@pytest.fixture
def run(tmp_path: Path) -> Path:
    (tmp_path / "secret").write_text(SECRET)
    run = write_run(tmp_path / "RUN", rounds(3), status(), report=True)
    (run / "secret").write_text(SECRET)
    return run


@pytest.fixture
def page(run: Path) -> Iterator[LivePage]:
    with fedul.watch(run) as page:
        yield page


def ask(page: LivePage, path: str, method: str = "GET", **headers: str) -> tuple[HTTPResponse, bytes]:
    """Send one request; a path without a slash at its beginning is below the address of the page."""
    host, _, token = page.url.removeprefix("http://").partition("/")
    connection = HTTPConnection(host, timeout=60)
    try:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        connection.putrequest(method, path if path.startswith("/") else f"/{token}{path}", skip_host="Host" in named)
        for name, value in named.items():
            connection.putheader(name, value)
        connection.endheaders()
        reply = connection.getresponse()
        return reply, reply.read()
    finally:
        connection.close()


@pytest.mark.parametrize("name", ["", "state.json", "live.css", "live.js", "icon.svg", "report", "report?17"])
def test_every_document_of_the_page_is_served_and_not_stored_by_the_browser(page: LivePage, name: str) -> None:
    reply, content = ask(page, name)
    assert reply.status == 200
    assert content
    assert reply.getheader("Cache-Control") == "no-store"
    assert reply.getheader("X-Content-Type-Options") == "nosniff"
    assert reply.getheader("Referrer-Policy") == "no-referrer"
    policy = reply.getheader("Content-Security-Policy") or ""
    assert "default-src 'none'" in policy
    assert "script-src 'unsafe" not in policy
    assert ("sandbox" in policy) == name.startswith("report")
    head, nothing = ask(page, name, "HEAD")
    assert (head.status, nothing, head.getheader("Content-Length")) == (200, b"", str(len(content)))


def test_the_page_names_no_address_but_its_own_documents(page: LivePage) -> None:
    for name in ("", "state.json", "live.css", "live.js", "icon.svg"):
        text = ask(page, name)[1].decode().replace("http://www.w3.org/2000/svg", "")
        assert "://" not in text


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/state.json",
        "/report",
        "/favicon.ico",
        "/wrong-token/",
        "/wrong-token/state.json",
        "//state.json",
        "/%00/",
    ],
)
def test_without_the_token_there_is_nothing(page: LivePage, path: str) -> None:
    reply, content = ask(page, path)
    assert (reply.status, content) == (404, b"Not Found\n")


def test_a_part_of_the_token_is_not_enough(page: LivePage) -> None:
    token = page.url.rstrip("/").rpartition("/")[2]
    for wrong in (token[:-1], f"{token}x", token.swapcase(), ""):
        assert ask(page, f"/{wrong}/state.json")[0].status == 404


def test_every_page_has_another_token(run: Path) -> None:
    with fedul.watch(run) as one, fedul.watch(run) as other:
        assert one.url.split("/")[3] != other.url.split("/")[3]
        assert len(one.url.split("/")[3]) >= 32


@pytest.mark.parametrize(
    "name",
    [
        "secret",
        "config.json",
        "metrics.jsonl",
        "../secret",
        "..%2fsecret",
        "%2e%2e/secret",
        "report/../secret",
        "report/",
        "./report",
        "/state.json",
        "live.js%00",
    ],
)
def test_no_other_file_can_be_named(page: LivePage, name: str) -> None:
    reply, content = ask(page, f"{'/' + page.url.split('/')[3]}/{name}")
    assert reply.status == 404
    assert SECRET.encode() not in content


@pytest.mark.parametrize("host", ["evil.example", "evil.example:80", "127.0.0.1.evil.example", "", "0.0.0.0", "[::1]"])
def test_a_name_that_was_rebound_to_loopback_is_refused(page: LivePage, host: str) -> None:
    assert ask(page, "", Host=host)[0].status == 421


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.1:9", "localhost:8080", "LOCALHOST"])
def test_loopback_may_be_addressed_by_its_names_and_through_a_forwarded_port(page: LivePage, host: str) -> None:
    assert ask(page, "", Host=host)[0].status == 200


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "CONNECT", "BREW"])
def test_nothing_but_reading_is_allowed(page: LivePage, run: Path, method: str) -> None:
    before = contents(run)
    reply, _ = ask(page, "state.json", method)
    assert (reply.status, reply.getheader("Allow")) == (405, "GET, HEAD")
    assert contents(run) == before


@pytest.mark.parametrize(
    ("request_bytes", "reply"),
    [
        (b"\x16\x03\x01 nonsense\r\n\r\n", b"Bad Request"),
        (b"GET /\xfc/ HTTP/1.1\r\nHost: localhost\r\n\r\n", b" 404 "),
        (b"GET http://localhost/ HTTP/1.1\r\nHost: localhost\r\n\r\n", b" 404 "),
        (b"GET / HTTP/1.1\r\n\r\n", b" 421 "),
    ],
)
def test_what_no_browser_sends_is_refused_without_harm(page: LivePage, request_bytes: bytes, reply: bytes) -> None:
    host, port = page.url.split("/")[2].split(":")
    with socket.create_connection((host, int(port)), timeout=60) as connection:
        connection.sendall(request_bytes)
        assert reply in connection.recv(1000)
    assert ask(page, "")[0].status == 200


def test_no_other_origin_may_read_the_page(page: LivePage) -> None:
    reply, _ = ask(page, "state.json", Origin="http://evil.example")
    assert reply.getheader("Access-Control-Allow-Origin") is None
    assert reply.getheader("Cross-Origin-Resource-Policy") == "same-origin"


def test_what_has_not_changed_is_not_sent_again(page: LivePage, run: Path) -> None:
    tag = ask(page, "state.json")[0].getheader("ETag") or ""
    reply, content = ask(page, "state.json", If_None_Match=tag)
    assert (reply.status, content) == (304, b"")
    with going_on(run):
        reply, content = ask(page, "state.json", If_None_Match=tag)
    assert reply.status == 200
    assert json.loads(content)["going_on"] is True


def test_only_loopback_is_bound(page: LivePage) -> None:
    assert page.url.startswith("http://127.0.0.1:")
    assert page._server.server_address[0] == "127.0.0.1"


def test_a_port_that_is_in_use_is_one_sentence(page: LivePage, run: Path) -> None:
    port = int(page.url.split("/")[2].split(":")[1])
    with pytest.raises(EnvironmentFailure, match=f"port {port}: cannot be used .*choose another --port"):
        fedul.watch(run, port=port)


def test_a_folder_without_a_run_is_refused_unless_it_is_waited_for(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no run in it.*--wait"):
        fedul.watch(tmp_path)
    with fedul.watch(tmp_path / "later", wait=True) as page:
        assert json.loads(ask(page, "state.json")[1])["title"].startswith("Waiting for a run")
        write_run(tmp_path / "later", rounds(2), status())
        assert json.loads(ask(page, "state.json")[1])["title"].startswith("Stopped after round 2")


@pytest.mark.parametrize("port", [-1, 65536, True, "8080"])
def test_a_port_that_is_none_is_refused(run: Path, port: int) -> None:
    with pytest.raises(InputError, match="port"):
        fedul.watch(run, port=port)


def test_a_page_that_is_closed_is_not_served_any_more(run: Path) -> None:
    with fedul.watch(run) as page:
        pass
    page.close()
    with pytest.raises(ConnectionRefusedError):
        ask(page, "")
