"""Real Ray nodes, on the loopback."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec
import psutil
import pytest

from polybench.core.errors import BadInput
from polybench.core.machines import MachineGroup
from polybench.fleet.run import run_fleet
from polybench.measuring.fleet_checkpoint import Fleet
from polybench.report.saved_studies import Store
from tests.fleet.fleets import At, fleet
from tests.fleet.ray_nodes import Nodes, ray_nodes
from tests.measuring.test_study import Listener

pytest.importorskip("ray")
pytestmark = [
    pytest.mark.slow,
    # What Ray's own processes and sockets leave behind is Ray's.
    pytest.mark.filterwarnings("ignore"),
]


@pytest.fixture(scope="module")
def nodes() -> Iterator[Nodes]:
    with ray_nodes("one", "two") as found:
        yield found


def on(asked: Fleet, *groups: MachineGroup) -> Fleet:
    return msgspec.structs.replace(asked, groups=groups, on="auto")


def test_a_class_that_nobody_offers_is_refused(
    nodes: Nodes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAY_ADDRESS", nodes.address)
    for group, says in (
        (MachineGroup(accelerator="H100"), "no node has the accelerator 'H100'; there are: none"),
        (MachineGroup(devices=("cuda",)), "no node of this cluster has a GPU"),
        (MachineGroup(resource="three"), "no node has the resource 'three'; there are: node, one, two"),
    ):
        with pytest.raises(BadInput, match=says):
            run_fleet(on(fleet(tmp_path), group), Listener(), store=None)


def test_a_node_killed_in_mid_study_is_replaced_and_all_rows_are_complete(
    nodes: Nodes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAY_ADDRESS", nodes.address)
    asked = on(
        fleet(tmp_path, processes=3),
        MachineGroup(label="first", resource="one"),
        MachineGroup(label="any", resource="node"),
    )
    started: list[psutil.Process] = []
    commands: list[str] = []

    def kill() -> None:
        there = psutil.Process(nodes.raylets["two"]).children(recursive=True)
        commands.extend(" ".join(one.cmdline()) for one in there)
        started.extend(nodes.kill("two"))

    listener = At("any: process 2 of 3: starting", kill)
    measured = run_fleet(asked, listener, store=Store(tmp_path / "r"))
    for machine in measured.machines:
        assert machine.document is not None, machine.failure
        assert [(row.status, len(row.steps)) for row in machine.document.results] == [("ok", 3)]
    taken_over = measured.machines[1].document
    assert taken_over is not None
    assert any("was lost" in text for text in taken_over.warnings)
    assert measured.unfinished is None
    assert any("polybench.fleet.node" in text for text in commands)
    psutil.wait_procs(started, timeout=10)
    assert [one for one in started if one.is_running()] == []
