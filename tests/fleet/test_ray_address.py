"""Whether a Ray cluster is at an address; who else may listen there."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from polybench.core.errors import BadInput
from polybench.fleet import ray_address
from polybench.fleet.ray_address import _not_loopback, look_for

pytest.importorskip("ray")


@pytest.mark.parametrize("on", ["ray://", "ray://host:port", "ray://host:99999"])
def test_what_is_no_address(on: str) -> None:
    with pytest.raises(BadInput, match=r"write ray://HOST:PORT|nobody listens"):
        look_for(on, on)


def test_nobody_listens() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    says = rf"nobody listens at 127\.0\.0\.1 port {port} .*ray start --head has it at port 10001"
    with pytest.raises(BadInput, match=says):
        look_for("ray://", f"ray://127.0.0.1:{port}")


def test_no_ray_runs_here() -> None:
    with pytest.raises(BadInput, match=r"nobody listens at 127\.0\.0\.9 port 1"):
        look_for("auto", "127.0.0.9:1")


@contextlib.contextmanager
def listening(act: Callable[[socket.socket], object]) -> Iterator[int]:
    """The port of somebody who does this with each connection."""

    def serve() -> None:
        with contextlib.suppress(OSError):  # it is closed
            while True:
                connection = server.accept()[0]
                kept.append(connection)
                act(connection)

    kept: list[socket.socket] = []
    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield server.getsockname()[1]
        finally:
            server.shutdown(socket.SHUT_RDWR)
            thread.join()
    for connection in kept:
        connection.close()


@pytest.mark.parametrize(
    ("act", "says"),
    [
        (lambda _: None, "said nothing for 0 s"),
        (
            lambda connection: connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n"),
            "does not answer as one",
        ),
        (lambda connection: connection.close(), "does not answer as one"),
    ],
    ids=["silent", "http", "closes"],
)
def test_who_is_no_ray_is_refused_before_ray_tries(
    act: Callable[[socket.socket], object], says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("grpc")
    monkeypatch.setattr(ray_address, "_ANSWER_SECONDS", 0.2 if "0 s" in says else 60.0)
    says = f"is no Ray client server, and {says}; ray start"
    with listening(act) as port, pytest.raises(BadInput, match=says):
        look_for("ray://", f"ray://127.0.0.1:{port}")


def test_other_services_of_grpc_are_no_ray() -> None:
    grpc = pytest.importorskip("grpc")
    server = grpc.server(ThreadPoolExecutor(1))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        with pytest.raises(BadInput, match="is no Ray client server, and does not answer as one"):
            look_for("ray://", f"ray://127.0.0.1:{port}")
        with pytest.raises(BadInput, match=r"is no head of a Ray cluster, .*; RAY_ADDRESS is its address"):
            ray_address._look("auto", "127.0.0.1", port, ray_address._HEAD)
    finally:
        server.stop(None).wait()


def test_who_is_not_this_machine_is_warned_of() -> None:
    assert _not_loopback("ray://127.0.0.1:1", "127.0.0.1") is None
    assert "whoever reaches its ports runs programs" in (_not_loopback("ray://x", "192.0.2.77") or "")


def test_a_name_that_no_host_can_have_is_nobodys() -> None:
    with pytest.raises(BadInput, match=r"nobody listens at a\.\.b port 10001"):
        look_for("ray://a..b:10001", "ray://a..b:10001")
