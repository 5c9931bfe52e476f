"""The driver, with a scripted executor whose machines may be lost."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec
import pytest

from polybench.analysis.merge import merge
from polybench.cluster import node
from polybench.cluster import run as run_module
from polybench.cluster.driver import MachineRun
from polybench.cluster.executor import EXECUTORS, make_executor
from polybench.cluster.messages import (
    Diagnosed,
    Finished,
    Message,
    NodeLost,
    Rejected,
    Saved,
    Started,
    Task,
    TimeLeft,
    append_message,
    current_fingerprint,
    encode_line,
    last_host,
    message_decoder,
    read_messages,
    request_decoder,
)
from polybench.cluster.node import StreamingStore
from polybench.cluster.run import resume_on_cluster, run_on_cluster
from polybench.errors import BadInput, PolybenchError
from polybench.log import Log
from polybench.render import render
from polybench.runner.checkpoint import CheckpointStore, ClusterCheckpoint, MachineStudy, ResumableRun, discard
from polybench.runner.prepare import new_header
from polybench.runner.resume import unfinished_ids
from polybench.schema.metadata import PublishedResult, StudyFileMetadata, ToolVersion
from polybench.schema.options import Configuration, MachineGroup
from polybench.schema.result import Status
from polybench.storage.store import Store
from tests.cluster.cluster_runs import cluster_run, crash, study_log
from tests.cluster.scripted_executor import (
    CTRL_C,
    LAST,
    NODE_GONE,
    OTHER_IMAGES,
    SAVED,
    Script,
    ScriptedExecutor,
    saved,
)
from tests.factories import measured, study
from tests.runner.studies import RecordingProgress


@pytest.fixture
def play(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):  # type: ignore[no-untyped-def]
    def play(**scripts: list[Script]):  # type: ignore[no-untyped-def]
        executor = ScriptedExecutor(**scripts)
        monkeypatch.setattr(run_module, "make_executor", lambda target, upload: executor)
        cluster = cluster_run(tmp_path, *scripts)
        result = run_on_cluster(cluster, listener := RecordingProgress(), store=Store(tmp_path / "r"))
        assert executor.closed
        return executor, result, listener

    return play


COMPLETE: Script = [Started(hostname="h"), LAST, Finished()]


def test_group_fails_after_three_lost_machines(play) -> None:  # type: ignore[no-untyped-def]
    lost: Script = [Started(hostname="h"), SAVED, NODE_GONE]
    executor, result, _ = play(a=[lost, lost, lost], b=[COMPLETE])
    starts = [(task, host) for label, task, host in executor.started if label == "a"]
    sent = saved(starts[0][0]).log
    assert [(task.log, host) for task, host in starts] == [(None, None), (sent, "h"), (sent, "h")]
    a, b = result.machines
    assert [(row.status, row.reason) for row in a.document.results] == [("failed", "the node is gone")]
    assert {row.hint for row in a.document.results} == {f"polybench resume {result.unfinished_id}"}
    assert [row.status for row in b.document.results] == ["ok"]


def test_group_that_cannot_be_restarted_does_not_stop_others(play) -> None:  # type: ignore[no-untyped-def]
    _, result, listener = play(a=[[Started(hostname="h"), SAVED, NODE_GONE]], b=[COMPLETE])
    a, b = result.machines
    assert [(row.status, row.reason) for row in a.document.results] == [("failed", "no script is left")]
    assert "a: no script is left" in listener.warnings
    assert [row.status for row in b.document.results] == ["ok"]


def test_changed_versions_are_rejected_or_reported_on_resume(  # type: ignore[no-untyped-def]
    play, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = [Started(hostname="h", versions={"torch": "2.0"}), LAST, Finished()]
    two = [Started(hostname="k", versions={"torch": "2.1"}), LAST, Finished()]
    _, result, _ = play(a=[one], b=[[NodeLost("it is gone", can_retry=False)]])
    store, executor = Store(tmp_path / "r"), ScriptedExecutor(b=[two])
    monkeypatch.setattr(run_module, "make_executor", lambda target, upload: executor)
    checkpoints = CheckpointStore(store.folder)
    checkpoint = checkpoints.read(result.unfinished_id, ClusterCheckpoint)
    header = msgspec.structs.replace(checkpoint.header, polybench=ToolVersion("0.0.1", None))
    checkpoints.write(msgspec.structs.replace(checkpoint, header=header))
    with pytest.raises(BadInput, match=r"polybench's version was 0\.0\.1, now "):
        resume_on_cluster(result.unfinished_id, RecordingProgress(), store=store)
    checkpoints.write(checkpoint)
    resume_on_cluster(result.unfinished_id, listener := RecordingProgress(), store=store)
    assert "torch is 2.1 on b, but 2.0 on a" in listener.warnings


def test_machine_without_a_complete_document_has_failed(play) -> None:  # type: ignore[no-untyped-def]
    _, result, _ = play(a=[[Started(hostname="h"), SAVED, Finished()]], b=[COMPLETE])
    rows = [(row.status, row.reason) for row in result.machines[0].document.results]
    assert rows == [("failed", "it ended without its last document")]
    assert result.unfinished_id is not None


def test_log_is_sent_even_if_the_nodes_disk_is_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    sent: list[Message] = []
    store, task = StreamingStore(tmp_path / "r", sent.append), first_task(tmp_path)
    with Log.create(store.log_path(task.header.id)) as log:
        monkeypatch.setattr("os.pwrite", full)
        for event in study_log(task.header, task.study).events:
            log.add(event)
        store.publish(log)
        assert "No space left" in str(log.problem)
    assert sent == [saved(task)]


def test_machine_without_a_document_is_in_the_table(play) -> None:  # type: ignore[no-untyped-def]
    _, result, _ = play(a=[COMPLETE], b=[[NodeLost("no machine of the class is left", can_retry=False)]])
    a, b = result.machines
    assert (b.document, b.failure) == (None, "no machine of the class is left")
    text = render(merge([a.document], {}, None, {b.label: b.failure}), "table")
    assert "b: failed: no machine of the class is left" in text
    assert any(line.split() == ["b", "failed"] for line in text.splitlines())


def test_replacement_that_cannot_resume_measures_everything_again(play) -> None:  # type: ignore[no-untyped-def]
    rejected: Script = [Started(hostname="k"), Rejected("hostname is k now, and was h", 2)]
    again: Script = [Started(hostname="k"), LAST, Finished()]
    executor, result, listener = play(a=[[Started(hostname="h"), SAVED, NODE_GONE], rejected, again], b=[COMPLETE])
    tasks = [task for label, task, _ in executor.started if label == "a"]
    assert [task.log for task in tasks] == [None, saved(tasks[0]).log, None]
    assert any("everything is measured again" in text for text in listener.warnings)
    notes = [text for text in result.machines[0].document.warnings if "was lost" in text]
    assert notes == [
        "h was lost, after 3 process runs (the node is gone): everything was measured on another machine, k"
    ]


def test_machine_with_other_images_fails(play) -> None:  # type: ignore[no-untyped-def]
    _, result, _ = play(a=[COMPLETE], b=[[Started(hostname="k"), OTHER_IMAGES, Finished()]])
    a, b = result.machines
    assert a.document is not None
    assert (b.document, b.failure) == (None, "its images differ from those of a; use the same --data for both")


def test_images_are_compared_with_those_of_a_failed_machine_even_on_resume(  # type: ignore[no-untyped-def]
    play, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lost = NodeLost("it is gone", can_retry=False)
    _, result, _ = play(a=[[Started(hostname="h"), SAVED, lost]], b=[[Started(hostname="k"), OTHER_IMAGES, lost]])
    failure = "its images differ from those of a; use the same --data for both"
    assert [one.failure for one in result.machines] == ["it is gone", failure]
    assert result.machines[1].document is None
    executor = ScriptedExecutor(a=[COMPLETE])
    monkeypatch.setattr(run_module, "make_executor", lambda target, upload: executor)
    result = resume_on_cluster(result.unfinished_id, RecordingProgress(), store=Store(tmp_path / "r"))
    assert [one.failure for one in result.machines] == [None, failure]


def test_missing_packages_and_other_versions_are_warnings(play) -> None:  # type: ignore[no-untyped-def]
    one = Started(hostname="h", versions={"torch": "2.0", "jax": "0.5"})
    two = Started(hostname="k", versions={"torch": "2.1", "jax": None})
    _, _, listener = play(a=[[one, LAST, Finished()]], b=[[two, LAST, Finished()]])
    assert listener.warnings == ["b: jax is not installed on k", "torch is 2.1 on b, but 2.0 on a"]


def test_machine_lost_after_ctrl_c_is_interrupted(play) -> None:  # type: ignore[no-untyped-def]
    _, result, _ = play(a=[[Started(hostname="h"), SAVED, CTRL_C]], b=[COMPLETE])
    a, b = result.machines
    assert result.interrupted
    assert [(row.status, row.reason) for row in a.document.results] == [("interrupted", "interrupted")]
    assert [row.status for row in b.document.results] == ["ok"]


def test_single_machine_without_a_document_is_an_error(play) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(PolybenchError, match="it is gone"):
        play(a=[[NodeLost("it is gone", can_retry=False)]])


def test_unknown_target_lists_the_known_ones() -> None:
    with pytest.raises(BadInput, match=f"expected one of {', '.join(EXECUTORS)}"):
        make_executor("moon:42")
    with pytest.raises(BadInput, match="use --on local"):
        make_executor("local:42")


def test_messages_survive_encoding(tmp_path: Path) -> None:
    run = cluster_run(tmp_path, precision=("fp32", "bf16"), target_accuracy=0.5, lr_schedule=((10, 0.1),))
    published = [PublishedResult("a", "time", (1.0, 2.0), "s", "a laptop", "a page")]
    header = new_header(["compare"], StudyFileMetadata("title", published))
    task = Task(header=header, study=run.study, fingerprint=current_fingerprint(), log=b"\0\xff", strict=True)
    assert request_decoder.decode(encode_line(task)) == task
    sent = Saved(b'{"a": "\xc3\xa9"}\n', {"fake.log": b"\n\xff"})
    assert message_decoder.decode(encode_line(sent)) == sent
    assert encode_line(sent).count(b"\n") == 1
    report = Diagnosed({"engines": {"torch": {"runs": True}}})
    assert message_decoder.decode(encode_line(report)) == report


def test_running_cluster_run_is_not_discarded(play, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    lost = NodeLost("it is gone", can_retry=False)
    _, result, _ = play(a=[[Started(hostname="h"), SAVED, lost]], b=[COMPLETE])
    store = Store(tmp_path / "r")
    before = unfinished_ids(store)
    with CheckpointStore(store.folder).lock(result.unfinished_id), pytest.raises(BadInput, match="is still running"):
        discard(ResumableRun(result.unfinished_id, ClusterCheckpoint), store)
    assert unfinished_ids(store) == before != []
    discard(ResumableRun(result.unfinished_id, ClusterCheckpoint), store)
    assert unfinished_ids(store) == []


def machine_run(store: Store, folder: Path, *, anonymous: bool = False) -> MachineRun:
    run = cluster_run(folder)
    machine_study = MachineStudy(label="local", study_id="20260101-000000-abcd")
    header = new_header(anonymous=anonymous)
    checkpoint = ClusterCheckpoint(header=header, study="", run=run, machine_studies=[machine_study])
    return MachineRun(run.groups[0], machine_study, checkpoint, store)


def first_task(folder: Path) -> Task:
    return Task(header=new_header(), study=cluster_run(folder).study, fingerprint=current_fingerprint())


@pytest.mark.parametrize(
    ("status", "finished", "is_finished"), [("ok", True, True), ("interrupted", True, False), ("ok", False, False)]
)
def test_study_with_a_complete_document_is_not_repeated(
    status: Status, finished: bool, is_finished: bool, tmp_path: Path
) -> None:
    store = Store(tmp_path / "r")
    document = study(measured("fake/cpu", 0.01))
    document.id, document.finished, document.results[0].status = "20260101-000000-abcd", finished, status
    store.save(document)
    machine = machine_run(store, tmp_path)
    machine.restore()
    assert machine.machine_study.finished == is_finished
    assert machine.document == document


@pytest.mark.parametrize(("end", "is_finished"), [("finished", True), ("interrupted", False), (None, False)])
@pytest.mark.parametrize("has_document", [True, False])
def test_study_with_a_complete_log_is_not_repeated(
    end: Literal["finished", "interrupted"] | None, is_finished: bool, has_document: bool, tmp_path: Path
) -> None:
    """A driver that is killed while it saves has stored a log without its report."""
    store, task = Store(tmp_path / "r"), first_task(tmp_path)
    stored = machine_run(store, tmp_path)
    if has_document:
        stored.save(saved(task))
    store.folder.mkdir(exist_ok=True)
    (store.folder / "20260101-000000-abcd.jsonl").write_bytes(saved(task, end=end).log)
    machine = machine_run(store, tmp_path)
    machine.restore()
    assert machine.machine_study.finished == is_finished
    assert machine.log == saved(task, end=end).log
    assert machine.document == store.load("20260101-000000-abcd")
    assert machine.document.finished == (end is not None)


def test_damaged_log_is_that_of_no_study(tmp_path: Path) -> None:
    store = Store(tmp_path)
    machine = machine_run(store, tmp_path)
    machine.machine_study.finished = True
    (store.folder / "20260101-000000-abcd.jsonl").write_bytes(b"{}\n")
    machine.restore()
    assert (machine.document, machine.machine_study.finished) == (None, False)


def test_anonymous_document_has_no_name_of_a_lost_machine(tmp_path: Path) -> None:
    machine = machine_run(Store(tmp_path), tmp_path, anonymous=True)
    machine.machine_study.hostname = "node17"
    machine.mark_lost(NodeLost("the log on node17: /home/user/a.log"))
    machine.machine_study.hostname = "node18"
    task = first_task(tmp_path)
    machine.save(saved(msgspec.structs.replace(task, header=new_header(anonymous=True))))
    assert machine.document is not None
    (note,) = [text for text in machine.document.warnings if "was lost" in text]
    lost = "<omitted> was lost (<omitted>)"
    assert note == f"{lost}: everything was measured on another machine, <omitted>"
    machine.fail("node18 is gone")
    assert [one.reason for one in machine.document.results] == ["<omitted>"]


def test_reset_deletes_the_log(tmp_path: Path) -> None:
    store = Store(tmp_path / "r")
    machine = machine_run(store, tmp_path)
    machine.save(saved(first_task(tmp_path)))
    assert [path.stem for path in store.logs()] == ["20260101-000000-abcd"]
    machine.reset()
    assert (store.logs(), machine.log) == ([], None)


def test_machines_get_the_options_of_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    executor = ScriptedExecutor(a=[COMPLETE])
    monkeypatch.setattr(run_module, "make_executor", lambda target, upload: executor)
    cluster = msgspec.structs.replace(cluster_run(tmp_path, "a"), strict=True, parity_check="all")
    run_on_cluster(cluster, RecordingProgress(), store=None)
    ((_, task, _),) = executor.started
    assert (task.strict, task.parity_check) == (True, "all")


def test_a_resumed_run_keeps_its_options(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lost: Script = [Started(hostname="h"), SAVED, NodeLost("it is gone", can_retry=False)]
    executor, store = ScriptedExecutor(a=[lost, COMPLETE], b=[COMPLETE]), Store(tmp_path / "r")
    monkeypatch.setattr(run_module, "make_executor", lambda target, upload: executor)
    cluster = msgspec.structs.replace(cluster_run(tmp_path, "a", "b"), strict=True)
    result = run_on_cluster(cluster, RecordingProgress(), store=store)
    assert result.unfinished_id
    resume_on_cluster(result.unfinished_id, RecordingProgress(), store=store)
    assert [task.strict for _, task, _ in executor.started] == [True] * 3


def test_rows_that_had_failed_keep_their_reason(tmp_path: Path) -> None:
    machine = machine_run(Store(tmp_path / "r"), tmp_path)
    task = first_task(tmp_path)
    two = [Configuration("fake", variants, "cpu") for variants in ((), ("slow",))]
    machine.save(Saved(study_log(task.header, task.study, crash("fake+slow/cpu"), configurations=two).text))
    machine.fail("the node is gone")
    assert machine.document is not None
    assert [(one.status, one.reason) for one in machine.document.results] == [
        ("failed", "the node is gone"), ("failed", "it crashed"),
    ]  # fmt: skip


@pytest.mark.parametrize("end", ["interrupted", "finished"])
def test_an_interrupted_study_can_be_resumed(end: Literal["finished", "interrupted"], tmp_path: Path) -> None:
    store, task = Store(tmp_path / "r"), first_task(tmp_path)
    machine = machine_run(store, tmp_path)
    machine.save(saved(task))
    machine.save(saved(task, end=end))
    assert unfinished_ids(store) == (["20260101-000000-abcd"] if end == "interrupted" else [])
    assert (store.folder / "20260101-000000-abcd.jsonl").read_bytes() == saved(task, end=end).log


def test_machines_are_not_compared_with_one_whose_images_differ(play) -> None:  # type: ignore[no-untyped-def]
    _, result, _ = play(a=[COMPLETE], b=[[Started(hostname="k"), OTHER_IMAGES, Finished()]], c=[COMPLETE])
    assert [one.document is None for one in result.machines] == [False, True, False]


def test_the_remaining_time_is_that_of_the_slowest_machine(play) -> None:  # type: ignore[no-untyped-def]
    left = [[Started(hostname="h"), TimeLeft(seconds), LAST, Finished()] for seconds in (7.0, 5.0)]
    _, _, listener = play(a=[left[0]], b=[left[1]])
    assert listener.seconds_left == [7.0, 7.0]


def test_a_running_cluster_run_is_locked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store, locked = Store(tmp_path / "r"), []

    class Trying(ScriptedExecutor):
        def check(self, groups: Sequence[MachineGroup]) -> list[str]:
            (id,) = CheckpointStore(store.folder).ids(ClusterCheckpoint) or [header.id]
            with pytest.raises(BadInput, match="is still running"), CheckpointStore(store.folder).lock(id):
                pass
            locked.append(id)
            return super().check(groups)

    header = new_header()
    lost: Script = [Started(hostname="h"), SAVED, NodeLost("it is gone", can_retry=False)]
    executor = Trying(a=[lost, COMPLETE], b=[COMPLETE])
    monkeypatch.setattr(run_module, "make_executor", lambda target, upload: executor)
    result = run_on_cluster(cluster_run(tmp_path, "a", "b"), RecordingProgress(), store=store, header=header)
    assert result.unfinished_id == header.id
    resume_on_cluster(header.id, RecordingProgress(), store=store)
    assert locked == [header.id] * 2


def test_a_node_measures_with_the_options_of_its_task(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    received: list[Any] = []
    monkeypatch.setattr(node, "run_study", lambda study, *_, **options: received.append((study, options)))

    def resume_study(id: str, *_: object, store: Store, **options: Any) -> None:
        received.append((id, options, store.log_path(id).read_bytes()))

    monkeypatch.setattr(node, "resume_study", resume_study)
    here, there = new_header(), new_header(anonymous=True)
    elsewhere = msgspec.structs.replace(there, host=msgspec.structs.replace(there.host, hostname="driver"))
    fields = {"header": elsewhere, "study": cluster_run(tmp_path).study, "fingerprint": current_fingerprint()}
    for task in (Task(**fields, strict=True, parity_check="all"), Task(**fields, strict=True, log=b"x")):
        node.run_task(task, lambda _: None)
    (study_, measured_), (id, resumed, log) = received
    assert (study_, measured_["strict"], measured_["parity_check"]) == (fields["study"], True, "all")
    assert measured_["header"].host.hostname == here.host.hostname
    assert (id, resumed["strict"], resumed["anonymous"], log) == (there.id, True, True, b"x")


def test_the_end_of_a_long_log_is_sent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node, "_MAX_LOG_BYTES", 4)
    sent: list[Message] = []
    task = first_task(tmp_path)
    log = tmp_path / "logs" / task.header.id / "fake.log"
    log.parent.mkdir(parents=True)
    log.write_bytes(b"start, then the end")
    failure = crash("fake/cpu", "/elsewhere/fake.log")
    for end in (None, "finished"):
        StreamingStore(tmp_path, sent.append).publish(study_log(task.header, task.study, failure, end=end))
    assert [one.logs for one in sent if isinstance(one, Saved)] == [{}, {"fake.log": b" end"}]


def test_messages_are_read_on_from_an_incomplete_line(tmp_path: Path) -> None:
    file = tmp_path / "messages"
    line = encode_line(TimeLeft(3.0))
    file.write_bytes(encode_line(TimeLeft(2.0)) + line[:5])
    first, offset = read_messages(file)
    with file.open("ab") as stream:
        stream.write(line[5:])
    assert (first, read_messages(file, offset)[0]) == ([TimeLeft(2.0)], [TimeLeft(3.0)])


@pytest.mark.parametrize(("second", "log"), [("h", b"{}\n"), ("k", None)])
def test_only_the_host_of_a_log_resumes_it(second: str, log: bytes | None, tmp_path: Path) -> None:
    file = tmp_path / "messages"
    for message in (Started(hostname="h"), Saved(b"{}\n"), Started(hostname=second)):
        append_message(file, message)
    assert last_host(file) == (second, log)
