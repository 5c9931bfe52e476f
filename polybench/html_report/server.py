"""HTTP server for the browser of a single user on this machine. All requests may be malicious.

Any web page can make a browser send requests to this server. Therefore the server:
- listens only on the loopback interface;
- accepts only its own host names, against DNS rebinding: an attacker's name that resolves to 127.0.0.1 would
  give the attacker's page access;
- forbids frames, and rejects requests of other sites that embed or fetch a page;
- supports only GET and HEAD, and never writes;
- handles a single request per connection, against request smuggling.
"""

from __future__ import annotations

import socketserver
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from polybench.errors import BadInput
from polybench.html_report.routes import Response, Router
from polybench.html_report.server_pages import error_page
from polybench.plugins import blame

LOOPBACK = "127.0.0.1"
_HOST_NAMES = (LOOPBACK, "localhost")

_METHODS = ("GET", "HEAD")
_TIMEOUT = 10.0
"""Maximum seconds between bytes of a connection."""

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
    """Server that starts to listen when it is created; raises BadInput if the port is in use or not allowed.

    Args:
        router: creates the pages.
        port: on the loopback interface; 0 for a free port.
    """

    daemon_threads = True
    allow_reuse_port = False
    """With reuse, a second server would receive every other request of the first."""

    def __init__(self, router: Router, port: int) -> None:
        self.router = router
        try:
            super().__init__((LOOPBACK, port), _Handler)
        except (OSError, OverflowError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            raise BadInput(f"cannot listen on port {port}: {reason}; use a free port with --port 0") from error

    def server_bind(self) -> None:
        """Bind like the base class, but without looking up the name of this machine."""
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = LOOPBACK, int(self.server_address[1])

    @property
    def address(self) -> str:
        """Address to open in a browser."""
        return f"http://{LOOPBACK}:{self.server_port}/"

    @property
    def hosts(self) -> set[str]:
        """Accepted values of the header `Host`."""
        names = {f"{name}:{self.server_port}" for name in _HOST_NAMES}
        return names | set(_HOST_NAMES) if self.server_port == 80 else names

    def handle_error(self, *_: Any) -> None:
        """Ignore closed connections; all other errors have produced a response with status 500."""


class _Handler(BaseHTTPRequestHandler):
    server: Server
    timeout = _TIMEOUT
    server_version, sys_version = "polybench", ""

    def parse_request(self) -> bool:
        """Parse a request and reject invalid ones before any look-up; return False for those."""
        if not super().parse_request():
            return False
        rejection = self._rejection()
        if rejection is not None:
            status, reason = rejection
            self._send(Response(status, error_page("Request rejected", reason)))
        return rejection is None

    def _rejection(self) -> tuple[HTTPStatus, str] | None:
        if self.command not in _METHODS:
            return HTTPStatus.METHOD_NOT_ALLOWED, "Only GET and HEAD are supported."
        if self.request_version == "HTTP/0.9":
            return HTTPStatus.HTTP_VERSION_NOT_SUPPORTED, "HTTP/1.0 or newer is required."
        hosts = self.headers.get_all("Host", [])
        if len(hosts) != 1 or hosts[0].strip().lower() not in self.server.hosts:
            return HTTPStatus.MISDIRECTED_REQUEST, f"Wrong host name: open {self.server.address} instead."
        if not self.path.startswith("/"):
            return HTTPStatus.BAD_REQUEST, "An address must begin with a slash."
        # Typed addresses and links on other sites are allowed; images, frames and scripts there are not.
        site = self.headers.get("Sec-Fetch-Site", "none")
        is_link = self.headers.get("Sec-Fetch-Mode") == "navigate" and (
            self.headers.get("Sec-Fetch-Dest", "document") == "document"
        )
        if site not in ("none", "same-origin") and not is_link:
            return HTTPStatus.FORBIDDEN, "Requests of other sites are not allowed."
        return None

    def do_GET(self) -> None:
        """Send the page of the requested address."""
        self._send(self._response())

    do_HEAD = do_GET  # noqa: N815 - name required by the base class

    def _response(self) -> Response:
        try:
            return self.server.router.dispatch(self.path)
        except Exception as error:  # documents from other machines may have unexpected contents
            reason = blame(error) or f"Bug in polybench: {type(error).__name__}: {error}"
            return Response(HTTPStatus.INTERNAL_SERVER_ERROR, error_page("Internal error", reason))

    def _send(self, response: Response) -> None:
        body = response.page.text.encode("utf-8", "backslashreplace")
        self.request_version = self.protocol_version  # HTTP/0.9 requests would get no status line
        self.send_response(response.status)
        headers = _HEADERS | {"Content-Security-Policy": response.page.csp}
        if response.status is HTTPStatus.METHOD_NOT_ALLOWED:
            headers["Allow"] = ", ".join(_METHODS)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def send_error(self, code: int, message: str | None = None, _: str | None = None) -> None:
        """Send an error page for requests that the base class rejects."""
        status = HTTPStatus(code)
        self._send(Response(status, error_page("Request rejected", message or status.phrase)))

    def log_message(self, *_: Any) -> None:
        """Do not log requests."""
