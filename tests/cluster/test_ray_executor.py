"""The Ray executor, with a fake cluster in place of Ray."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from polybench.cluster import ray_executor
from polybench.cluster.executor import NodeLost
from polybench.cluster.messages import Rejected, StageChanged, Task, current_fingerprint
from polybench.cluster.ray_cluster import RayNode
from polybench.cluster.ray_executor import RayExecutor
from polybench.cluster.ray_node import DATA_REQUEST
from polybench.schema.options import MachineGroup, Study
from tests.cluster.cluster_runs import study


class Actor:
    """Accepts any call."""

    def __getattr__(self, name: str) -> Any:
        return SimpleNamespace(remote=lambda *_: object())

    def options(self, **_: object) -> Any:
        return SimpleNamespace(remote=Actor)


class FakeRayCluster:
    """A cluster of two nodes; `answer` is the result of every request, or the exception that it raises."""

    warning = None

    def __init__(self, target: str, *, upload: bool) -> None:
        self.ray = self
        self.exceptions = SimpleNamespace(RayError=KeyError)
        self.answer: list[Any] | Exception = []

    def remote(self, kind: object) -> Actor:
        return Actor()

    def nodes(self) -> list[RayNode]:
        return [RayNode(name, name, {"CPU": 2}) for name in ("n1", "n2")]

    def node_options(self, node: RayNode, **options: object) -> dict[str, object]:
        return options

    def wait(self, requests: list[Any], num_returns: int, timeout: float) -> tuple[list[Any], list[Any]]:
        return requests, []

    def get(self, request: object) -> list[Any]:
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    def put(self, content: bytes) -> object:
        return content

    def kill(self, actor: object) -> None: ...

    def close(self) -> None: ...


@pytest.fixture
def executor(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> RayExecutor:
    monkeypatch.setattr(ray_executor, "RayCluster", FakeRayCluster)
    executor = RayExecutor("ray://head")
    for label in "abc":
        task = Task(id=label, created="", study=study(tmp_path), fingerprint=current_fingerprint())
        executor.start(MachineGroup(label=label), task)
    assert [(one.label, type(one.message)) for one in executor.events(0)] == [
        ("a", StageChanged),
        ("b", StageChanged),
    ]
    return executor


def test_nodes_of_one_host_are_numbered(executor: RayExecutor, monkeypatch: pytest.MonkeyPatch) -> None:
    nodes = [
        RayNode("1", "b", {"CPU": 2}),
        RayNode("2", "a", {"CPU": 2}),
        RayNode("3", "a", {"CPU": 1}),
        RayNode("4", "h", {}),
    ]
    monkeypatch.setattr(FakeRayCluster, "nodes", lambda _: nodes)
    assert [(one.group.label, one.hostname) for one in executor.nodes()] == [
        ("a", "a"),
        ("a-2", "a"),
        ("b", "b"),
    ]


def test_lost_cluster_ends_every_group(executor: RayExecutor) -> None:
    executor._ray.answer = ConnectionError("Failed to reconnect within the grace period")
    events = executor.events(0)
    assert sorted(one.label for one in events) == ["a", "b", "c"]
    reason = "the connection to the cluster was lost: Failed to reconnect within the grace period"
    assert {one.message for one in events} == {NodeLost(reason, can_retry=False)}
    assert executor.events(0) == []


def test_images_that_cannot_be_sent_fail_only_their_group(
    executor: RayExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("polybench.cluster.ray_node.MAX_UPLOAD_BYTES", 1)
    executor._ray.answer = [DATA_REQUEST]
    ended = {one.label: one.message for one in executor.events(0) if isinstance(one.message, Rejected)}
    assert list(ended) == ["a", "b"]
    assert "GiB are too large to send" in ended["a"].text
    assert next(iter(executor._running.values())).label == "c"


def test_name_of_a_data_set_is_not_a_folder_to_send(
    executor: RayExecutor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("cifar10", "mine"):
        (tmp_path / name).mkdir()
    found = {
        name: executor._data_to_send(
            Task(id="d", created="", study=Study(data=name), fingerprint=current_fingerprint())
        )
        for name in ("cifar10", "mine")
    }
    assert found["cifar10"] is None
    assert found["mine"] is not None
