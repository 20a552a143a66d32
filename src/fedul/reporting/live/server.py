"""HTTP server of the live page: loopback only, read-only, with a secret in the address.

It is the server of Python's standard library: the page has six fixed documents and a handful of readers, so a framework
would add a dependency and nothing else; `fedul watch` works without the extra for Flower.

Another page in the same browser cannot read it: the path starts with a random token, the Host header must name
loopback (against DNS rebinding), and no other origin is allowed. Nothing of a request is used as a path of a file.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import secrets
import socket
import threading
from collections.abc import Mapping
from contextlib import suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from fedul.errors import EnvironmentFailure
from fedul.reporting.live.page import page_state, render_live_page, static_files
from fedul.reporting.live.run_view import LiveFolder
from fedul.training.run_files import REPORT

HOST = "127.0.0.1"
NAMES = (HOST, "localhost")
"""Host names by which a browser may address the page, with any port: it may be forwarded."""
TOKEN_BYTES = 24
IDLE_SECONDS = 60
METHODS = "GET, HEAD"

PAGE_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; frame-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
REPORT_POLICY = (
    "sandbox; default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'self'"
)
"""The report has no scripts, and may run none."""

HEADERS = {
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
}
TEXT = "text/plain; charset=utf-8"
HTML = "text/html; charset=utf-8"


class LiveServer(ThreadingHTTPServer):
    """Server of the page of one run.

    Parameters
    ----------
    folder : LiveFolder
        The run.
    port : int
        Port on loopback; 0 takes a free one.
    """

    daemon_threads = True
    block_on_close = False  # a browser keeps its connection open
    allow_reuse_address = os.name == "posix"  # elsewhere two servers could share a port

    def __init__(self, folder: LiveFolder, port: int = 0) -> None:
        self.folder = folder
        self.token = secrets.token_urlsafe(TOKEN_BYTES)
        self.reading = threading.Lock()
        self._connections: set[socket.socket] = set()
        try:
            super().__init__((HOST, port), LiveHandler)
        except OSError as problem:
            raise EnvironmentFailure(
                f"port {port}: cannot be used ({problem.strerror}); choose another --port, or none for a free one."
            ) from None

    @property
    def url(self) -> str:
        """Address of the page, with its token."""
        return f"http://{HOST}:{self.server_address[1]}/{self.token}/"

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer the requests of a connection in a thread."""
        self._connections.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        """End a connection."""
        self._connections.discard(request)
        super().shutdown_request(request)

    def server_close(self) -> None:
        """Close the port, and the connections that browsers keep open."""
        super().server_close()
        for connection in list(self._connections):
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Do nothing: a browser has closed its connection."""


class LiveHandler(BaseHTTPRequestHandler):
    """Answers requests for the documents of the page."""

    server: LiveServer
    protocol_version = "HTTP/1.1"
    timeout = IDLE_SECONDS

    def do_GET(self) -> None:
        """Answer a request."""
        self._answer()

    def do_HEAD(self) -> None:
        """Answer a request without the content."""
        self._answer()

    def version_string(self) -> str:
        """Return the name of the server, without versions."""
        return "fedul"

    def log_message(self, format: str, *args: Any) -> None:
        """Do nothing: the terminal is the user's."""

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Refuse a request that is none, or has another method, and close the connection."""
        self.close_connection = True
        if code == HTTPStatus.NOT_IMPLEMENTED:
            self._refuse(HTTPStatus.METHOD_NOT_ALLOWED, {"Allow": METHODS})
        else:
            self._refuse(HTTPStatus(code))

    def _answer(self) -> None:
        host = (self.headers.get("Host") or "").rsplit(":", 1)[0].lower()
        if host not in NAMES:
            self._refuse(HTTPStatus.MISDIRECTED_REQUEST)
            return
        _, token, name = f"{self.path.partition('?')[0]}//".split("/", 2)
        name = name.removesuffix("//") if name != "/" else ""
        if not hmac.compare_digest(token.encode(), self.server.token.encode()):
            self._refuse(HTTPStatus.NOT_FOUND)
            return
        try:
            found = self._document(name)
        except Exception as problem:
            self._send(HTTPStatus.INTERNAL_SERVER_ERROR, TEXT, f"internal error ({type(problem).__name__})\n".encode())
            return
        if found is None:
            self._refuse(HTTPStatus.NOT_FOUND)
            return
        kind, content = found
        tag = f'"{hashlib.sha256(content).hexdigest()[:32]}"'
        if self.headers.get("If-None-Match") == tag:
            self._send(HTTPStatus.NOT_MODIFIED, kind, b"", {"ETag": tag})
            return
        policy = REPORT_POLICY if name == "report" else PAGE_POLICY
        self._send(HTTPStatus.OK, kind, content, {"ETag": tag, "Content-Security-Policy": policy})

    def _document(self, name: str) -> tuple[str, bytes] | None:
        """Return the type and content of a document of the page; None if there is no such document."""
        if name in static_files():
            return static_files()[name]
        with self.server.reading:
            view = self.server.folder.read()
            if name == "":
                return HTML, render_live_page(view).encode()
            if name == "state.json":
                return "application/json", json.dumps(page_state(view).to_dict()).encode()
            if name == "report" and view.report:
                return HTML, (self.server.folder.path / REPORT).read_bytes()
        return None

    def _refuse(self, status: HTTPStatus, headers: Mapping[str, str] | None = None) -> None:
        self._send(status, TEXT, f"{status.phrase}\n".encode(), headers)

    def _send(self, status: HTTPStatus, kind: str, content: bytes, headers: Mapping[str, str] | None = None) -> None:
        self.send_response(status)
        has_content = status != HTTPStatus.NOT_MODIFIED
        sized = {"Content-Type": kind, "Content-Length": str(len(content))} if has_content else {}
        fixed = {"Content-Security-Policy": "default-src 'none'", **HEADERS}
        for name, value in {**fixed, **sized, **(headers or {})}.items():
            self.send_header(name, value)
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        if self.command != "HEAD" and has_content:
            self.wfile.write(content)
