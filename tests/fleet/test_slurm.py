"""`--on slurm` with submitit's own jobs on this machine in place of a cluster's."""

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

from polybench.core.document.study import from_json
from polybench.core.machines import MachineGroup
from polybench.core.spec import Study
from polybench.fleet.executor import Event, Lost
from polybench.fleet.messages import Finished, Hello, Message, Refused, Saved, Stage, Task, Warned
from polybench.fleet.program import this_program
from polybench.fleet.slurm import SlurmExecutor
from polybench.fleet.slurm_cluster import JobState
from polybench.fleet.slurm_folder import JobFolder, tell
from polybench.fleet.slurm_job import NodeJob
from tests.plain.test_plain import folder

__all__ = ["folder"]

Met = list[Message | Lost]


class LocalCluster:
    """Jobs that are processes of this machine, begun by submitit as SLURM's are."""

    def __init__(self) -> None:
        self.jobs: dict[str, LocalJob[None]] = {}
        self.waiting: dict[str, str] = {}
        """Jobs that never begin, and why."""
        self.reason: str | None = None
        """For the next job: why it waits; None begins."""
        self.near: list[str | None] = []
        self.cancelled: set[str] = set()

    def check(self, groups: Sequence[MachineGroup]) -> list[str]:
        return []

    def machines(self) -> list[MachineGroup]:
        return []

    def submit(self, folder: JobFolder, group: MachineGroup, near: str | None) -> str:
        self.near.append(near)
        if self.reason is not None:
            self.waiting[id := str(len(self.near))] = self.reason
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
        if id in self.cancelled and id in self.waiting:
            return JobState("CANCELLED")
        if id in self.waiting:
            return JobState("PENDING", self.waiting[id])
        return JobState("COMPLETED" if self.jobs[id].done() else "RUNNING")

    def stay_near(self, id: str, host: str | None) -> None:
        self.near.append(host)

    def cancel(self, ids: Iterable[str]) -> None:
        for id in ids:
            self.cancelled.add(id)
            if id in self.jobs:
                process = self.jobs[id]._process
                assert process is not None
                process.terminate()  # as SLURM does


@pytest.fixture
def cluster() -> LocalCluster:
    return LocalCluster()


@pytest.fixture
def executor(cluster: LocalCluster, tmp_path: Path) -> Iterator[SlurmExecutor]:
    executor = SlurmExecutor(f"slurm:{tmp_path / 'shared'}", cluster)
    yield executor
    executor.close()


def task(folder: Path, processes: int = 2, **more: object) -> Task:
    study = Study(
        engines=("fake",),
        devices=("cpu",),
        data=str(folder),
        batch_size=16,
        processes=processes,
        rounds=2,
        budget=3.0,
        steps=3,
        parity=False,
        metrics=False,
    )
    made = Task(
        id="20260101-000000-aaaa",
        created="2026-01-01T00:00:00+00:00",
        study=study,
        program=this_program(),
    )
    return msgspec.structs.replace(made, **more)


def met(executor: SlurmExecutor, until: Callable[[Message | Lost], bool], seconds: float = 60) -> Met:
    """All that was said until then."""
    found: Met = []
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        events: list[Event] = executor.events(1.0)
        found += [event.message for event in events]
        if any(until(message) for message in found):
            return found
    raise AssertionError(f"not within {seconds} s: {found}")


def is_last(message: Message | Lost) -> bool:
    return isinstance(message, Finished | Refused | Lost)


def test_a_study_whose_job_begins_again_goes_on(
    executor: SlurmExecutor, cluster: LocalCluster, folder: Path, tmp_path: Path
) -> None:
    assert executor.check([MachineGroup()]) == []
    executor.start(MachineGroup(), task(folder, processes=50))
    before = met(executor, lambda one: isinstance(one, Saved) and one.state is not None)
    (job,) = cluster.jobs.values()
    (program,) = psutil.Process(int(job.job_id)).children()
    program.send_signal(signal.SIGUSR2)  # which comes before SLURM ends it
    again = met(executor, lambda one: isinstance(one, Hello))
    again += met(executor, lambda one: isinstance(one, Saved))
    executor.stop()  # or it would have to be slow, for the signal to come in time
    after = met(executor, is_last)
    assert isinstance(after[-1], Finished), after
    said = [one for one in [*before, *again, *after] if isinstance(one, Hello)]
    assert [one.hostname for one in said] == [socket.gethostname()] * 2
    first, document = (
        from_json([one for one in several if isinstance(one, Saved)][-1].document)
        for several in (before, after)
    )
    assert document.finished
    assert len(document.results[0].steps) >= len(first.results[0].steps) > 0
    assert any("resumed after" in warning for warning in document.warnings)
    executor.close()
    assert not (tmp_path / "shared").exists()


def test_stop_ends_a_study_as_ctrl_c_does(executor: SlurmExecutor, folder: Path) -> None:
    executor.start(MachineGroup(), task(folder, processes=50))
    met(executor, lambda one: isinstance(one, Saved))
    executor.stop()
    said = met(executor, is_last)
    assert isinstance(said[-1], Finished), said
    document = from_json([one for one in said if isinstance(one, Saved)][-1].document)
    assert any(result.status == "interrupted" for result in document.results)


def test_a_job_that_is_cancelled_is_lost(
    executor: SlurmExecutor, cluster: LocalCluster, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("polybench.fleet.slurm._LATE_SECONDS", 1.0)
    executor.start(MachineGroup(), task(folder, processes=50))
    met(executor, lambda one: isinstance(one, Hello))
    cluster.cancel(cluster.jobs)
    (*_, last) = met(executor, is_last)
    assert isinstance(last, Lost)
    assert "its log: " in last.reason


def test_why_a_job_waits_is_said_and_a_cancelled_one_never_begins(
    executor: SlurmExecutor, cluster: LocalCluster, folder: Path
) -> None:
    cluster.reason = "Resources"
    executor.start(MachineGroup(), task(folder))
    (*_, waits) = met(executor, lambda one: isinstance(one, Stage))
    assert waits == Stage("job 1 waits in SLURM's queue: Resources")
    executor.stop()
    (*_, last) = met(executor, is_last)
    assert last == Lost("job 1 was cancelled before it began", again=False)


def test_a_reason_that_no_waiting_ends_is_the_end(
    executor: SlurmExecutor, cluster: LocalCluster, folder: Path
) -> None:
    cluster.reason = "PartitionTimeLimit"
    executor.start(MachineGroup(), task(folder))
    (*_, last) = met(executor, is_last)
    assert last == Lost("SLURM will never start job 1: PartitionTimeLimit", again=False)
    assert cluster.cancelled == {"1"}


def test_a_job_goes_on_only_near_what_it_kept(
    executor: SlurmExecutor, cluster: LocalCluster, folder: Path, tmp_path: Path
) -> None:
    cluster.reason = "Priority"
    executor.start(MachineGroup(), task(folder), near="n1")
    assert cluster.near == [None], "nothing is kept: any host will do"
    met(executor, lambda one: isinstance(one, Stage))

    job = JobFolder(next((tmp_path / "shared").iterdir()))
    with job.said() as file:
        tell(file, Hello(hostname="n1"))
        tell(file, Saved(b"{}", b"kept"))
    executor._jobs["local"]._state = JobState("RUNNING")
    cluster.waiting["1"] = "BeginTime"
    said = met(executor, lambda one: isinstance(one, Stage))
    assert Warned("SLURM took n1 from job 1, which begins again") in said
    assert cluster.near == [None, "n1"]

    cluster.waiting["1"] = "ReqNodeNotAvail, UnavailableNodes:n1"
    met(executor, lambda one: isinstance(one, Warned))
    assert cluster.near == [None, "n1", None]


def test_what_jobs_kept_after_their_driver_was_killed_counts(
    executor: SlurmExecutor, cluster: LocalCluster, folder: Path, tmp_path: Path
) -> None:
    cluster.reason = "Priority"
    executor.start(MachineGroup(), task(folder))
    earlier = JobFolder(tmp_path / "shared" / f"{task(folder).id}-0")
    with earlier.said() as file:
        tell(file, Hello(hostname="n1"))
        tell(file, Saved(b"{}", b"newer"))
    another = SlurmExecutor(f"slurm:{tmp_path / 'shared'}", cluster)
    another.start(MachineGroup(), task(folder, state=b"older"), near="n1")
    assert cluster.cancelled == {"1"}
    assert cluster.near == [None, "n1"]
    assert JobFolder(tmp_path / "shared" / f"{task(folder).id}-1").task().state == b"newer"
    another.close()


def test_what_a_job_finished_after_its_driver_was_killed_is_not_measured_again(
    executor: SlurmExecutor, cluster: LocalCluster, folder: Path, tmp_path: Path
) -> None:
    cluster.reason = "Priority"
    executor.start(MachineGroup(), task(folder))
    said = [Hello(hostname="n1"), Saved(b"{}", b"kept"), Saved(b"{}", None), Finished()]
    earlier = JobFolder(tmp_path / "shared" / f"{task(folder).id}-0")
    with earlier.said() as file:
        for message in said:
            tell(file, message)
    cluster.cancelled.add("1")  # it has ended
    another = SlurmExecutor(f"slurm:{tmp_path / 'shared'}", cluster)
    another.start(MachineGroup(), task(folder, state=b"older"), near="n1")
    assert [event.message for event in another.events(0)] == said
    assert cluster.near == [None]
    another.close()
    assert not earlier.path.exists()


def test_a_job_that_begins_again_elsewhere_measures_all_of_it(tmp_path: Path, folder: Path) -> None:
    job = JobFolder(tmp_path / "job")
    job.begin(task(folder, processes=1))
    with job.said() as file:
        tell(file, Hello(hostname="another"))
        tell(file, Saved(b"{}", b"of no use here"))
    NodeJob(job.path)()
    said = job.read()[0]
    assert isinstance(said[-1], Finished), said[-1]
    (warned,) = [one.text for one in said if isinstance(one, Warned) and "another" in one.text]
    assert warned.startswith("began on another, which SLURM took from it: measured again, all of it, on ")


def test_a_job_whose_driver_is_gone_ends(
    tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def heard(self: JobFolder) -> str:
        begun = any(isinstance(one, Hello) for one in self.read()[0])
        return "nothing new" if begun else str(time.monotonic())

    monkeypatch.setattr("polybench.fleet.slurm_job._GONE_SECONDS", 1.0)
    monkeypatch.setattr(JobFolder, "heard", heard)
    job = JobFolder(tmp_path / "job")
    job.begin(task(folder, processes=50))
    NodeJob(job.path)()
    said = job.read()[0]
    assert said[-1] == Finished() or (isinstance(said[-1], Refused) and said[-1].exit_code == 130), said
