"""A Ray cluster on this machine: a head without CPUs, and nodes that can be killed."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
from collections.abc import Iterator
from typing import Any, NamedTuple

import psutil

from tests.processes import becomes_true

_ADDRESS = "127.0.0.2"
"""A loopback address that Ray does not replace by an external one."""


class Nodes(NamedTuple):
    """`address` is for RAY_ADDRESS, `client` for --on."""

    address: str
    client: str
    raylets: dict[str, int]
    """Process IDs of the raylets, by the resource that only this node has."""

    def kill(self, name: str) -> list[psutil.Process]:
        """Kill the raylet and Ray's workers; return the processes that these started, which have to end by
        themselves.
        """
        raylet = psutil.Process(self.raylets[name])
        ray_workers, started = raylet.children(), raylet.children(recursive=True)
        for process in [raylet, *ray_workers]:
            os.kill(process.pid, signal.SIGKILL)
        return [one for one in started if one not in ray_workers]


@contextlib.contextmanager
def ray_nodes(*names: str) -> Iterator[Nodes]:
    """Start nodes with two CPUs according to Ray, each with a resource of its name.

    Without names, the head is the node. Uploads need that: nodes of one machine share the folder of uploaded files,
    and each node unpacks them again, even while another one reads them.
    """
    with socket.socket() as probe:
        probe.bind((_ADDRESS, 0))
        port = probe.getsockname()[1]
    for timeout in ("RAY_raylet_start_wait_time_s", "RAY_gcs_server_request_timeout_seconds"):
        os.environ.setdefault(timeout, "120")  # machines are shared
    from ray.cluster_utils import Cluster

    common: dict[str, Any] = {"object_store_memory": 100 << 20, "node_ip_address": _ADDRESS}
    head = {"num_cpus": 0 if names else 2, "ray_client_server_port": port, "include_dashboard": False, **common}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    try:
        raylets = {}
        for name in names:
            node = cluster.add_node(num_cpus=2, resources={name: 1, "node": 1}, **common)
            raylets[name] = node.all_processes["raylet"][0].process.pid
        assert becomes_true(lambda: _listens(port))
        yield Nodes(cluster.address, f"ray://{_ADDRESS}:{port}", raylets)
    finally:
        cluster.shutdown()


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex((_ADDRESS, port)) == 0
