"""Errors of a Ray cluster, each reported as one sentence within seconds."""

from __future__ import annotations

from unittest.mock import Mock

import pytest

from polybench.cluster.ray_cluster import RayCluster, RayNode, _explain, missing_resources
from polybench.errors import BadInput
from polybench.schema.options import MachineGroup

pytest.importorskip("ray")

NODES = [
    RayNode("1", "a", {"CPU": 4.0, "node:a": 1.0, "memory": 1e9, "big": 1.0}),
    RayNode("2", "b", {"CPU": 8.0, "GPU": 2.0, "accelerator_type:V100": 1.0, "object_store_memory": 1e9}),
]


def group(**fields: object) -> MachineGroup:
    return MachineGroup(label="x", **fields)  # type: ignore[arg-type]


def test_node_satisfies_a_class_if_it_has_all_its_resources() -> None:
    assert [node.satisfies(group()) for node in NODES] == [True, True]
    assert [node.satisfies(group(resources="big")) for node in NODES] == [True, False]
    assert [node.satisfies(group(accelerator="V100")) for node in NODES] == [False, True]
    assert [node.satisfies(group(devices=("cuda",))) for node in NODES] == [False, True]
    assert [node.satisfies(group(devices=("cpu", "cuda"))) for node in NODES] == [True, True]


@pytest.mark.parametrize(
    ("wanted", "nodes", "message"),
    [
        (group(accelerator="H100"), NODES, "no node has the accelerator 'H100'; available: V100"),
        (group(resources="huge"), NODES, "no node has the resource 'huge'; available: big"),
        (group(devices=("cuda",)), NODES[:1], "no node of this cluster has a GPU; remove cuda"),
        (group(resources="big", accelerator="V100"), NODES, "no node has all requested resources"),
    ],
)
def test_missing_resources_are_named(wanted: MachineGroup, nodes: list[RayNode], message: str) -> None:
    reason = missing_resources(wanted, nodes)
    assert reason is not None
    assert reason.startswith(message)
    assert missing_resources(group(), nodes) is None


def test_other_versions_and_a_busy_head_are_explained() -> None:
    text = "Version mismatch: The cluster was started with:\n    Ray: 2.9.0\n    Python: 3.9.1\nThis process"
    assert _explain(text, "2.60.0").startswith(
        "the cluster has Ray 2.9.0 and Python 3.9.1, but this machine has Ray 2.60.0"
    )
    busy = "Traceback ... RuntimeError: Starting Ray client server failed. See ray_client_server_23000.err"
    assert _explain(busy, "2.60.0").startswith("Ray's head could not start a server for this client")


def test_busy_head_gets_a_second_attempt() -> None:
    cluster = object.__new__(RayCluster)
    cluster.ray = Mock(__version__="2.60.0")
    slow = ConnectionError("RuntimeError: Starting Ray client server failed. See ray_client_server_23000.err")
    cluster.ray.init.side_effect = [slow, None]
    cluster._connect("ray://x:1", "ray://x:1", None)
    cluster.ray.init.side_effect = slow
    with pytest.raises(BadInput, match="within 30 s, in two attempts; it may be busy"):
        cluster._connect("ray://x:1", "ray://x:1", None)
    assert cluster.ray.init.call_count == 4
    cluster.ray.init.side_effect = ConnectionError("refused")
    with pytest.raises(BadInput, match="refused"):
        cluster._connect("ray://x:1", "ray://x:1", None)
    assert cluster.ray.init.call_count == 5
