"""What is wrong with a cluster is said in a sentence, and soon."""

from __future__ import annotations

import socket

import pytest

from polybench.core.errors import BadInput
from polybench.core.machines import MachineGroup
from polybench.fleet.ray_cluster import Cluster, Node, _not_loopback, _why_not, lacking

pytest.importorskip("ray")

NODES = [
    Node("1", "a", {"CPU": 4.0, "node:a": 1.0, "memory": 1e9, "big": 1.0}),
    Node("2", "b", {"CPU": 8.0, "GPU": 2.0, "accelerator_type:V100": 1.0, "object_store_memory": 1e9}),
]


def group(**fields: object) -> MachineGroup:
    return MachineGroup(label="x", **fields)  # type: ignore[arg-type]


def test_a_class_has_the_nodes_that_have_all_it_asks_for() -> None:
    assert [node.has(group()) for node in NODES] == [True, True]
    assert [node.has(group(resource="big")) for node in NODES] == [True, False]
    assert [node.has(group(accelerator="V100")) for node in NODES] == [False, True]
    assert [node.has(group(devices=("cuda",))) for node in NODES] == [False, True]
    assert [node.has(group(devices=("cpu", "cuda"))) for node in NODES] == [True, True]


@pytest.mark.parametrize(
    ("wanted", "nodes", "says"),
    [
        (group(accelerator="H100"), NODES, "no node has the accelerator 'H100'; there are: V100"),
        (group(resource="huge"), NODES, "no node has the resource 'huge'; there are: big"),
        (group(devices=("cuda",)), NODES[:1], "no node of this cluster has a GPU; leave cuda out"),
        (group(resource="big", accelerator="V100"), NODES, "no node has all that it asks for"),
    ],
)
def test_a_class_that_nobody_offers(wanted: MachineGroup, nodes: list[Node], says: str) -> None:
    why = lacking(wanted, nodes)
    assert why is not None
    assert why.startswith(says)
    assert lacking(group(), nodes) is None


@pytest.mark.parametrize("on", ["ray://", "ray://host:port", "ray://host:99999"])
def test_what_is_no_address(on: str) -> None:
    with pytest.raises(BadInput, match=r"write ray://HOST:PORT|nobody listens"):
        Cluster(on)


def test_nobody_listens() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    with pytest.raises(BadInput, match=rf"nobody listens at 127\.0\.0\.1 port {port} .*ray start --head"):
        Cluster(f"ray://127.0.0.1:{port}")


def test_no_ray_runs_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.9:1")
    with pytest.raises(BadInput, match=r"nobody listens at 127\.0\.0\.9 port 1"):
        Cluster("auto")


def test_other_versions_are_named() -> None:
    text = "Version mismatch: The cluster was started with:\n    Ray: 2.9.0\n    Python: 3.9.1\nThis process"
    assert _why_not(text, "2.60.0").startswith(
        "the cluster has Ray 2.9.0 and Python 3.9.1, here are Ray 2.60.0"
    )
    busy = "Traceback ... RuntimeError: Starting Ray client server failed. See ray_client_server_23000.err"
    assert _why_not(busy, "2.60.0").startswith("Ray's head could not start a server for this client")
    assert "no Ray client server" in _why_not("ray client connection timeout", "2.60.0")


def test_who_is_not_this_machine_is_warned_of() -> None:
    assert _not_loopback("ray://127.0.0.1:1", "127.0.0.1") is None
    assert "whoever reaches its ports runs programs" in (_not_loopback("ray://x", "192.0.2.77") or "")
