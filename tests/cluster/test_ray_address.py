"""Detection of a Ray cluster at an address, and of other services."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from polybench.cluster import ray_address
from polybench.cluster.ray_address import _remote_warning, discover
from polybench.errors import BadInput

pytest.importorskip("ray")


@pytest.mark.parametrize("target", ["ray://", "ray://host:port", "ray://host:99999"])
def test_invalid_address_is_rejected(target: str) -> None:
    with pytest.raises(BadInput, match=r"expected ray://HOST:PORT|nothing listens"):
        discover(target, target)


def test_closed_port_is_reported_with_a_hint() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    message = rf"nothing listens at 127\.0\.0\.1 port {port} .*ray start --head starts it at port 10001"
    with pytest.raises(BadInput, match=message):
        discover("ray://", f"ray://127.0.0.1:{port}")


def test_missing_cluster_of_this_machine_is_reported() -> None:
    with pytest.raises(BadInput, match=r"nothing listens at 127\.0\.0\.9 port 1"):
        discover("auto", "127.0.0.9:1")


@contextlib.contextmanager
def listening(act: Callable[[socket.socket], object]) -> Iterator[int]:
    """Yield the port of a server that calls `act` with each connection."""

    def serve() -> None:
        with contextlib.suppress(OSError):  # the server is closed
            while True:
                connection = server.accept()[0]
                connections.append(connection)
                act(connection)

    connections: list[socket.socket] = []
    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield server.getsockname()[1]
        finally:
            server.shutdown(socket.SHUT_RDWR)
            thread.join()
    for connection in connections:
        connection.close()


@pytest.mark.parametrize(
    ("act", "problem"),
    [
        (lambda _: None, "did not answer within 0 s"),
        (
            lambda connection: connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n"),
            "did not answer like one",
        ),
        (lambda connection: connection.close(), "did not answer like one"),
    ],
    ids=["silent", "http", "closes"],
)
def test_other_services_are_rejected_before_ray_connects(
    act: Callable[[socket.socket], object], problem: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("grpc")
    monkeypatch.setattr(ray_address, "_ANSWER_SECONDS", 0.2 if "0 s" in problem else 60.0)
    message = f"is not a Ray client server: it {problem}; ray start"
    with listening(act) as port, pytest.raises(BadInput, match=message):
        discover("ray://", f"ray://127.0.0.1:{port}")


def test_other_grpc_services_are_rejected() -> None:
    grpc = pytest.importorskip("grpc")
    server = grpc.server(ThreadPoolExecutor(1))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        with pytest.raises(BadInput, match="is not a Ray client server: it did not answer like one"):
            discover("ray://", f"ray://127.0.0.1:{port}")
        with pytest.raises(BadInput, match=r"is not a head of a Ray cluster: .*; set RAY_ADDRESS to its address"):
            ray_address._check_service("auto", "127.0.0.1", port, ray_address._HEAD)
    finally:
        server.stop(None).wait()


def test_remote_address_has_a_security_warning() -> None:
    assert _remote_warning("ray://127.0.0.1:1", "127.0.0.1") is None
    assert "anyone who can reach its ports can run programs" in (_remote_warning("ray://x", "192.0.2.77") or "")


def test_invalid_host_name_is_reported() -> None:
    with pytest.raises(BadInput, match=r"nothing listens at a\.\.b port 10001"):
        discover("ray://a..b:10001", "ray://a..b:10001")
