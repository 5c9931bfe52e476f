"""Address of a Ray cluster, and a check that the cluster responds; Ray itself would try for minutes."""

from __future__ import annotations

import os
import re
import socket
from importlib.util import find_spec
from ipaddress import ip_address
from typing import NamedTuple

from polybench.errors import BadInput

_CLIENT_PORT = 10001
_CONNECT_SECONDS = 3.0
_ANSWER_SECONDS = 6.0
"""Time for an answer of a busy Ray; a missing cluster has to be reported within ten seconds."""


class _Service(NamedTuple):
    """A service that should listen: its name, a method that only this service has, and a hint for its
    address.
    """

    name: str
    method: str
    hint: str


_CLIENT_SERVER = _Service(
    "Ray client server",
    "/ray.rpc.RayletDriver/ClusterInfo",
    f"ray start --head starts it at port {_CLIENT_PORT}, or at --ray-client-server-port",
)
_HEAD = _Service(
    "head of a Ray cluster",
    "/ray.rpc.NodeInfoGcsService/CheckAlive",
    "set RAY_ADDRESS to its address, by default HOST:6379",
)


def discover(target: str, address: str) -> str | None:
    """Check that a cluster responds.

    Args:
        target: value of `--on`, for messages.
        address: `ray://HOST:PORT`, or Ray's address of the cluster that this machine belongs to.

    Returns:
        A warning if the cluster is not on this machine.

    Raises:
        BadInput: nothing listens at the address, or another service.
    """
    if not address.startswith("ray://"):
        _discover_own(target, address)
        return None
    host, port = _host_and_port(target, address.removeprefix("ray://"))
    _check_service(target, host, port, _CLIENT_SERVER)
    return _remote_warning(target, host)


def _discover_own(target: str, address: str) -> None:
    """Check the cluster that this machine belongs to."""
    from ray._private.services import canonicalize_bootstrap_address

    try:
        found = canonicalize_bootstrap_address(address)
    except (ConnectionError, ValueError):
        found = None
    if found is None:
        raise BadInput(f"--on {target}: Ray is not running on this machine; start it with: ray start --head")
    host, _, port = found.rpartition(":")
    _check_service(target, host.strip("[]"), int(port), _HEAD)


def _host_and_port(target: str, text: str) -> tuple[str, int]:
    host, colon, port = text.rpartition(":")
    if not colon:
        host, port = text, str(_CLIENT_PORT)
    if not host or not re.fullmatch(r"\d{1,5}", port) or not 0 < int(port) < 65536:
        raise BadInput(
            f"--on {target}: invalid address: expected ray://HOST:PORT, such as ray://127.0.0.1:{_CLIENT_PORT}"
        )
    return host.strip("[]"), int(port)


def _check_service(target: str, host: str, port: int, service: _Service) -> None:
    """Check that the expected service listens."""
    try:
        with socket.create_connection((host, port), _CONNECT_SECONDS):
            pass
    except (OSError, UnicodeError) as error:  # UnicodeError: invalid host name
        reason = getattr(error, "strerror", None) or error
        raise BadInput(f"--on {target}: nothing listens at {host} port {port} ({reason}); {service.hint}") from None
    _check_method(target, host, port, service)


def _check_method(target: str, host: str, port: int, service: _Service) -> None:
    """Raise if the service lacks its method or does not use gRPC; Ray reports any other error itself."""
    if find_spec("grpc") is None or os.environ.get("RAY_USE_TLS", "0").lower() in ("1", "true"):
        return  # Ray reports missing packages; only Ray has the certificates
    import grpc

    address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    with grpc.insecure_channel(address, options=[("grpc.enable_http_proxy", 0)]) as channel:
        try:
            channel.unary_unary(service.method)(b"", timeout=_ANSWER_SECONDS)
            return
        except grpc.RpcError as error:
            code = error.code()
    if code is grpc.StatusCode.DEADLINE_EXCEEDED:
        problem = f"did not answer within {_ANSWER_SECONDS:.0f} s"
    elif code in (grpc.StatusCode.UNIMPLEMENTED, grpc.StatusCode.UNAVAILABLE):
        problem = "did not answer like one"
    else:
        return
    raise BadInput(
        f"--on {target}: the service at {host} port {port} is not a {service.name}: it {problem}; {service.hint}"
    )


def _remote_warning(target: str, host: str) -> str | None:
    try:
        addresses = {one[4][0] for one in socket.getaddrinfo(host, None)}
    except OSError:
        return None
    if all(ip_address(str(address).partition("%")[0]).is_loopback for address in addresses):
        return None
    return (
        f"--on {target}: {host} is not this machine; Ray has no authentication: anyone who can reach its ports"
        " can run programs there, so use a firewall or an SSH tunnel (docs/clusters.md)"
    )
