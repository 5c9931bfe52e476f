"""Where a Ray cluster is to be reached, and whether one is there; Ray itself tries for up to minutes."""

from __future__ import annotations

import os
import re
import socket
from importlib.util import find_spec
from ipaddress import ip_address
from typing import NamedTuple

from polybench.core.errors import BadInput

_CLIENT_PORT = 10001
_CONNECT_SECONDS = 3.0
_ANSWER_SECONDS = 6.0
"""Of somebody who is Ray, and busy; in ten it has to be said that he is not."""


class _Kind(NamedTuple):
    """Who is expected to listen, what only he knows, and where he is found."""

    name: str
    method: str
    remedy: str


_CLIENT_SERVER = _Kind(
    "Ray client server",
    "/ray.rpc.RayletDriver/ClusterInfo",
    f"ray start --head has it at port {_CLIENT_PORT}, or at --ray-client-server-port",
)
_HEAD = _Kind(
    "head of a Ray cluster",
    "/ray.rpc.NodeInfoGcsService/CheckAlive",
    "RAY_ADDRESS is its address, HOST:6379 where nothing else was said to ray start --head",
)


def look_for(on: str, address: str) -> str | None:
    """Find out whether a cluster is there.

    Args:
        on: as `--on`, for what is said.
        address: `ray://HOST:PORT`, or what Ray takes of the cluster that this machine belongs to.

    Returns:
        A warning where it is not on this machine.

    Raises:
        BadInput: nobody listens there, or somebody else.
    """
    if not address.startswith("ray://"):
        _look_for_own(on, address)
        return None
    host, port = _host_and_port(on, address.removeprefix("ray://"))
    _look(on, host, port, _CLIENT_SERVER)
    return _not_loopback(on, host)


def _look_for_own(on: str, address: str) -> None:
    """The cluster that this machine belongs to."""
    from ray._private.services import canonicalize_bootstrap_address

    try:
        found = canonicalize_bootstrap_address(address)
    except (ConnectionError, ValueError):
        found = None
    if found is None:
        raise BadInput(f"--on {on}: no Ray runs on this machine; start it with: ray start --head")
    host, _, port = found.rpartition(":")
    _look(on, host.strip("[]"), int(port), _HEAD)


def _host_and_port(on: str, text: str) -> tuple[str, int]:
    host, colon, port = text.rpartition(":")
    if not colon:
        host, port = text, str(_CLIENT_PORT)
    if not host or not re.fullmatch(r"\d{1,5}", port) or not 0 < int(port) < 65536:
        raise BadInput(f"--on {on}: write ray://HOST:PORT, for example --on ray://127.0.0.1:{_CLIENT_PORT}")
    return host.strip("[]"), int(port)


def _look(on: str, host: str, port: int, who: _Kind) -> None:
    """Whether anybody listens, and whether it is who is expected."""
    try:
        with socket.create_connection((host, port), _CONNECT_SECONDS):
            pass
    except (OSError, UnicodeError) as error:  # a name that no host can have
        why = getattr(error, "strerror", None) or error
        raise BadInput(f"--on {on}: nobody listens at {host} port {port} ({why}); {who.remedy}") from None
    _ask(on, host, port, who)


def _ask(on: str, host: str, port: int, who: _Kind) -> None:
    """Whoever has no such method, or no gRPC, is somebody else; all other answers are Ray's to explain."""
    if find_spec("grpc") is None or os.environ.get("RAY_USE_TLS", "0").lower() in ("1", "true"):
        return  # Ray says what it lacks; and it alone has the certificates
    import grpc

    address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    with grpc.insecure_channel(address, options=[("grpc.enable_http_proxy", 0)]) as channel:
        try:
            channel.unary_unary(who.method)(b"", timeout=_ANSWER_SECONDS)
            return
        except grpc.RpcError as error:
            code = error.code()
    if code is grpc.StatusCode.DEADLINE_EXCEEDED:
        says = f"said nothing for {_ANSWER_SECONDS:.0f} s"
    elif code in (grpc.StatusCode.UNIMPLEMENTED, grpc.StatusCode.UNAVAILABLE):
        says = "does not answer as one"
    else:
        return
    raise BadInput(f"--on {on}: who listens at {host} port {port} is no {who.name}, and {says}; {who.remedy}")


def _not_loopback(on: str, host: str) -> str | None:
    try:
        addresses = {one[4][0] for one in socket.getaddrinfo(host, None)}
    except OSError:
        return None
    if all(ip_address(str(address).partition("%")[0]).is_loopback for address in addresses):
        return None
    return (
        f"--on {on}: {host} is not this machine; Ray asks nobody who he is: whoever reaches its ports runs"
        " programs there, so they belong behind a firewall or an SSH tunnel (docs/clusters.md)"
    )
