"""The driver, with a scripted executor whose machines may be lost."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec
import pytest

from polybench.analysis.merge import merge
from polybench.cluster import messages, node
from polybench.cluster import run as run_module
from polybench.cluster.executor import EXECUTORS, make_executor
from polybench.cluster.machine_run import MachineRun
from polybench.cluster.messages import (
    Diagnosed,
    Finished,
    Lines,
    Message,
    Moved,
    NodeLost,
    ProgressUpdate,
    Rejected,
    Started,
    Task,
    TimeLeft,
    append_messages,
    current_fingerprint,
    encode_line,
    last_host,
    message_decoder,
    read_messages,
    request_decoder,
)
from polybench.cluster.run import resume_on_cluster, run_on_cluster
from polybench.errors import BadInput, PolybenchError
from polybench.log import AnyEvent, DamagedLog, Header, Log, StudyEnded, Warned, read_log
from polybench.log import encode_line as encode_event
from polybench.render import render
from polybench.results.document import derive, study_toml
from polybench.runner.checkpoint import CheckpointStore, ClusterCheckpoint, MachineStudy, ResumableRun, discard
from polybench.runner.prepare import new_header
from polybench.runner.progress import ConfigurationProgress
from polybench.runner.resume import unfinished_ids
from polybench.schema.metadata import PublishedResult, StudyFileMetadata, ToolVersion
from polybench.schema.options import Configuration, MachineGroup, Study
from polybench.schema.study import StudyDocument
from polybench.storage.store import Store
from tests.cluster.cluster_runs import cluster_run, crash, study_log
from tests.cluster.scripted_executor import CTRL_C, LAST, NODE_GONE, OTHER_IMAGES, SENT, Script, ScriptedExecutor, sent
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
    lost: Script = [Started(hostname="h"), SENT, NODE_GONE]
    executor, result, _ = play(a=[lost, lost, lost], b=[COMPLETE])
    starts = [(task, host) for label, task, host in executor.started if label == "a"]
    log = sent(starts[0][0]).events
    longer = log + sent(starts[1][0]).events
    assert [(task.log, host) for task, host in starts] == [([], None), (log, "h"), (longer, "h")]
    a, b = result.machines
    assert [(row.status, row.reason) for row in a.document.results] == [("failed", "the node is gone")]
    assert {row.hint for row in a.document.results} == {f"polybench resume {result.unfinished_id}"}
    assert [row.status for row in b.document.results] == ["ok"]


def test_group_that_cannot_be_restarted_does_not_stop_others(play) -> None:  # type: ignore[no-untyped-def]
    _, result, listener = play(a=[[Started(hostname="h"), SENT, NODE_GONE]], b=[COMPLETE])
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
    checkpoint = checkpoints.read(result.unfinished_id)
    header = msgspec.structs.replace(checkpoint.header, polybench=ToolVersion("0.0.1", None))
    checkpoints.write(msgspec.structs.replace(checkpoint, header=header))
    with pytest.raises(BadInput, match=r"polybench's version was 0\.0\.1, now "):
        resume_on_cluster(result.unfinished_id, RecordingProgress(), store=store)
    checkpoints.write(checkpoint)
    resume_on_cluster(result.unfinished_id, listener := RecordingProgress(), store=store)
    assert "torch is 2.1 on b, but 2.0 on a" in listener.warnings


def test_machine_without_a_complete_document_has_failed(play) -> None:  # type: ignore[no-untyped-def]
    _, result, _ = play(a=[[Started(hostname="h"), SENT, Finished()]], b=[COMPLETE])
    rows = [(row.status, row.reason) for row in result.machines[0].document.results]
    assert rows == [("failed", "it ended without the end of its log")]
    assert result.unfinished_id is not None


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
    executor, result, listener = play(a=[[Started(hostname="h"), SENT, NODE_GONE], rejected, again], b=[COMPLETE])
    tasks = [task for label, task, _ in executor.started if label == "a"]
    assert [task.log for task in tasks] == [[], sent(tasks[0]).events, []]
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
    _, result, _ = play(a=[[Started(hostname="h"), SENT, lost]], b=[[Started(hostname="k"), OTHER_IMAGES, lost]])
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
    _, result, _ = play(a=[[Started(hostname="h"), SENT, CTRL_C]], b=[COMPLETE])
    a, b = result.machines
    assert result.interrupted
    rows = [(row.status, row.reason) for row in a.document.results]
    assert rows == [("interrupted", "interrupted after 3 of 2 processes")]
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
    log = study_log(header, run.study, Warned(text="é\n"), end="finished").events
    task = Task(header=header, study=run.study, fingerprint=current_fingerprint(), log=log, strict=True)
    assert request_decoder.decode(encode_line(task)) == task
    report = Diagnosed({"engines": {"torch": {"runs": True}}})
    for message in (Lines(7, log), Moved("to k"), Finished({"fake.log": b"\n\xff"}), report):
        assert message_decoder.decode(encode_line(message)) == message
        assert encode_line(message).count(b"\n") == 1


def test_running_cluster_run_is_not_discarded(play, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    lost = NodeLost("it is gone", can_retry=False)
    _, result, _ = play(a=[[Started(hostname="h"), SENT, lost]], b=[COMPLETE], c=[[lost]])
    store = Store(tmp_path / "r")
    before = unfinished_ids(store)
    with CheckpointStore(store.folder).lock(result.unfinished_id), pytest.raises(BadInput, match="is still running"):
        discard(ResumableRun(result.unfinished_id, "cluster"), store)
    assert unfinished_ids(store) == before != []
    discard(ResumableRun(result.unfinished_id, "cluster"), store)
    assert unfinished_ids(store) == []


STUDY_ID = "20260101-000000-abcd"


def machine_run(store: Store, folder: Path, *, anonymous: bool = False, header: Header | None = None) -> MachineRun:
    run = cluster_run(folder)
    machine_study = MachineStudy(label="local", study_id=STUDY_ID)
    header = header or new_header(anonymous=anonymous)
    checkpoint = ClusterCheckpoint(header=header, study="", run=run, machine_studies=[machine_study])
    return MachineRun(run.groups[0], machine_study, checkpoint, store)


def first_task(folder: Path) -> Task:
    header = msgspec.structs.replace(new_header(), id=STUDY_ID)
    return Task(header=header, study=cluster_run(folder).study, fingerprint=current_fingerprint())


def restored(store: Store, folder: Path) -> MachineRun:
    """Return what a driver restores from what another one has written, which was killed."""
    machine = machine_run(store, folder)
    machine.restore()
    return machine


@pytest.mark.parametrize(("end", "is_finished"), [("finished", True), ("interrupted", False), (None, False)])
def test_study_with_a_complete_log_is_not_repeated(
    end: Literal["finished", "interrupted"] | None, is_finished: bool, tmp_path: Path
) -> None:
    store, task = Store(tmp_path / "r"), first_task(tmp_path)
    stored = machine_run(store, tmp_path)
    stored.add(sent(task, end=end))
    stored.close()
    machine = restored(store, tmp_path)
    assert machine.is_finished == machine.has_ended == is_finished
    assert machine.events == stored.events == read_log(store.log_path(STUDY_ID))
    assert machine.report() == store.load(STUDY_ID)
    assert [path.name for path in store.folder.iterdir()] == [f"{STUDY_ID}.jsonl"]


def test_lines_are_appended_once_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    store, task = Store(tmp_path / "r"), first_task(tmp_path)
    machine, events = machine_run(store, tmp_path), sent(task, end="finished").events
    for first, last in ((1, 3), (1, 3), (2, 6), (7, 7), (5, len(events))):
        machine.add(Lines(first, events[first - 1 : last]))
    assert machine.events == read_log(store.log_path(STUDY_ID)) == events
    machine.add(Lines(1, events))
    assert machine.events == events


def test_a_lost_machine_has_finished_the_process_runs_that_ended(tmp_path: Path) -> None:
    machine, task = machine_run(Store(tmp_path / "r"), tmp_path), first_task(tmp_path)
    both = [Configuration("fake", (), "cpu"), Configuration("fake", ("slow",), "cpu")]
    events = study_log(task.header, task.study, end="finished", configurations=both).events
    machine.add(Lines(1, events[: 2 + 2 * 5]))  # two process runs of two blocks each
    machine.mark_lost(NodeLost("gone"))
    machine.add(Lines(1, events))
    (note,) = [event.text for event in machine.events if isinstance(event, Warned)]
    assert note.startswith("its machine was lost, after 2 process runs (gone): the rest was measured")


def test_lines_are_not_appended_after_a_gap(tmp_path: Path) -> None:
    machine, events = machine_run(Store(tmp_path / "r"), tmp_path), sent(first_task(tmp_path)).events
    machine.add(Lines(1, events[:3]))
    with pytest.raises(ValueError, match="line 4 of its log did not arrive"):
        machine.add(Lines(5, events[4:]))
    assert machine.events == events[:3]


def test_a_gap_fails_only_its_machine(play) -> None:  # type: ignore[no-untyped-def]
    gap = Lines(9, [Warned(text="the ninth line")])
    _, result, listener = play(a=[[Started(hostname="h"), gap, LAST, Finished()]], b=[COMPLETE])
    assert [one.failure for one in result.machines] == ["line 1 of its log did not arrive", None]
    assert "a: line 1 of its log did not arrive" in listener.warnings


def test_a_restored_log_is_continued_after_its_last_whole_line(tmp_path: Path) -> None:
    store, task = Store(tmp_path), first_task(tmp_path)
    events = sent(task, end="finished").events
    whole = b"".join(map(encode_event, events))
    store.log_path(STUDY_ID).write_bytes(whole[:-5])
    machine = restored(store, tmp_path)
    assert machine.events == events[:-1]
    machine.add(Lines(1, events))
    assert store.log_path(STUDY_ID).read_bytes() == whole


def test_a_log_without_a_line_has_not_begun(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.log_path(STUDY_ID).touch()
    machine = restored(store, tmp_path)
    machine.add(lines := sent(first_task(tmp_path)))
    assert read_log(store.log_path(STUDY_ID)) == lines.events


def test_a_damaged_log_is_refused_with_a_remedy(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.log_path(STUDY_ID).write_bytes(b"{}\n")
    with pytest.raises(DamagedLog, match=rf"line 1: .*or give it up with `polybench resume {STUDY_ID} --discard`"):
        machine_run(store, tmp_path).restore()


def test_lines_stay_in_memory_while_the_disk_is_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    store, events = Store(tmp_path / "r"), sent(first_task(tmp_path)).events
    machine = machine_run(store, tmp_path)
    machine.add(Lines(1, events[:2]))
    with monkeypatch.context() as patched:
        patched.setattr("os.pwrite", full)
        machine.add(Lines(3, events[2:5]))
        assert machine.problem == f"cannot write to {store.log_path(STUDY_ID)}: No space left on device"
    assert (read_log(store.log_path(STUDY_ID)), machine.events) == (events[:2], events[:5])
    store.log_path(STUDY_ID).unlink()
    store.folder.rmdir()
    machine.add(Lines(6, events[5:]))
    assert read_log(store.log_path(STUDY_ID)) == machine.events == events


def test_a_log_that_cannot_be_written_is_copied_and_reported(play, monkeypatch: pytest.MonkeyPatch) -> None:  # type: ignore[no-untyped-def]
    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.pwrite", full)
    _, result, listener = play(a=[COMPLETE])
    (warning,) = [text for text in listener.warnings if "retries later" in text]
    (text,) = [text for text in result.only_document.warnings if "No space" in text]
    assert text.startswith(warning.removesuffix("; polybench retries later"))
    copy = Path(text.rpartition(" saved a copy to ")[2])
    assert derive(read_log(copy)).results == result.only_document.results
    copy.unlink()


def test_a_moved_job_starts_another_log(play, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    moved = "started on h, but SLURM moved the job: everything is measured again on k"
    script: Script = [Started(hostname="h"), OTHER_IMAGES, Moved(moved), Started(hostname="k"), LAST, Finished()]
    executor, result, listener = play(a=[script])
    ((_, task, _),) = executor.started
    *events, end = sent(task, end="finished").events
    assert read_log(Store(tmp_path / "r").log_path(task.header.id)) == [*events, Warned(text=moved, names=True), end]
    assert moved in result.only_document.warnings
    assert moved in listener.warnings


def test_what_the_driver_adds_is_in_the_log(play, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    lost: Script = [Started(hostname="h"), SENT, NODE_GONE]
    executor, result, _ = play(a=[lost, lost, lost], b=[COMPLETE])
    store = Store(tmp_path / "r")
    for machine, (_, task, _) in zip(result.machines, (executor.started[0], executor.started[1]), strict=True):
        assert derive(read_log(store.log_path(task.header.id))) == machine.document
        assert machine.document.machine_label == machine.label
    assert sorted(path.suffix for path in store.folder.glob("*.*")) == [".jsonl", ".jsonl"]
    end = read_log(store.log_path(executor.started[0][1].header.id))[-1]
    assert isinstance(end, StudyEnded)
    assert (end.outcome, end.failure) == ("interrupted", "the node is gone")


def test_anonymous_document_has_no_name_of_a_lost_machine(tmp_path: Path) -> None:
    machine = machine_run(Store(tmp_path), tmp_path, anonymous=True)
    machine.machine_study.hostname = "node17"
    machine.mark_lost(NodeLost("the log on node17: /home/user/a.log"))
    machine.machine_study.hostname = "node18"
    task = first_task(tmp_path)
    machine.add(sent(msgspec.structs.replace(task, header=new_header(anonymous=True))))
    machine.fail("node18 is gone")
    document = machine.report()
    assert document is not None
    (note,) = [text for text in document.warnings if "was lost" in text]
    lost = "<omitted> was lost (<omitted>)"
    assert note == f"{lost}: everything was measured on another machine, <omitted>"
    assert [one.reason for one in document.results] == ["<omitted>"]


def test_reset_deletes_the_log(tmp_path: Path) -> None:
    store = Store(tmp_path / "r")
    machine = machine_run(store, tmp_path)
    machine.add(sent(first_task(tmp_path)))
    assert [path.stem for path in store.logs()] == [STUDY_ID]
    machine.reset()
    assert (store.logs(), machine.events) == ([], [])


def test_machines_get_the_options_of_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    executor = ScriptedExecutor(a=[COMPLETE])
    monkeypatch.setattr(run_module, "make_executor", lambda target, upload: executor)
    cluster = msgspec.structs.replace(cluster_run(tmp_path, "a"), strict=True, parity_check="all")
    run_on_cluster(cluster, RecordingProgress(), store=None)
    ((_, task, _),) = executor.started
    assert (task.strict, task.parity_check) == (True, "all")


def test_a_resumed_run_keeps_its_options(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lost: Script = [Started(hostname="h"), SENT, NodeLost("it is gone", can_retry=False)]
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
    machine.add(Lines(1, study_log(task.header, task.study, crash("fake+slow/cpu"), configurations=two).events))
    machine.fail("the node is gone")
    document = machine.report()
    assert document is not None
    assert [(one.status, one.reason) for one in document.results] == [
        ("failed", "the node is gone"), ("failed", "it crashed"),
    ]  # fmt: skip


@pytest.mark.parametrize("end", ["interrupted", "finished"])
def test_an_interrupted_study_can_be_resumed(end: Literal["finished", "interrupted"], tmp_path: Path) -> None:
    store, task = Store(tmp_path / "r"), first_task(tmp_path)
    machine = machine_run(store, tmp_path)
    machine.add(sent(task))
    machine.add(sent(task, end=end))
    assert unfinished_ids(store) == ([STUDY_ID] if end == "interrupted" else [])


def test_machines_are_not_compared_with_one_whose_images_differ(play) -> None:  # type: ignore[no-untyped-def]
    _, result, _ = play(a=[COMPLETE], b=[[Started(hostname="k"), OTHER_IMAGES, Finished()]], c=[COMPLETE])
    assert [one.document is None for one in result.machines] == [False, True, False]


def test_the_remaining_time_is_that_of_the_slowest_machine(play) -> None:  # type: ignore[no-untyped-def]
    left = [[Started(hostname="h"), TimeLeft(seconds), LAST, Finished()] for seconds in (7.0, 5.0)]
    _, _, listener = play(a=[left[0]], b=[left[1]])
    assert listener.seconds_left == [7.0, 7.0]


class Configurations(RecordingProgress):
    """Records the names of all configurations at each report."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[list[str]] = []

    def on_configurations(self, configurations: Sequence[ConfigurationProgress]) -> None:
        self.names.append([one.name for one in configurations])


def test_only_several_machines_have_labels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    update = ProgressUpdate([ConfigurationProgress("fake/cpu", "same", "ok", 1, 0.01)])
    reporting: Script = [Started(hostname="h"), update, LAST, Finished()]
    for labels, shown in ((["a"], [["fake/cpu"]]), (["a", "b"], [["a:fake/cpu"], ["a:fake/cpu", "b:fake/cpu"]])):
        executor = ScriptedExecutor(**{label: [reporting] for label in labels})
        monkeypatch.setattr(run_module, "make_executor", lambda target, upload, executor=executor: executor)
        result = run_on_cluster(cluster_run(tmp_path, *labels), listener := Configurations(), store=Store(tmp_path))
        assert listener.names == shown
        documents = [machine.document for machine in result.machines]
        assert [one and one.machine_label for one in documents] == ([None] if labels == ["a"] else labels)
        assert result.unfinished_id is None  # all have finished


def test_a_study_that_its_node_interrupted_is_no_failure(tmp_path: Path) -> None:
    machine = machine_run(Store(tmp_path / "r"), tmp_path)
    machine.add(sent(first_task(tmp_path)))
    machine.add(sent(first_task(tmp_path), end="interrupted"))
    machine.finish({})
    assert (machine.failure, machine.is_finished) == ("interrupted", False)
    document = machine.report()
    assert document is not None
    assert {one.status for one in document.results} == {"interrupted"}


def test_a_log_has_the_same_end_once(tmp_path: Path) -> None:
    store, header = Store(tmp_path / "r"), new_header()
    first = machine_run(store, tmp_path, header=header)
    first.add(sent(first_task(tmp_path)))
    first.fail("it is gone")
    again = machine_run(store, tmp_path, header=header)
    again.restore()
    again.fail("it is gone")
    assert again.events == first.events


@pytest.mark.parametrize(
    ("target", "on", "upload"),
    [(None, "auto", True), ("ray://other:10001", "ray://other:10001", True), ("slurm", "slurm", False)],
)
def test_a_run_is_resumed_at_another_address(
    target: str | None, on: str, upload: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lost: Script = [Started(hostname="h"), SENT, NodeLost("it is gone", can_retry=False)]
    executor, made = ScriptedExecutor(a=[lost, COMPLETE], b=[COMPLETE]), list[tuple[str, bool]]()

    def make(target: str, *, upload: bool) -> ScriptedExecutor:
        made.append((target, upload))
        return executor

    monkeypatch.setattr(run_module, "make_executor", make)
    cluster = msgspec.structs.replace(cluster_run(tmp_path, "a", "b", on="auto"), upload=True)
    result = run_on_cluster(cluster, RecordingProgress(), store=Store(tmp_path / "r"))
    assert result.unfinished_id
    resume_on_cluster(result.unfinished_id, RecordingProgress(), store=Store(tmp_path / "r"), target=target)
    assert made == [("auto", True), (on, upload)]


def test_the_fingerprint_is_that_of_the_files_in_any_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Folders of an installed package differ from those of a checkout."""
    found = []
    for first, second in (("a", "b"), ("b", "a")):
        files = [tmp_path / first / second / "one.py", tmp_path / second / first / "two.py"]
        for file in files:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(file.name)
        monkeypatch.setattr(messages, "source_files", lambda files=files: files)
        found.append(current_fingerprint())
    assert found[0] == found[1]


def test_a_running_cluster_run_is_locked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store, locked = Store(tmp_path / "r"), []

    class Trying(ScriptedExecutor):
        def check(self, groups: Sequence[MachineGroup]) -> list[str]:
            (id,) = CheckpointStore(store.folder).ids() or [header.id]
            with pytest.raises(BadInput, match="is still running"), CheckpointStore(store.folder).lock(id):
                pass
            locked.append(id)
            return super().check(groups)

    header = new_header()
    lost: Script = [Started(hostname="h"), SENT, NodeLost("it is gone", can_retry=False)]
    executor = Trying(a=[lost, COMPLETE], b=[COMPLETE])
    monkeypatch.setattr(run_module, "make_executor", lambda target, upload: executor)
    result = run_on_cluster(cluster_run(tmp_path, "a", "b"), RecordingProgress(), store=store, header=header)
    assert result.unfinished_id == header.id
    resume_on_cluster(header.id, RecordingProgress(), store=store)
    assert locked == [header.id] * 2


def test_a_node_measures_with_the_options_of_its_task(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    received: list[tuple[list[AnyEvent], Study, dict[str, Any]]] = []
    there = new_header(anonymous=True)
    elsewhere = msgspec.structs.replace(there, host=msgspec.structs.replace(there.host, hostname="driver"))
    fields = {"header": elsewhere, "study": cluster_run(tmp_path).study, "fingerprint": current_fingerprint()}
    log = study_log(elsewhere, fields["study"]).events

    def run(study: Study, log: Log, *_: object, store: Store, **options: Any) -> StudyDocument:
        assert log.path == store.log_path(there.id)
        received.append((log.events, study, options))
        return derive(study_log(elsewhere, study).events)

    monkeypatch.setattr(node, "run", run)
    for task in (Task(**fields, strict=True, parity_check="all"), Task(**fields, strict=True, log=log)):
        node.run_task(task, lambda _: None)
    (new, *of_new), (resumed, *of_resumed) = received
    assert of_new == [fields["study"], {"strict": True, "parity_check": "all"}]
    assert of_resumed == [fields["study"], {"strict": True, "parity_check": "new"}]
    assert [type(event) for event in new] == [Header]
    assert resumed == [msgspec.structs.replace(log[0], study=study_toml(fields["study"])), *log[1:]]  # it lacked paths


def test_a_node_records_its_own_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    task, received = first_task(tmp_path), list[Message]()
    host = msgspec.structs.replace(task.header.host, hostname="driver")
    task = msgspec.structs.replace(task, header=msgspec.structs.replace(task.header, host=host, machine_label="a"))
    monkeypatch.setattr(node, "run", lambda study, log, *_, **__: derive(study_log(log.header, study).events))
    node.run_task(task, received.append)
    (line,) = [one for one in received if isinstance(one, Lines)]
    (header,) = line.events
    assert isinstance(header, Header)
    assert (line.first, header.id, header.machine_label) == (1, STUDY_ID, "a")
    assert header.host.hostname == new_header().host.hostname


def test_a_node_sends_each_line_once_and_the_end_of_a_failed_workers_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(node, "_MAX_LOG_BYTES", 4)
    task, received = first_task(tmp_path), list[Message]()
    events = study_log(task.header, task.study, crash("fake/cpu", "/elsewhere/fake.log"), end="finished").events

    def run(study: Study, log: Log, *_: object, store: Store, **__: object) -> StudyDocument:
        for number, event in enumerate(events[1:], start=2):
            log.add(event)
            assert received[-1] == Lines(number, [event])
        worker_log = store.folder / "logs" / task.header.id / "fake.log"
        worker_log.parent.mkdir(parents=True)
        worker_log.write_bytes(b"start, then the end")
        return derive(log.events)

    monkeypatch.setattr(node, "run", run)
    node.run_task(task, received.append)
    started, *lines, finished = received
    assert isinstance(started, Started)
    assert [one.first for one in lines if isinstance(one, Lines)] == [*range(1, len(events) + 1)]
    assert finished == Finished({"fake.log": b" end"})


def test_worker_logs_that_arrived_are_named_in_the_report(tmp_path: Path) -> None:
    store, task = Store(tmp_path / "r"), first_task(tmp_path)
    machine = machine_run(store, tmp_path)
    failure = crash("fake/cpu", "/elsewhere/fake.log")
    machine.add(Lines(1, study_log(task.header, task.study, failure, end="finished").events))
    machine.finish({"../fake.log": b"the end"})
    (row,) = store.load(STUDY_ID).results
    assert row.log_path == str(store.folder / "logs" / STUDY_ID / "fake.log")
    assert Path(row.log_path).read_bytes() == b"the end"


def test_messages_are_read_on_from_an_incomplete_line(tmp_path: Path) -> None:
    file = tmp_path / "messages"
    line = encode_line(TimeLeft(3.0))
    file.write_bytes(encode_line(TimeLeft(2.0)) + line[:5])
    first, offset = read_messages(file)
    with file.open("ab") as stream:
        stream.write(line[5:])
    assert (first, read_messages(file, offset)[0]) == ([TimeLeft(2.0)], [TimeLeft(3.0)])


def test_only_the_host_of_a_log_resumes_it(tmp_path: Path) -> None:
    file, lines = tmp_path / "messages", Lines(1, [Warned(text="the first line")])
    append_messages(file, Started(hostname="h"), lines)
    append_messages(file, Started(hostname="h"))
    assert last_host(file) == ("h", [lines])
    append_messages(file, Moved("to k"), Started(hostname="k"))
    assert last_host(file) == ("k", [])
