"""The Ray executor, with a simulated cluster in place of Ray, and with real nodes on the loopback interface."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import msgspec
import psutil
import pytest

from polybench.cluster import ray as ray_module
from polybench.cluster.executor import make_executor
from polybench.cluster.messages import (
    Finished,
    NodeLost,
    Rejected,
    StageChanged,
    Task,
    WarningRaised,
    current_fingerprint,
)
from polybench.cluster.ray import (
    RayExecutor,
    RayNode,
    _remote_warning,
    check_address,
    connect,
    explain_connection,
    missing_resources,
)
from polybench.cluster.run import run_on_cluster
from polybench.errors import BadInput
from polybench.parity_check import check as check_module
from polybench.runner.checkpoint import ClusterRun
from polybench.runner.prepare import new_header
from polybench.schema.options import MachineGroup, Study
from polybench.storage.store import Store
from tests.cluster.cluster_runs import ActAtStage, cluster_run, study
from tests.cluster.ray_nodes import Nodes, ray_nodes
from tests.lazy import needs
from tests.processes import have_ended
from tests.runner.studies import RecordingProgress

pytestmark = needs("ray")


@pytest.mark.parametrize("target", ["ray://", "ray://host:port", "ray://host:99999"])
def test_invalid_address_is_rejected(target: str) -> None:
    with pytest.raises(BadInput, match=r"expected ray://HOST:PORT|nothing listens"):
        check_address(target, target)


def test_closed_port_is_reported_with_a_hint() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    message = rf"nothing listens at 127\.0\.0\.1 port {port} .*ray start --head starts a client server at port 10001"
    with pytest.raises(BadInput, match=message):
        check_address("ray://", f"ray://127.0.0.1:{port}")
    with pytest.raises(BadInput, match=r"nothing listens at 127\.0\.0\.9 port 1 .*set RAY_ADDRESS"):
        check_address("auto", "127.0.0.9:1")
    with pytest.raises(BadInput, match=r"nothing listens at a\.\.b port 10001"):
        check_address("ray://a..b:10001", "ray://a..b:10001")


@contextlib.contextmanager
def listening(act: Callable[[socket.socket], object]) -> Iterator[int]:
    """Yield the port of a server that calls `act` with each connection."""

    def serve() -> None:
        with contextlib.suppress(OSError):  # the server is closed
            while True:
                connection = server.accept()[0]
                connections.append(connection)
                act(connection)

    connections: list[socket.socket] = []
    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield server.getsockname()[1]
        finally:
            server.shutdown(socket.SHUT_RDWR)
            thread.join()
    for connection in connections:
        connection.close()


@pytest.mark.parametrize(
    ("act", "problem"),
    [
        (lambda _: None, "did not answer within 0 s"),
        (lambda connection: connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n"), "did not answer like one"),
        (lambda connection: connection.close(), "did not answer like one"),
    ],
    ids=["silent", "http", "closes"],
)
def test_other_services_are_rejected_before_ray_connects(
    act: Callable[[socket.socket], object], problem: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("grpc")
    monkeypatch.setattr(ray_module, "_ANSWER_SECONDS", 0.2 if "0 s" in problem else 60.0)
    message = f"is not a Ray client server: it {problem}; ray start"
    with listening(act) as port, pytest.raises(BadInput, match=message):
        check_address("ray://", f"ray://127.0.0.1:{port}")


def test_other_grpc_services_are_rejected() -> None:
    grpc = pytest.importorskip("grpc")
    server = grpc.server(ThreadPoolExecutor(1))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        with pytest.raises(BadInput, match="is not a Ray client server: it did not answer like one"):
            check_address("ray://", f"ray://127.0.0.1:{port}")
    finally:
        server.stop(None).wait()


def test_remote_address_has_a_security_warning() -> None:
    assert _remote_warning("ray://127.0.0.1:1", "127.0.0.1") is None
    assert "anyone who can reach its ports can run programs" in (_remote_warning("ray://x", "192.0.2.77") or "")


NODES = [
    RayNode("1", "a", {"CPU": 4.0, "node:a": 1.0, "memory": 1e9, "big": 1.0}),
    RayNode("2", "b", {"CPU": 8.0, "GPU": 2.0, "accelerator_type:V100": 1.0, "object_store_memory": 1e9}),
]


def group(**fields: Any) -> MachineGroup:
    return MachineGroup(label="x", **fields)


@pytest.mark.parametrize(
    ("wanted", "satisfied"),
    [
        (group(), [True, True]),
        (group(resources="big"), [True, False]),
        (group(accelerator="V100"), [False, True]),
        (group(devices=("cuda",)), [False, True]),
        (group(devices=("cpu", "cuda")), [True, True]),
    ],
)
def test_node_satisfies_a_class_if_it_has_all_its_resources(wanted: MachineGroup, satisfied: list[bool]) -> None:
    assert [node.satisfies(wanted) for node in NODES] == satisfied
    assert missing_resources(wanted, NODES) is None


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
    assert (missing_resources(wanted, nodes) or "").startswith(message)


@pytest.mark.parametrize(
    ("text", "explanation"),
    [
        (
            "Version mismatch: The cluster was started with:\n    Ray: 2.9.0\n    Python: 3.9.1\nThis process",
            "the cluster has Ray 2.9.0 and Python 3.9.1, but this machine has Ray 2.60.0",
        ),
        (
            "RuntimeError: Starting Ray client server failed. See ray_client_server_23000.err",
            "Ray's head could not start",
        ),
        ("refused\n  by the head", "refused by the head"),
    ],
)
def test_failed_connection_is_explained(text: str, explanation: str) -> None:
    assert explain_connection(text, "2.60.0").startswith(explanation)


def test_busy_head_gets_a_second_attempt(monkeypatch: pytest.MonkeyPatch) -> None:
    ray = Mock(__version__="2.60.0", is_initialized=lambda: False)
    monkeypatch.setitem(sys.modules, "ray", ray)
    slow = ConnectionError("RuntimeError: Starting Ray client server failed. See ray_client_server_23000.err")
    for errors, calls, message in (
        ([slow, None], 2, None),
        ([slow, slow], 2, "within 30 s, in two attempts; it may be busy"),
        ([ConnectionError("refused")], 1, "refused"),
    ):
        ray.init = Mock(side_effect=errors)
        with pytest.raises(BadInput, match=message) if message else contextlib.nullcontext():
            connect("ray://x:1", "ray://x:1", upload=False)
        assert ray.init.call_count == calls


class Actor:
    """Accepts any call."""

    def __getattr__(self, name: str) -> Any:
        return SimpleNamespace(remote=lambda *_: object())

    def options(self, **_: object) -> Any:
        return SimpleNamespace(remote=lambda *_: Actor())


class FakeRay:
    """Ray with two nodes; `answer` is the result of every request, or the exception that it raises."""

    def __init__(self) -> None:
        self.exceptions = SimpleNamespace(RayError=KeyError)
        self.answer: list[Any] | Exception | None = []
        self.found = [RayNode(digit * 56, f"n{digit}", {"CPU": 2}) for digit in "12"]

    def remote(self, kind: object) -> Actor:
        return Actor()

    def nodes(self) -> list[dict[str, Any]]:
        return [
            {"NodeID": id, "NodeManagerHostname": host, "Resources": resources, "Alive": True}
            for id, host, resources in self.found
        ]

    def wait(self, requests: list[Any], num_returns: int, timeout: float) -> tuple[list[Any], list[Any]]:
        return requests, []

    def get(self, request: object) -> list[Any] | None:
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    def put(self, content: bytes) -> object:
        return content

    def kill(self, actor: object) -> None: ...

    def shutdown(self) -> None: ...


@pytest.fixture
def ray() -> FakeRay:
    return FakeRay()


@pytest.fixture
def executor(ray: FakeRay, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[RayExecutor]:
    monkeypatch.setattr(ray_module, "check_address", lambda *_: None)
    monkeypatch.setattr(ray_module, "connect", lambda *_, upload: ray)
    executor = RayExecutor("ray://head")
    for label in "abc":
        task = Task(header=new_header(), study=study(tmp_path), fingerprint=current_fingerprint())
        executor.start(MachineGroup(label=label), task)
    events = [(one.label, type(one.message)) for one in executor.events(0)]
    assert events == [("a", StageChanged), ("b", StageChanged)]
    yield executor
    executor.close()


def test_nodes_of_one_host_are_numbered(executor: RayExecutor, ray: FakeRay) -> None:
    resources: list[dict[str, float]] = [{"CPU": 2}, {"CPU": 2}, {"CPU": 1}, {}]
    ray.found = [RayNode(str(index), host, resources[index]) for index, host in enumerate("baah")]
    assert [(one.group.label, one.hostname) for one in executor.nodes()] == [("a", "a"), ("a-2", "a"), ("b", "b")]


def test_lost_cluster_ends_every_group(executor: RayExecutor, ray: FakeRay) -> None:
    ray.answer = ConnectionError("Failed to reconnect within the grace period")
    events = executor.events(0)
    assert sorted(one.label for one in events) == ["a", "b", "c"]
    reason = "the connection to the cluster was lost: Failed to reconnect within the grace period"
    assert {one.message for one in events} == {NodeLost(reason, can_retry=False)}
    assert executor.events(0) == []


def test_waiting_group_gets_the_node_of_a_group_that_ended(executor: RayExecutor, ray: FakeRay) -> None:
    ray.answer = [WarningRaised("slow"), Finished()]
    events = [(one.label, type(one.message)) for one in executor.events(0)]
    assert events[:4] == [("a", WarningRaised), ("a", Finished), ("b", WarningRaised), ("b", Finished)]
    assert events[4:] == [("c", StageChanged)]


def test_images_are_sent_to_nodes_that_lack_them(executor: RayExecutor, ray: FakeRay) -> None:
    ray.answer = None
    assert [one.message for one in executor.events(0)] == [StageChanged("receiving images")] * 2
    assert len(executor._uploaded_data) == 1


def test_images_that_cannot_be_sent_fail_only_their_group(
    executor: RayExecutor, ray: FakeRay, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("polybench.cluster.ray_node.MAX_UPLOAD_BYTES", 1)
    ray.answer = None  # each node lacks the images
    ended = {one.label: one.message for one in executor.events(0) if isinstance(one.message, Rejected)}
    assert list(ended) == ["a", "b"]
    assert "GiB are too large to send" in ended["a"].text
    assert next(iter(executor._running.values())).label == "c"


def test_name_of_a_data_set_is_not_a_folder_to_send(
    executor: RayExecutor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    task = Task(header=new_header(), study=Study(), fingerprint=current_fingerprint())
    for name, is_sent in (("cifar10", False), ("mine", True)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "data_batch_1.bin").touch()
        data = executor._describe_data(msgspec.structs.replace(task, study=Study(data=name)))
        assert (data is not None) == is_sent


def test_upload_needs_ray() -> None:
    with pytest.raises(BadInput, match="--on local already runs the polybench of this machine"):
        make_executor("local", upload=True)


def uploaded(environment: dict[str, Any], folder: Path) -> list[str]:
    """Unpack what Ray sends into the folder, and return its files."""
    from ray._private.runtime_env.packaging import create_package, unzip_package

    package = folder.with_suffix(".zip")
    create_package(environment["working_dir"], package, include_gitignore=True)
    unzip_package(package, str(folder), remove_top_level_directory=False, unlink_zip=True)
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def test_upload_has_the_fingerprint_of_this_program(tmp_path: Path) -> None:
    folder, root = tmp_path / "folder", Path(ray_module.__file__).parents[2]
    sent = uploaded(ray_module.runtime_env(tmp_path / "copy"), folder)
    tracked = subprocess.run(
        ["git", "-C", root, "ls-files", "polybench", "julia/src", "julia/ext", "julia/models", "julia/Project.toml"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert {*tracked.stdout.split()} <= {*sent}
    program = "from polybench.cluster.messages import current_fingerprint as p; print(p().source_sha256)"
    command = [sys.executable, "-c", f"import polybench; {program}; print(polybench.__file__)"]
    variables = os.environ | {"PYTHONPATH": str(folder)}
    output = subprocess.run(command, env=variables, cwd="/", capture_output=True, text=True, check=True).stdout
    assert output.split() == [current_fingerprint().source_sha256, str(folder / "polybench" / "__init__.py")]


SECRET_FILES = (
    *(".env", ".git/config", "id_rsa", "server.pem", ".netrc", ".aws/credentials", ".ssh/id_ed25519", "results/x.json"),
    *("[secret].env", "!secret", "#secret", "a b", "line\nbreak", "secret.json", "__pycache__/x.pyc", "data/x.bin"),
)


def test_upload_contains_only_files_of_polybench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package, root = Path(ray_module.__file__).parents[1], tmp_path / "site-packages"
    shutil.copytree(package, root / "polybench", ignore=shutil.ignore_patterns("__pycache__"))
    for folder in (root, root / "polybench", root / "polybench" / "cluster", root / "other_package"):
        for name in SECRET_FILES:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text("secret")
    (outside := tmp_path / "outside").mkdir()
    (outside / "key.py").write_text("secret")
    (root / "polybench" / "linked").symlink_to(outside)
    (root / "polybench" / "linked.py").symlink_to(outside / "key.py")
    (root / "polybench" / "html_report" / "templates" / "linked.js").symlink_to(outside / "key.py")
    monkeypatch.setattr(ray_module, "__file__", str(root / "polybench" / "cluster" / "ray.py"))
    monkeypatch.setattr(check_module, "__file__", str(root / "polybench" / "parity_check" / "check.py"))
    sent = uploaded(ray_module.runtime_env(tmp_path / "copy"), tmp_path / "folder")
    assert "polybench/html_report/templates/report.css" in sent
    assert {path.suffix for path in map(Path, sent)} <= {".py", ".json", ".j2", ".css", ".js", ".typed", ".toml", ".jl"}
    assert not [name for name in sent if "secret" in (tmp_path / "folder" / name).read_text().splitlines()]


@pytest.fixture(scope="module")
def nodes() -> Iterator[Nodes]:
    with ray_nodes("one", "two") as found:
        yield found


def on_ray(cluster: ClusterRun, *groups: MachineGroup) -> ClusterRun:
    return msgspec.structs.replace(cluster, groups=groups, on="auto")


@pytest.mark.wide  # starts Ray; a killed node is replaced below
@pytest.mark.filterwarnings("ignore")  # Ray's processes and sockets cause warnings
def test_missing_class_of_nodes_is_rejected(nodes: Nodes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_ADDRESS", nodes.address)
    for group, message in (
        (MachineGroup(accelerator="H100"), "no node has the accelerator 'H100'; available: none"),
        (MachineGroup(devices=("cuda",)), "no node of this cluster has a GPU"),
        (MachineGroup(resources="three"), "no node has the resource 'three'; available: node, one, two"),
    ):
        with pytest.raises(BadInput, match=message):
            run_on_cluster(on_ray(cluster_run(tmp_path), group), RecordingProgress(), store=None)


@pytest.mark.wide  # starts Ray for 30 s; the fake Ray has the calls, and test_local_executor.py replaces a killed node
@pytest.mark.filterwarnings("ignore")
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
        for process in psutil.Process(nodes.raylets["two"]).children(recursive=True):
            with contextlib.suppress(psutil.NoSuchProcess):  # of one that ended in the meantime
                commands.append(" ".join(process.cmdline()))
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
    assert have_ended(started)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.wide  # starts a cluster of real nodes; the simulated one has the message
def test_node_with_another_polybench_is_rejected_unless_uploaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("grpc")
    package = Path(ray_module.__file__).parents[1]
    installed = Path(shutil.copytree(package, tmp_path / "installed" / "polybench"))
    version = installed / "errors.py"
    version.write_text(version.read_text().replace(current_fingerprint().version, "0.0.1"))
    monkeypatch.setenv("PYTHONPATH", str(installed.parent))
    with ray_nodes() as nodes:
        cluster = msgspec.structs.replace(cluster_run(tmp_path, processes=1), on=nodes.client)
        message = r"it has polybench 0\.0\.1, but the driver .*; or --upload sends the driver's polybench to it"
        with pytest.raises(BadInput, match=message):
            run_on_cluster(cluster, RecordingProgress(), store=None)
        uploaded = msgspec.structs.replace(cluster, upload=True)
        (machine,) = run_on_cluster(uploaded, RecordingProgress(), store=None).machines
    assert machine.document is not None
    assert machine.document.polybench.version == current_fingerprint().version
    assert [result.status for result in machine.document.results] == ["ok"]
