"""An HTTP server for one user's browser on this machine. Everything that is asked of it may be hostile.

Any page on the web can make a browser ask this server. So it listens on the loopback only; answers to its own
names only, or a name of an attacker that leads to 127.0.0.1 would make his page and these pages one site (DNS
rebinding); is shown in no frame; and gives nothing to other sites' pages that embed or fetch it. It reads,
never writes: GET and HEAD are all that it knows. One request a connection, so nothing can be smuggled in one.
"""

from __future__ import annotations

import socketserver
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from polybench.core.errors import BadInput
from polybench.page.served import problem_page
from polybench.viewing.answers import Answer, Answers

LOOPBACK = "127.0.0.1"
_NAMES = (LOOPBACK, "localhost")

_METHODS = ("GET", "HEAD")
_PATIENCE = 10.0
"""Seconds that a connection may be silent."""

_HEADERS = {
    "Content-Type": "text/html; charset=utf-8",
    "Cache-Control": "no-store",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}


class Server(ThreadingHTTPServer):
    """Listens as soon as it is made.

    Args:
        answers: what makes the pages.
        port: of the loopback; 0 for one that is free.

    Raises:
        BadInput: the port is taken, or may not be used.
    """

    daemon_threads = True
    allow_reuse_port = False
    """Or a second server would take every other request of the first."""

    def __init__(self, answers: Answers, port: int) -> None:
        self.answers = answers
        try:
            super().__init__((LOOPBACK, port), _Handler)
        except (OSError, OverflowError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            raise BadInput(f"cannot listen on port {port}: {reason}; --port 0 takes a free one") from error

    def server_bind(self) -> None:
        """As its base class does, without asking the network for a name of this machine."""
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = LOOPBACK, int(self.server_address[1])

    @property
    def address(self) -> str:
        """For a browser."""
        return f"http://{LOOPBACK}:{self.server_port}/"

    @property
    def hosts(self) -> set[str]:
        """What may stand in the header `Host`."""
        names = {f"{name}:{self.server_port}" for name in _NAMES}
        return names | set(_NAMES) if self.server_port == 80 else names

    def handle_error(self, *_: Any) -> None:
        """A browser that goes away while it is answered is no event; all else is answered with 500."""


class _Handler(BaseHTTPRequestHandler):
    server: Server
    timeout = _PATIENCE
    server_version, sys_version = "polybench", ""

    def parse_request(self) -> bool:
        """Whether the request is one that is answered; another is refused before anything is looked up."""
        if not super().parse_request():
            return False
        refused = self._refused()
        if refused is not None:
            status, reason = refused
            self._send(Answer(status, problem_page("This is not answered", reason)))
        return refused is None

    def _refused(self) -> tuple[HTTPStatus, str] | None:
        if self.command not in _METHODS:
            return HTTPStatus.METHOD_NOT_ALLOWED, "Pages are read here, and nothing else."
        if self.request_version == "HTTP/0.9":
            return HTTPStatus.HTTP_VERSION_NOT_SUPPORTED, "HTTP/1.0 or newer is needed."
        hosts = self.headers.get_all("Host", [])
        if len(hosts) != 1 or hosts[0].strip().lower() not in self.server.hosts:
            return HTTPStatus.MISDIRECTED_REQUEST, f"These pages are at {self.server.address} only."
        if not self.path.startswith("/"):
            return HTTPStatus.BAD_REQUEST, "An address begins with a slash."
        # Links from elsewhere may be followed, as typed addresses may; images, frames and scripts may not.
        site = self.headers.get("Sec-Fetch-Site", "none")
        followed = self.headers.get("Sec-Fetch-Mode") == "navigate" and (
            self.headers.get("Sec-Fetch-Dest", "document") == "document"
        )
        if site not in ("none", "same-origin") and not followed:
            return HTTPStatus.FORBIDDEN, "Pages of other sites get nothing from here."
        return None

    def do_GET(self) -> None:
        """Look it up and send it."""
        self._send(self._answer())

    do_HEAD = do_GET  # noqa: N815 - the base class finds it by this name

    def _answer(self) -> Answer:
        try:
            return self.server.answers.to(self.path)
        except Exception as error:  # a document of somebody else may hold what nobody thought of
            reason = f"This is an error of polybench: {type(error).__name__}: {error}"
            return Answer(HTTPStatus.INTERNAL_SERVER_ERROR, problem_page("Something went wrong", reason))

    def _send(self, answer: Answer) -> None:
        body = answer.page.text.encode("utf-8", "backslashreplace")
        self.request_version = self.protocol_version  # what came may be none: a status is sent all the same
        self.send_response(answer.status)
        headers = _HEADERS | {"Content-Security-Policy": answer.page.policy}
        if answer.status is HTTPStatus.METHOD_NOT_ALLOWED:
            headers["Allow"] = ", ".join(_METHODS)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def send_error(self, code: int, message: str | None = None, _: str | None = None) -> None:
        """What the base class refuses, as a page like all others."""
        status = HTTPStatus(code)
        self._send(Answer(status, problem_page("This is not answered", message or status.phrase)))

    def log_message(self, *_: Any) -> None:
        """Nothing: who asks for what is shown by the browser."""
