"""What is wrong with a cluster is said in a sentence, and soon."""

from __future__ import annotations

from unittest.mock import Mock

import pytest

from polybench.core.errors import BadInput
from polybench.core.machines import MachineGroup
from polybench.fleet.ray_cluster import Cluster, Node, _why_not, lacking

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


def test_other_versions_are_named() -> None:
    text = "Version mismatch: The cluster was started with:\n    Ray: 2.9.0\n    Python: 3.9.1\nThis process"
    assert _why_not(text, "2.60.0").startswith(
        "the cluster has Ray 2.9.0 and Python 3.9.1, here are Ray 2.60.0"
    )
    busy = "Traceback ... RuntimeError: Starting Ray client server failed. See ray_client_server_23000.err"
    assert _why_not(busy, "2.60.0").startswith("Ray's head could not start a server for this client")


def test_a_head_that_is_slow_once_is_asked_again() -> None:
    cluster = object.__new__(Cluster)
    cluster.ray = Mock(__version__="2.60.0")
    slow = ConnectionError("RuntimeError: Starting Ray client server failed. See ray_client_server_23000.err")
    cluster.ray.init.side_effect = [slow, None]
    cluster._connect("ray://x:1", "ray://x:1", None)
    cluster.ray.init.side_effect = slow
    with pytest.raises(BadInput, match="within 30 s, twice; is it busy"):
        cluster._connect("ray://x:1", "ray://x:1", None)
    assert cluster.ray.init.call_count == 4
    cluster.ray.init.side_effect = ConnectionError("nobody")
    with pytest.raises(BadInput, match="nobody"):
        cluster._connect("ray://x:1", "ray://x:1", None)
    assert cluster.ray.init.call_count == 5
