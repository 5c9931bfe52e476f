"""HTTP server and raw HTTP client for tests."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from typing import NamedTuple

from polybench.html_report.routes import Router
from polybench.html_report.server import Server
from polybench.storage.store import Store


class HttpResponse(NamedTuple):
    status: int
    headers: dict[str, str]
    body: str


@contextlib.contextmanager
def run_server(store: Store) -> Iterator[Server]:
    with Server(Router(store), 0) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


def send(server: Server, request: bytes) -> bytes:
    """Send bytes, and return the response up to the end of the connection."""
    with socket.create_connection(("127.0.0.1", server.server_port), timeout=20) as connection:
        connection.sendall(request)
        connection.shutdown(socket.SHUT_WR)
        return b"".join(iter(lambda: connection.recv(1 << 16), b""))


def request(server: Server, target: str = "/", method: str = "GET", **headers: str) -> HttpResponse:
    """Send a request with the correct `Host` by default; underscores in header names become hyphens."""
    all_headers = {"Host": f"127.0.0.1:{server.server_port}"} | headers
    lines = [f"{name.replace('_', '-')}: {value}" for name, value in all_headers.items()]
    return parse(send(server, "\r\n".join([f"{method} {target} HTTP/1.1", *lines, "", ""]).encode("latin-1")))


def parse(response: bytes) -> HttpResponse:
    head, _, body = response.partition(b"\r\n\r\n")
    first, *lines = head.decode("latin-1").split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    return HttpResponse(int(first.split()[1]), headers, body.decode())
