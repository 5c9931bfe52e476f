"""A server of saved studies for tests, and what a hostile client sends to it, byte by byte."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from typing import NamedTuple

from polybench.report.saved_studies import Store
from polybench.viewing.answers import Answers
from polybench.viewing.server import Server


class Reply(NamedTuple):
    status: int
    headers: dict[str, str]
    body: str


@contextlib.contextmanager
def serving(store: Store) -> Iterator[Server]:
    with Server(Answers(store), 0) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


def sent(server: Server, request: bytes) -> bytes:
    """All that comes back until the server closes the connection."""
    with socket.create_connection(("127.0.0.1", server.server_port), timeout=20) as connection:
        connection.sendall(request)
        connection.shutdown(socket.SHUT_WR)
        return b"".join(iter(lambda: connection.recv(1 << 16), b""))


def asked(server: Server, target: str = "/", method: str = "GET", **headers: str) -> Reply:
    """With the right `Host`, unless another is given; `Sec_Fetch_Site` is `Sec-Fetch-Site`."""
    given = {"Host": f"127.0.0.1:{server.server_port}"} | headers
    lines = [f"{name.replace('_', '-')}: {value}" for name, value in given.items()]
    return parsed(
        sent(server, "\r\n".join([f"{method} {target} HTTP/1.1", *lines, "", ""]).encode("latin-1"))
    )


def parsed(answer: bytes) -> Reply:
    head, _, body = answer.partition(b"\r\n\r\n")
    first, *lines = head.decode("latin-1").split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    return Reply(int(first.split()[1]), headers, body.decode())
