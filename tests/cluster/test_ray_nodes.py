"""Cluster runs on real Ray nodes, on the loopback interface."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec
import psutil
import pytest

from polybench.cluster.run import run_on_cluster
from polybench.errors import BadInput
from polybench.runner.checkpoint import ClusterRun
from polybench.schema.options import MachineGroup
from polybench.storage.store import Store
from tests.cluster.cluster_runs import ActAtStage, cluster_run
from tests.cluster.ray_nodes import Nodes, ray_nodes
from tests.runner.test_study import RecordingProgress

pytest.importorskip("ray")
pytestmark = [
    pytest.mark.slow,
    # Ray's processes and sockets cause warnings.
    pytest.mark.filterwarnings("ignore"),
]


@pytest.fixture(scope="module")
def nodes() -> Iterator[Nodes]:
    with ray_nodes("one", "two") as found:
        yield found


def on_ray(cluster: ClusterRun, *groups: MachineGroup) -> ClusterRun:
    return msgspec.structs.replace(cluster, groups=groups, on="auto")


def test_missing_class_of_nodes_is_rejected(nodes: Nodes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_ADDRESS", nodes.address)
    for group, message in (
        (MachineGroup(accelerator="H100"), "no node has the accelerator 'H100'; available: none"),
        (MachineGroup(devices=("cuda",)), "no node of this cluster has a GPU"),
        (MachineGroup(resources="three"), "no node has the resource 'three'; available: node, one, two"),
    ):
        with pytest.raises(BadInput, match=message):
            run_on_cluster(on_ray(cluster_run(tmp_path), group), RecordingProgress(), store=None)


def test_node_killed_during_a_study_is_replaced(nodes: Nodes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_ADDRESS", nodes.address)
    cluster = on_ray(
        cluster_run(tmp_path, processes=3),
        MachineGroup(label="first", resources="one"),
        MachineGroup(label="any", resources="node"),
    )
    started: list[psutil.Process] = []
    commands: list[str] = []

    def kill() -> None:
        processes = psutil.Process(nodes.raylets["two"]).children(recursive=True)
        commands.extend(" ".join(one.cmdline()) for one in processes)
        started.extend(nodes.kill("two"))

    listener = ActAtStage("any: process 2 of 3: starting", kill)
    result = run_on_cluster(cluster, listener, store=Store(tmp_path / "r"))
    for machine in result.machines:
        assert machine.document is not None, machine.failure
        assert [(row.status, len(row.nested_step_times)) for row in machine.document.results] == [("ok", 3)]
    replaced = result.machines[1].document
    assert replaced is not None
    assert any("was lost" in text for text in replaced.warnings)
    assert result.unfinished_id is None
    assert any("polybench.cluster.node" in text for text in commands)
    psutil.wait_procs(started, timeout=10)
    assert [one for one in started if one.is_running()] == []
