"""What the driver does of a Ray cluster's answers, without Ray: an object that answers in its place."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from polybench.core.machines import MachineGroup
from polybench.core.spec import Study
from polybench.fleet import ray_executor
from polybench.fleet.executor import Lost
from polybench.fleet.messages import Refused, Stage, Task
from polybench.fleet.program import this_program
from polybench.fleet.ray_cluster import Node
from polybench.fleet.ray_executor import RayExecutor
from polybench.fleet.ray_node import WANTED
from tests.fleet.fleets import study


class Actor:
    """Takes everything."""

    def __getattr__(self, name: str) -> Any:
        return SimpleNamespace(remote=lambda *_: object())

    def options(self, **_: object) -> Any:
        return SimpleNamespace(remote=Actor)


class Rays:
    """A cluster of two nodes; `says` is what every question is answered with, or what is raised."""

    warning = None

    def __init__(self, on: str, *, ship: bool) -> None:
        self.ray = self
        self.exceptions = SimpleNamespace(RayError=KeyError)
        self.says: list[Any] | Exception = []

    def remote(self, kind: object) -> Actor:
        return Actor()

    def nodes(self) -> list[Node]:
        return [Node(name, name, {"CPU": 2}) for name in ("n1", "n2")]

    def on_node(self, node: Node, **more: object) -> dict[str, object]:
        return more

    def wait(self, questions: list[Any], num_returns: int, timeout: float) -> tuple[list[Any], list[Any]]:
        return questions, []

    def get(self, answer: object) -> list[Any]:
        if isinstance(self.says, Exception):
            raise self.says
        return self.says

    def put(self, content: bytes) -> object:
        return content

    def kill(self, actor: object) -> None: ...

    def close(self) -> None: ...


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> RayExecutor:
    monkeypatch.setattr(ray_executor, "Cluster", Rays)
    runs = RayExecutor("ray://head")
    for label in "abc":
        task = Task(id=label, created="", study=study(tmp_path), program=this_program())
        runs.start(MachineGroup(label=label), task)
    assert [(one.label, type(one.message)) for one in runs.events(0)] == [("a", Stage), ("b", Stage)]
    return runs


def test_nodes_of_one_host_are_numbered(runs: RayExecutor, monkeypatch: pytest.MonkeyPatch) -> None:
    nodes = [
        Node("1", "b", {"CPU": 2}),
        Node("2", "a", {"CPU": 2}),
        Node("3", "a", {"CPU": 1}),
        Node("4", "h", {}),
    ]
    monkeypatch.setattr(Rays, "nodes", lambda _: nodes)
    assert [(one.group.label, one.hostname) for one in runs.machines()] == [
        ("a", "a"),
        ("a-2", "a"),
        ("b", "b"),
    ]


def test_a_cluster_that_goes_away_loses_every_group(runs: RayExecutor) -> None:
    runs._ray.says = ConnectionError("Failed to reconnect within the grace period")
    events = runs.events(0)
    assert sorted(one.label for one in events) == ["a", "b", "c"]
    reason = "the cluster is gone: Failed to reconnect within the grace period"
    assert {one.message for one in events} == {Lost(reason, again=False)}
    assert runs.events(0) == []


def test_images_that_cannot_be_sent_end_only_their_group(
    runs: RayExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("polybench.fleet.packed.LARGEST_BYTES", 1)
    runs._ray.says = [WANTED]
    ended = {one.label: one.message for one in runs.events(0) if isinstance(one.message, Refused)}
    assert list(ended) == ["a", "b"]
    assert "GiB are too many to be sent" in ended["a"].text
    assert next(iter(runs._running.values())).label == "c"


def test_a_name_of_data_is_no_folder_that_lies_here(
    runs: RayExecutor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("cifar10", "mine"):
        (tmp_path / name).mkdir()
    found = {
        name: runs._data_of(Task(id="d", created="", study=Study(data=name), program=this_program()))
        for name in ("cifar10", "mine")
    }
    assert found["cifar10"] is None
    assert found["mine"] is not None
