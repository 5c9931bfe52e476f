"""Cluster runs on this machine: real node programs, real workers of the engine `fake`."""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import time
from pathlib import Path
from typing import Any, ClassVar

import msgspec
import psutil
import pytest
from typer.testing import CliRunner

from polybench.cli import app
from polybench.cluster import driver, local
from polybench.cluster.driver import ClusterResult
from polybench.cluster.executor import Event
from polybench.cluster.local import LocalExecutor, NodeProcess
from polybench.cluster.messages import (
    Fingerprint,
    Finished,
    Message,
    NodeLost,
    StageChanged,
    Task,
    current_fingerprint,
    encode_line,
)
from polybench.cluster.run import resume_on_cluster, run_on_cluster
from polybench.errors import BadInput, RequiredEngineMissing
from polybench.log import Header, read_log
from polybench.log import encode_line as encode_event
from polybench.protocol.interpreter import Interpreter
from polybench.results.document import derive
from polybench.run import run_study
from polybench.runner.checkpoint import (
    CheckpointStore,
    ClusterRun,
    ResumableRun,
    discard,
    find_resumable,
    find_unfinished,
    select_machines,
)
from polybench.runner.prepare import new_header
from polybench.runner.resume import unfinished_ids
from polybench.schema.options import MachineGroup, Study
from polybench.schema.study import StudyDocument
from polybench.storage.store import Store
from tests.cluster.cluster_runs import ActAtStage, cluster_run, study
from tests.processes import have_ended
from tests.runner.studies import RecordingProgress


def node_programs() -> list[psutil.Process]:
    """Return the running node programs of this process."""
    programs = [one._process.pid for one in gc.get_objects() if type(one) is NodeProcess]
    return [child for child in psutil.Process().children() if child.pid in programs]


def workers_of(node: psutil.Process) -> list[psutil.Process]:
    """Return the workers of a node program: each has a session of its own."""
    return [child for child in node.children() if os.getsid(child.pid) == child.pid]


def kill_the_node() -> None:
    for child in node_programs():
        os.kill(child.pid, signal.SIGKILL)


def only_document(result: ClusterResult) -> StudyDocument:
    (machine,) = result.machines
    assert machine.document is not None
    return machine.document


def run(cluster: ClusterRun, folder: Path, listener: RecordingProgress | None = None, **more: Any) -> ClusterResult:
    return run_on_cluster(cluster, listener or RecordingProgress(), store=Store(folder), **more)


class Process:
    """A node program that ends at once, or when it is stopped."""

    started: ClassVar[list[Task]] = []

    def __init__(self, task: Task) -> None:
        self.started.append(task)
        self._ends = not task.strict

    def is_readable(self, seconds: float) -> bool:
        return self._ends

    def receive(self) -> list[Message]:
        return [Finished()]

    def stop(self) -> None:
        self._ends = True

    def close(self) -> None: ...


@pytest.fixture
def tasks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Task]:
    """The tasks of started node programs."""
    monkeypatch.setattr(local, "NodeProcess", Process)
    monkeypatch.setattr(Process, "started", [])
    return Process.started


def queued(*labels: str, **fields: bool) -> LocalExecutor:
    executor = LocalExecutor("local")
    for label in labels:
        header = msgspec.structs.replace(new_header(), id=label)
        task = Task(header=header, study=Study(), fingerprint=current_fingerprint(), **fields)
        executor.start(MachineGroup(label=label), task)
    return executor


def test_groups_run_in_the_order_in_which_they_were_started(tasks: list[Task]) -> None:
    executor = queued("a", "b", "c")
    assert [event.label for _ in range(3) for event in executor.events(0.0)] == ["a", "b", "c"]
    assert [task.header.id for task in tasks] == ["a", "b", "c"]


def test_several_groups_on_this_machine_are_a_warning() -> None:
    executor = LocalExecutor("local")
    assert executor.check([MachineGroup(label="a")]) == []
    groups = [MachineGroup(label=label) for label in "ab"]
    assert executor.check(groups) == ["--on local: a, b all run on this machine, one after another"]


def test_a_node_program_that_ends_has_its_last_lines_in_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (node := tmp_path / "node").write_text("#!/bin/sh\nread task; printf '1\\n2\\n\\n 3\\n4\\n' >&2; exit 7\n")
    node.chmod(0o755)
    monkeypatch.setattr(local, "OWN_INTERPRETER", Interpreter(str(node)))
    with contextlib.closing(queued("a")) as executor:
        assert executor.events(60.0) == [Event("a", NodeLost("the node program exited with code 7; 2; 3; 4"))]


def test_groups_that_wait_do_not_start_after_a_stop(tasks: list[Task]) -> None:
    executor = queued("a", "b", strict=True)
    assert executor.events(0.0) == []
    executor.stop()
    lost, finished, *nothing = (executor.events(0.0) for _ in range(4))
    assert [(event.label, type(event.message)) for event in (*lost, *finished)] == [("b", NodeLost), ("a", Finished)]
    assert nothing == [[], []]
    assert [task.header.id for task in tasks] == ["a"]


def test_a_message_that_arrives_in_two_parts_is_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    line = encode_line(StageChanged("measuring")).decode().rstrip()
    parts = f"printf '%s' '{line[:9]}'; until [ -e {tmp_path}/go ]; do :; done; echo '{line[9:]}'"
    (node := tmp_path / "node").write_text(f"#!/bin/sh\nread task; {parts}\n")
    node.chmod(0o755)
    monkeypatch.setattr(local, "OWN_INTERPRETER", Interpreter(str(node)))
    executor = queued("a")
    with contextlib.closing(executor):
        assert executor.events(60.0) == []
        (tmp_path / "go").touch()
        assert executor.events(60.0) == [Event("a", StageChanged("measuring"))]


def test_single_machine_yields_the_document_of_a_local_study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # A node program drops polybench's own folder, which the user may have named as well.
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    cluster = cluster_run(tmp_path)
    remote = only_document(run(cluster, tmp_path / "remote", listener := RecordingProgress()))
    local = run_study(cluster.study, local_listener := RecordingProgress(), store=Store(tmp_path / "local"))
    assert listener.stages == ["checking the machines of local", *local_listener.stages]
    assert listener.warnings == remote.warnings
    assert remote.warnings[0] == local.warnings[0]  # other warnings depend on the load of the machine
    for one, other in zip(remote.results, local.results, strict=True):
        assert (one.configuration, one.status, one.workload) == (other.configuration, other.status, other.workload)
        assert [list(map(len, process)) for process in one.nested_step_times] == [[2], [2]]
        assert one.versions == other.versions
    equal_fields = ("study", "settings", "machine_label", "finished", "title", "polybench")
    assert [getattr(remote, name) for name in equal_fields] == [getattr(local, name) for name in equal_fields]
    (log,) = (tmp_path / "remote").iterdir()
    assert log.name == f"{remote.id}.jsonl"
    assert derive(read_log(log)) == remote
    assert node_programs() == []


def test_several_machines_have_separate_studies_and_one_table(tmp_path: Path) -> None:
    file = tmp_path / "study.toml"
    spec = study(tmp_path)
    file.write_text(
        f'engines = ["fake"]\ndata = "{spec.data}"\nbatch_size = 16\n'
        "processes = 1\nrounds_per_process = 1\nsteps_per_round = 2\n"
        'parity = false\nmetrics = false\nwait_idle = 0\nbaseline = "b:fake/cpu"\nprices = {cpu = 1.0}\n'
        '[[machines]]\nlabel = "a"\n[[machines]]\nlabel = "b"\nprice = 2.0\n'
    )
    command = ["run", str(file), "--results", str(tmp_path / "r"), "--quiet"]
    table = CliRunner().invoke(app, [*command, "--on", "local", "--format", "json"])
    assert table.exit_code == 0, table.output
    document = msgspec.json.decode(table.stdout)
    assert document["baseline"] == "b:fake/cpu"
    assert [(one["name"], one["prices"]) for one in document["machines"]] == [("a", {"cpu": 1.0}), ("b", {"cpu": 2.0})]
    assert [row["status"] for row in document["results"]] == ["ok", "ok"]
    costs = [row["relative_cost"] for row in document["results"]]
    assert costs[1] == 1
    seconds = [row["step_seconds"] for row in document["results"]]
    assert costs[0] == pytest.approx(0.5 * seconds[0] / seconds[1])
    saved = list(Store(tmp_path / "r").studies())
    assert sorted((one.machine_label or "", one.settings.prices["cpu"]) for one in saved) == [("a", 1.0), ("b", 2.0)]
    rejected = CliRunner().invoke(app, command)
    assert "is for the machines a, b: expected a cluster: add --on" in str(rejected.exception)


def test_baseline_that_was_not_measured_is_replaced(tmp_path: Path) -> None:
    file, images = tmp_path / "study.toml", study(tmp_path).data
    file.write_text(
        f'engines = ["fake", "faulty+unavailable"]\ndata = "{images}"\nbatch_size = 16\nprocesses = 1\n'
        "rounds_per_process = 1\nsteps_per_round = 2\nparity = false\nmetrics = false\nwait_idle = 0\n"
        'baseline = "b:faulty+unavailable/cpu"\n'
        '[[machines]]\nlabel = "a"\n[[machines]]\nlabel = "b"\n'
    )
    command = ["run", str(file), "--results", str(tmp_path / "r"), "--on", "local", "--format", "json"]
    table = CliRunner().invoke(app, command)
    assert table.exit_code == 0, table.output
    assert msgspec.json.decode(table.stdout)["baseline"] == "a:fake/cpu"
    assert "the baseline b:faulty+unavailable/cpu was not measured; another row" in table.stderr


@pytest.mark.usefixtures("started_processes")  # in whose start the test acts
def test_killed_node_is_replaced(tmp_path: Path) -> None:
    listener = ActAtStage("process 2 of 2: starting", kill_the_node)
    document = only_document(run(cluster_run(tmp_path), tmp_path / "r", listener))
    assert any("SIGKILL; another machine takes over" in text for text in listener.warnings)
    assert [result.status for result in document.results] == ["ok"]
    assert [len(result.nested_step_times) for result in document.results] == [2]
    # The first process run had arrived and was not repeated.
    assert sum("process 1 of 2: starting" in text for text in listener.stages) == 1
    assert [one.processes for one in document.resumed] == [1]
    (note,) = [text for text in document.warnings if "was lost" in text]
    assert "was lost, after 1 process run (" in note
    assert "the rest was measured on another machine" in note
    assert not (tmp_path / "r" / "unfinished").exists()
    assert unfinished_ids(Store(tmp_path / "r")) == []


def test_anonymous_cluster_run_saves_no_name_and_no_path(tmp_path: Path) -> None:
    cluster, folder = cluster_run(tmp_path, engines=("fake", "faulty+crash")), tmp_path / "r"
    document = only_document(run(cluster, folder, header=new_header(anonymous=True)))
    assert str(tmp_path) not in (folder / f"{document.id}.jsonl").read_text()
    assert document.host.hostname == "<host>"
    (log,) = (folder / "logs" / document.id).iterdir()
    assert [one.log_path for one in document.results] == [None, log.name]


def test_anonymous_cluster_run_is_resumed_although_its_log_lacks_paths(tmp_path: Path) -> None:
    store, header = Store(tmp_path / "r"), new_header(anonymous=True)

    def end() -> None:
        raise RuntimeError

    with pytest.raises(RuntimeError):
        run(cluster_run(tmp_path), store.folder, ActAtStage("process 2 of 2: starting", end), header=header)
    document = only_document(resume_on_cluster(header.id, RecordingProgress(), store=store, anonymous=True))
    assert [one.processes for one in document.resumed] == [1]
    assert [(one.status, len(one.nested_step_times)) for one in document.results] == [("ok", 2)]
    (log,) = store.logs()
    assert str(tmp_path) not in log.read_text()


def test_interrupted_driver_leaves_a_checkpoint(tmp_path: Path) -> None:
    class Ended(Exception):
        pass

    def end() -> None:
        raise Ended

    store, cluster = Store(tmp_path / "r"), cluster_run(tmp_path, "a", "b")
    with pytest.raises(Ended):
        run(cluster, store.folder, ActAtStage("b: process 2 of 2: starting", end))
    assert node_programs() == []
    (id,) = CheckpointStore(store.folder).ids()
    (study_id,) = unfinished_ids(store)
    assert (
        find_resumable("last", store)
        == find_resumable(study_id, store)
        == find_resumable(id, store)
        == ResumableRun(id, "cluster")
    )
    assert find_unfinished(cluster.study, store, "cluster", select_machines(cluster.groups)) == id
    with pytest.raises(BadInput, match=r"machines was \['a', 'b'\], now \['a'\]"):
        find_unfinished(cluster.study, store, "cluster", select_machines(cluster.groups[:1]))

    result = resume_on_cluster(id, listener := RecordingProgress(), store=store)
    # Neither the finished machine nor the process run that had arrived is repeated.
    assert not any(text.startswith("a: ") for text in listener.stages)
    assert not any("process 1 of 2: starting" in text for text in listener.stages)
    documents = {one.label: one.document for one in result.machines}
    for document in documents.values():
        assert document is not None
        assert [(one.status, len(one.nested_step_times)) for one in document.results] == [("ok", 2)]
    assert documents["b"] is not None
    assert [one.processes for one in documents["b"].resumed] == [1]
    assert result.unfinished_id is None
    assert not (store.folder / "unfinished").exists()


def test_study_is_not_resumed_on_a_changed_machine(tmp_path: Path) -> None:
    def end() -> None:
        raise RuntimeError

    store = Store(tmp_path / "r")
    with pytest.raises(RuntimeError):
        run(cluster_run(tmp_path), store.folder, ActAtStage("process 2 of 2: starting", end))
    (id,) = CheckpointStore(store.folder).ids()
    (study_id,) = unfinished_ids(store)
    header, *events = read_log(store.log_path(study_id))
    assert isinstance(header, Header)
    header.host.cpu = "another one"
    store.log_path(study_id).write_bytes(b"".join(map(encode_event, [header, *events])))
    with pytest.raises(BadInput, match=r"cannot resume .*cpu was another one, now "):
        resume_on_cluster(id, RecordingProgress(), store=store)
    assert CheckpointStore(store.folder).ids() == [id]
    discard(ResumableRun(id, "cluster"), store)
    assert CheckpointStore(store.folder).ids() == unfinished_ids(store) == []


@pytest.mark.usefixtures("started_processes")  # in whose start the test acts
def test_ctrl_c_ends_every_worker_and_saves_finished_process_runs(tmp_path: Path) -> None:
    workers: list[psutil.Process] = []
    previous = signal.signal(signal.SIGINT, signal.SIG_IGN)  # as in background processes of a shell

    def interrupt() -> None:
        deadline = time.monotonic() + 60
        while not workers and time.monotonic() < deadline:  # the stage is reported before their start
            workers.extend(worker for node in node_programs() for worker in workers_of(node))
        raise KeyboardInterrupt

    store, cluster = Store(tmp_path / "r"), cluster_run(tmp_path, "a", "b", processes=4)
    try:
        result = run(cluster, store.folder, ActAtStage("a: process 2 of 4: starting", interrupt))
    finally:
        signal.signal(signal.SIGINT, previous)
    a, b = result.machines
    assert a.document is not None
    assert [one.status for one in a.document.results] == ["interrupted"]
    assert 1 <= len(a.document.results[0].nested_step_times) < 4
    assert {one.hint for one in a.document.results} == {f"polybench resume {result.unfinished_id}"}
    assert (b.document, b.failure, result.interrupted) == (None, "interrupted", True)
    assert len(workers) == 1
    assert have_ended(workers)
    assert node_programs() == []


def test_node_ends_with_its_workers_if_the_driver_is_gone(tmp_path: Path) -> None:
    seen: list[psutil.Process] = []

    def list_processes() -> None:
        for node in node_programs():
            seen.extend([node, *workers_of(node)])
        raise RuntimeError

    endless = cluster_run(tmp_path, rounds_per_process=100_000, budget=3600.0)
    with pytest.raises(RuntimeError):
        run(endless, tmp_path / "r", ActAtStage("round 1", list_processes))
    assert len(seen) == 2
    assert have_ended(seen)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"version": "0.0.1"},
            r"it has polybench .*, but the driver has 0\.0\.1; on that machine: pip install polybench-dl==0\.0\.1",
        ),
        ({"python": "3.1"}, r"it has Python 3\..*, but the driver has 3\.1; install the same version"),
        ({"source_sha256": "other"}, "the same version, but different source files"),
    ],
)
def test_node_with_another_polybench_is_rejected(
    changes: dict[str, str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    this = driver.current_fingerprint()
    fields: dict[str, Any] = msgspec.structs.asdict(this) | changes
    monkeypatch.setattr(driver, "current_fingerprint", lambda: Fingerprint(**fields))
    with pytest.raises(BadInput, match=message):
        run(cluster_run(tmp_path), tmp_path / "r")
    assert not (tmp_path / "r" / "unfinished").exists()


def test_study_that_no_machine_can_run_is_rejected_without_a_checkpoint(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="nowhere"):
        run(cluster_run(tmp_path, data=str(tmp_path / "nowhere")), tmp_path / "r")
    strict = msgspec.structs.replace(cluster_run(tmp_path, engines=("fake", "faulty+unavailable")), strict=True)
    with pytest.raises(RequiredEngineMissing, match=r"faulty\+unavailable/cpu is unavailable"):
        run(strict, tmp_path / "r")
    assert not list((tmp_path / "r").iterdir())
    with pytest.raises(BadInput, match="unknown machine 'c'; machines are: a, b"):
        run(cluster_run(tmp_path, "a", "b", baseline="c:fake/cpu"), tmp_path / "r")
