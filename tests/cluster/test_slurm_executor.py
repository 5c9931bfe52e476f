"""`--on slurm`, with submitit's local jobs in place of a cluster's."""

from __future__ import annotations

import signal
import socket
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import msgspec
import psutil
import pytest
from submitit import LocalExecutor, LocalJob

from polybench.cluster.executor import Event, NodeLost
from polybench.cluster.messages import (
    Finished,
    Message,
    Rejected,
    Saved,
    StageChanged,
    Started,
    Task,
    WarningRaised,
    current_fingerprint,
)
from polybench.cluster.slurm_cluster import JobState
from polybench.cluster.slurm_executor import SlurmExecutor
from polybench.cluster.slurm_folder import JobFolder, send
from polybench.cluster.slurm_job import NodeJob
from polybench.schema.options import MachineGroup, Study
from polybench.schema.study import from_json
from tests.scripts.test_plain import folder

__all__ = ["folder"]

Messages = list[Message | NodeLost]


class LocalJobQueue:
    """Jobs that run as processes of this machine, started by submitit like SLURM's."""

    def __init__(self) -> None:
        self.jobs: dict[str, LocalJob[None]] = {}
        self.pending: dict[str, str] = {}
        """Jobs that never start, and the reasons."""
        self.reason: str | None = None
        """Reason why the next job stays pending; None starts it."""
        self.preferred_hosts: list[str | None] = []
        self.cancelled: set[str] = set()

    def check(self, groups: Sequence[MachineGroup]) -> list[str]:
        return []

    def partitions(self) -> list[MachineGroup]:
        return []

    def submit(self, folder: JobFolder, group: MachineGroup, preferred_host: str | None) -> str:
        self.preferred_hosts.append(preferred_host)
        if self.reason is not None:
            self.pending[id := str(len(self.preferred_hosts))] = self.reason
            return id
        executor = LocalExecutor(folder.logs, max_num_timeout=2)
        executor.update_parameters(timeout_min=5, stderr_to_stdout=True)
        job = executor.submit(NodeJob(folder.path))
        assert isinstance(job, LocalJob)
        self.jobs[job.job_id] = job
        return job.job_id

    def states(self, ids: Iterable[str]) -> dict[str, JobState]:
        return {id: self._state(id) for id in ids}

    def _state(self, id: str) -> JobState:
        if id in self.cancelled and id in self.pending:
            return JobState("CANCELLED")
        if id in self.pending:
            return JobState("PENDING", self.pending[id])
        return JobState("COMPLETED" if self.jobs[id].done() else "RUNNING")

    def set_preferred_host(self, id: str, host: str | None) -> None:
        self.preferred_hosts.append(host)

    def cancel(self, ids: Iterable[str]) -> None:
        for id in ids:
            self.cancelled.add(id)
            if id in self.jobs:
                process = self.jobs[id]._process
                assert process is not None
                process.terminate()  # like SLURM


@pytest.fixture
def cluster() -> LocalJobQueue:
    return LocalJobQueue()


@pytest.fixture
def executor(cluster: LocalJobQueue, tmp_path: Path) -> Iterator[SlurmExecutor]:
    executor = SlurmExecutor(f"slurm:{tmp_path / 'shared'}", cluster)
    yield executor
    executor.close()


def task(folder: Path, processes: int = 2, **fields: object) -> Task:
    study = Study(
        engines=("fake",),
        devices=("cpu",),
        data=str(folder),
        batch_size=16,
        processes=processes,
        rounds_per_process=2,
        budget=3.0,
        steps_per_round=3,
        parity=False,
        metrics=False,
    )
    task = Task(
        id="20260101-000000-aaaa",
        created="2026-01-01T00:00:00+00:00",
        study=study,
        fingerprint=current_fingerprint(),
    )
    return msgspec.structs.replace(task, **fields)


def messages_until(
    executor: SlurmExecutor, condition: Callable[[Message | NodeLost], bool], seconds: float = 60
) -> Messages:
    """Collect messages until one fulfils the condition."""
    found: Messages = []
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        events: list[Event] = executor.events(1.0)
        found += [event.message for event in events]
        if any(condition(message) for message in found):
            return found
    raise AssertionError(f"not within {seconds} s: {found}")


def is_last(message: Message | NodeLost) -> bool:
    return isinstance(message, Finished | Rejected | NodeLost)


def test_study_resumes_if_its_job_restarts(
    executor: SlurmExecutor, cluster: LocalJobQueue, folder: Path, tmp_path: Path
) -> None:
    assert executor.check([MachineGroup()]) == []
    executor.start(MachineGroup(), task(folder, processes=50))
    before = messages_until(executor, lambda one: isinstance(one, Saved) and one.checkpoint is not None)
    (job,) = cluster.jobs.values()
    (program,) = psutil.Process(int(job.job_id)).children()
    program.send_signal(signal.SIGUSR2)  # sent before SLURM's time limit
    restarted = messages_until(executor, lambda one: isinstance(one, Started))
    restarted += messages_until(executor, lambda one: isinstance(one, Saved))
    executor.stop()  # otherwise only a slow study would be running at the signal
    after = messages_until(executor, is_last)
    assert isinstance(after[-1], Finished), after
    starts = [one for one in [*before, *restarted, *after] if isinstance(one, Started)]
    assert [one.hostname for one in starts] == [socket.gethostname()] * 2
    first, document = (
        from_json([one for one in several if isinstance(one, Saved)][-1].document) for several in (before, after)
    )
    assert document.finished
    assert len(document.results[0].nested_step_times) >= len(first.results[0].nested_step_times) > 0
    assert any("resumed after" in warning for warning in document.warnings)
    executor.close()
    assert not (tmp_path / "shared").exists()


def test_stop_ends_a_study_like_ctrl_c(executor: SlurmExecutor, folder: Path) -> None:
    executor.start(MachineGroup(), task(folder, processes=50))
    messages_until(executor, lambda one: isinstance(one, Saved))
    executor.stop()
    messages = messages_until(executor, is_last)
    assert isinstance(messages[-1], Finished), messages
    document = from_json([one for one in messages if isinstance(one, Saved)][-1].document)
    assert any(result.status == "interrupted" for result in document.results)


def test_cancelled_job_is_lost(
    executor: SlurmExecutor, cluster: LocalJobQueue, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("polybench.cluster.slurm_executor._LATE_MESSAGE_SECONDS", 1.0)
    executor.start(MachineGroup(), task(folder, processes=50))
    messages_until(executor, lambda one: isinstance(one, Started))
    cluster.cancel(cluster.jobs)
    (*_, last) = messages_until(executor, is_last)
    assert isinstance(last, NodeLost)
    assert "its log: " in last.reason


def test_reason_of_a_pending_job_is_reported(executor: SlurmExecutor, cluster: LocalJobQueue, folder: Path) -> None:
    cluster.reason = "Resources"
    executor.start(MachineGroup(), task(folder))
    (*_, stage) = messages_until(executor, lambda one: isinstance(one, StageChanged))
    assert stage == StageChanged("job 1 is pending in SLURM's queue: Resources")
    executor.stop()
    (*_, last) = messages_until(executor, is_last)
    assert last == NodeLost("job 1 was cancelled before it started", can_retry=False)


def test_job_with_a_permanent_reason_is_cancelled(
    executor: SlurmExecutor, cluster: LocalJobQueue, folder: Path
) -> None:
    cluster.reason = "PartitionTimeLimit"
    executor.start(MachineGroup(), task(folder))
    (*_, last) = messages_until(executor, is_last)
    assert last == NodeLost("SLURM will never start job 1: PartitionTimeLimit", can_retry=False)
    assert cluster.cancelled == {"1"}


def test_requeued_job_prefers_the_host_of_its_checkpoint(
    executor: SlurmExecutor, cluster: LocalJobQueue, folder: Path, tmp_path: Path
) -> None:
    cluster.reason = "Priority"
    executor.start(MachineGroup(), task(folder), preferred_host="n1")
    assert cluster.preferred_hosts == [None], "without a checkpoint any host is suitable"
    messages_until(executor, lambda one: isinstance(one, StageChanged))

    job = JobFolder(next((tmp_path / "shared").iterdir()))
    with job.open_messages() as file:
        send(file, Started(hostname="n1"))
        send(file, Saved(b"{}", b"checkpoint"))
    executor._jobs["local"]._state = JobState("RUNNING")
    cluster.pending["1"] = "BeginTime"
    messages = messages_until(executor, lambda one: isinstance(one, StageChanged))
    assert WarningRaised("SLURM requeued job 1, which was running on n1") in messages
    assert cluster.preferred_hosts == [None, "n1"]

    cluster.pending["1"] = "ReqNodeNotAvail, UnavailableNodes:n1"
    messages_until(executor, lambda one: isinstance(one, WarningRaised))
    assert cluster.preferred_hosts == [None, "n1", None]


def test_checkpoint_of_a_killed_drivers_job_is_used(
    executor: SlurmExecutor, cluster: LocalJobQueue, folder: Path, tmp_path: Path
) -> None:
    cluster.reason = "Priority"
    executor.start(MachineGroup(), task(folder))
    earlier = JobFolder(tmp_path / "shared" / f"{task(folder).id}-0")
    with earlier.open_messages() as file:
        send(file, Started(hostname="n1"))
        send(file, Saved(b"{}", b"newer"))
    another = SlurmExecutor(f"slurm:{tmp_path / 'shared'}", cluster)
    another.start(MachineGroup(), task(folder, checkpoint=b"older"), preferred_host="n1")
    assert cluster.cancelled == {"1"}
    assert cluster.preferred_hosts == [None, "n1"]
    assert JobFolder(tmp_path / "shared" / f"{task(folder).id}-1").task().checkpoint == b"newer"
    another.close()


def test_result_of_a_killed_drivers_job_is_used(
    executor: SlurmExecutor, cluster: LocalJobQueue, folder: Path, tmp_path: Path
) -> None:
    cluster.reason = "Priority"
    executor.start(MachineGroup(), task(folder))
    messages = [Started(hostname="n1"), Saved(b"{}", b"checkpoint"), Saved(b"{}", None), Finished()]
    earlier = JobFolder(tmp_path / "shared" / f"{task(folder).id}-0")
    with earlier.open_messages() as file:
        for message in messages:
            send(file, message)
    cluster.cancelled.add("1")  # the job has ended
    another = SlurmExecutor(f"slurm:{tmp_path / 'shared'}", cluster)
    another.start(MachineGroup(), task(folder, checkpoint=b"older"), preferred_host="n1")
    assert [event.message for event in another.events(0)] == messages
    assert cluster.preferred_hosts == [None]
    another.close()
    assert not earlier.path.exists()


def test_job_restarted_on_another_host_measures_everything(tmp_path: Path, folder: Path) -> None:
    job = JobFolder(tmp_path / "job")
    job.create(task(folder, processes=1))
    with job.open_messages() as file:
        send(file, Started(hostname="another"))
        send(file, Saved(b"{}", b"checkpoint"))
    NodeJob(job.path)()
    messages = job.read_messages()[0]
    assert isinstance(messages[-1], Finished), messages[-1]
    (warning,) = [one.text for one in messages if isinstance(one, WarningRaised) and "started on another" in one.text]
    assert warning.startswith("started on another, but SLURM moved the job: everything is measured again on ")


def test_job_ends_if_its_driver_is_gone(tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def last_driver_message(self: JobFolder) -> str:
        has_started = any(isinstance(one, Started) for one in self.read_messages()[0])
        return "unchanged" if has_started else str(time.monotonic())

    monkeypatch.setattr("polybench.cluster.slurm_job._DRIVER_TIMEOUT", 1.0)
    monkeypatch.setattr(JobFolder, "last_driver_message", last_driver_message)
    job = JobFolder(tmp_path / "job")
    job.create(task(folder, processes=50))
    NodeJob(job.path)()
    messages = job.read_messages()[0]
    assert messages[-1] == Finished() or (isinstance(messages[-1], Rejected) and messages[-1].exit_code == 130), (
        messages
    )
