"""`--on slurm`: submits a job for each machine group; the nodes need no program besides SLURM and polybench.

`--on slurm:FOLDER` selects the folder for messages between driver and jobs, which all nodes must share.
"""

from __future__ import annotations

import contextlib
import itertools
import shutil
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Protocol

import msgspec

from polybench.cluster.executor import Event, Node, NodeLost
from polybench.cluster.messages import Finished, Message, Rejected, StageChanged, Task, WarningRaised
from polybench.cluster.slurm_cluster import END_STATES, PERMANENT_REASONS, UNKNOWN_JOB, JobState, SlurmCluster
from polybench.cluster.slurm_folder import HEARTBEAT_SECONDS, JobFolder
from polybench.errors import BadInput, install_command
from polybench.machine import interrupts
from polybench.schema.options import MachineGroup
from polybench.storage.store import results_folder

_POLL_SECONDS = 0.5
"""Interval between two reads of the jobs' folders."""

_MIN_QUERY_SECONDS, _MAX_QUERY_SECONDS = 2.0, 30.0
"""Interval between two queries of SLURM, which all users share; it grows with the waiting time."""

_CLEANUP_SECONDS = 10.0
"""Maximum wait for a job to end after its last message, before its folder is removed."""

_UNKNOWN = JobState("")

_LATE_MESSAGE_SECONDS = 20.0
"""Maximum delay after a job's end until a network file system shows its last messages."""


class JobQueue(Protocol):
    """Runs jobs."""

    def check(self, groups: Sequence[MachineGroup]) -> list[str]:
        """See `cluster.executor.Executor.check`."""
        ...

    def partitions(self) -> list[MachineGroup]:
        """Return a machine group for each available partition."""
        ...

    def submit(self, folder: JobFolder, group: MachineGroup, preferred_host: str | None) -> str:
        """Submit a job for the task in the folder, on the preferred host if there is one; return its ID."""
        ...

    def states(self, ids: Iterable[str]) -> dict[str, JobState]:
        """Return the known states of these jobs."""
        ...

    def set_preferred_host(self, id: str, host: str | None) -> None:
        """Restrict a pending job to this host; None removes the restriction."""
        ...

    def cancel(self, ids: Iterable[str]) -> None:
        """End running jobs and remove pending ones."""
        ...


class SlurmExecutor:
    """Runs each group as a job on a whole node."""

    def __init__(self, target: str, cluster: JobQueue | None = None) -> None:
        _, _, folder = target.partition(":")
        self._folder = (Path(folder).expanduser() if folder else results_folder() / "slurm").absolute()
        self._cluster = cluster or SlurmCluster()
        self._jobs: dict[str, _Job] = {}
        self._ending_jobs: list[_Job] = []
        self._own_folders: set[Path] = set()
        self._last_query = self._last_heartbeat = float("-inf")
        self._last_submission = time.monotonic()

    def check(self, groups: Sequence[MachineGroup]) -> list[str]:
        """Check that SLURM accepts the jobs, and that the folder for messages is writable."""
        self._ensure_usable()
        return self._cluster.check(groups)

    def _ensure_usable(self) -> None:
        try:
            import submitit  # noqa: F401
        except ImportError as error:
            raise BadInput(f"--on slurm needs submitit; {install_command('slurm')}") from error
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise BadInput(
                f"--on slurm: cannot write to {self._folder}: {error.strerror}; use --on slurm:FOLDER with"
                " a folder that all nodes share"
            ) from error

    def nodes(self) -> list[Node]:
        """Return one node of each partition, whichever is free first, since a cluster has thousands."""
        self._ensure_usable()
        return [Node(group) for group in self._cluster.partitions()]

    def start(self, group: MachineGroup, task: Task, preferred_host: str | None = None) -> None:
        """Submit a job, on its previous host if there is a checkpoint, since only that host can resume it.

        If a job of an earlier driver has finished meanwhile, its messages are read instead.
        """
        finished = self._finished_job(task.id)
        if finished is not None:
            self._own_folders.add(finished.folder.path)
            self._jobs[group.label] = finished
            return
        preferred_host = preferred_host if task.checkpoint is not None else None
        for host, checkpoint in self._cancel_orphans(task.id):
            task, preferred_host = msgspec.structs.replace(task, checkpoint=checkpoint), host
        paths = (self._folder / f"{task.id}-{number}" for number in itertools.count())
        folder = JobFolder(next(path for path in paths if not path.exists()))
        folder.create(task)
        self._own_folders.add(folder.path)
        try:
            job = _Job(
                folder,
                self._cluster.submit(folder, group, preferred_host),
                has_preferred_host=preferred_host is not None,
            )
        except BaseException:  # without a job, its folder would never be removed
            shutil.rmtree(folder.path, ignore_errors=True)
            raise
        folder.set_job_id(job.id)
        self._jobs[group.label] = job
        self._last_query, self._last_submission = float("-inf"), time.monotonic()

    def _finished_job(self, id: str) -> _Job | None:
        """Return a job that finished after its driver was killed."""
        for path in sorted(self._folder.glob(f"{id}-*")):
            folder = JobFolder(path)
            if path not in self._own_folders and (job := folder.job_id()) is not None and folder.is_complete():
                return _Job(folder, job, has_preferred_host=False)
        return None

    def _cancel_orphans(self, id: str) -> Iterator[tuple[str, bytes]]:
        """Cancel jobs of a killed driver of this study; yield their hosts and checkpoints."""
        for path in sorted(self._folder.glob(f"{id}-*")):
            folder = JobFolder(path)
            if path in self._own_folders or (job := folder.job_id()) is None:
                continue
            self._cluster.cancel([job])
            self._ending_jobs.append(_Job(folder, job, has_preferred_host=False))
            self._own_folders.add(path)
            host, checkpoint = folder.last_host()
            if host is not None and checkpoint is not None:
                yield host, checkpoint

    def events(self, seconds: float) -> list[Event]:
        """Return new messages of the jobs, and the reasons why jobs are pending."""
        deadline = time.monotonic() + seconds
        while True:
            events = self._poll()
            remaining = deadline - time.monotonic()
            if events or remaining <= 0 or not self._jobs:
                return events
            with interrupts.interruptible():
                time.sleep(min(_POLL_SECONDS, remaining))

    def _poll(self) -> list[Event]:
        now = time.monotonic()
        if now - self._last_heartbeat > HEARTBEAT_SECONDS:
            self._last_heartbeat = now
            for job in self._jobs.values():
                job.heartbeat()
        states: dict[str, JobState] = {}
        if self._jobs and now - self._last_query > _query_interval(now - self._last_submission):
            self._last_query = now
            states = self._cluster.states(job.id for job in self._jobs.values())
        events = [
            Event(label, message)
            for label, job in self._jobs.items()
            for message in job.poll(states.get(job.id), self._cluster)
        ]
        for label, message in events:
            if isinstance(message, Finished | Rejected | NodeLost):
                job = self._jobs.pop(label)
                if job.is_stopped or not isinstance(message, NodeLost):  # the log of a lost job has the reason
                    self._ending_jobs.append(job)
        return events

    def stop(self) -> None:
        """Stop running jobs and cancel pending ones."""
        for job in self._jobs.values():
            job.stop()
        self._cluster.cancel(job.id for job in self._jobs.values() if not job.is_running)
        self._last_query = float("-inf")

    def close(self) -> None:
        """Cancel all jobs, and remove the folders of jobs that have ended."""
        self._cluster.cancel(job.id for job in self._jobs.values())
        self._ending_jobs += self._jobs.values()
        self._jobs.clear()
        deadline = time.monotonic() + _CLEANUP_SECONDS
        while self._ending_jobs and time.monotonic() < deadline:
            states = self._cluster.states(job.id for job in self._ending_jobs)
            ended = [job for job in self._ending_jobs if states.get(job.id, _UNKNOWN).state in END_STATES]
            for job in ended:
                self._ending_jobs.remove(job)
                shutil.rmtree(job.folder.path, ignore_errors=True)
            if self._ending_jobs:
                time.sleep(_POLL_SECONDS)
        with contextlib.suppress(OSError):
            self._folder.rmdir()  # unless it contains a log or files of others


def _query_interval(seconds: float) -> float:
    return min(_MAX_QUERY_SECONDS, max(_MIN_QUERY_SECONDS, seconds / 20))


class _Job:
    """The job of one group."""

    def __init__(self, folder: JobFolder, id: str, *, has_preferred_host: bool) -> None:
        self.folder, self.id = folder, id
        self.is_running = False
        self._offset = 0
        self._state = _UNKNOWN
        self._end_time: float | None = None
        self._has_preferred_host, self.is_stopped = has_preferred_host, False

    def heartbeat(self) -> None:
        """Write the driver's heartbeat, unless the job is to stop."""
        if not self.is_stopped:
            self.folder.heartbeat()

    def stop(self) -> None:
        """Request the job to stop."""
        self.is_stopped = True
        self.folder.request_stop()

    def poll(self, state: JobState | None, cluster: JobQueue) -> list[Message | NodeLost]:
        """Return new messages, in order."""
        new_messages, self._offset = self.folder.read_messages(self._offset)
        messages: list[Message | NodeLost] = list(new_messages)
        if state is not None and state != self._state:
            previous, self._state = self._state, state
            self.is_running = state.state == "RUNNING"
            messages += self._pending_messages(previous, cluster)
        if self._state.state not in END_STATES:  # it may have restarted
            self._end_time = None
        elif self._end_time is None:
            self._end_time = time.monotonic()
        has_ended = any(isinstance(message, Finished | Rejected | NodeLost) for message in messages)
        if self._end_time is not None and not has_ended and not new_messages:
            reason, never_started = self.folder.loss_reason(), self.is_stopped and self._offset == 0
            is_late = time.monotonic() - self._end_time > _LATE_MESSAGE_SECONDS
            if reason is not None or never_started or is_late:
                can_retry = self._state.state == "NODE_FAIL"
                messages.append(NodeLost(reason or self._end_reason(), can_retry=can_retry))
        return messages

    def _pending_messages(self, previous: JobState, cluster: JobQueue) -> list[Message | NodeLost]:
        """Explain why a pending job waits, and set the host that can resume it."""
        state, reason = self._state
        if state != "PENDING":
            return []
        if reason in PERMANENT_REASONS:
            cluster.cancel([self.id])
            return [NodeLost(f"SLURM will never start job {self.id}: {reason}", can_retry=False)]
        host, checkpoint = self.folder.last_host()
        messages: list[Message | NodeLost] = []
        if host is not None and previous.state != "PENDING":
            messages.append(WarningRaised(f"SLURM requeued job {self.id}, which was running on {host}"))
        if reason.startswith("ReqNodeNotAvail") and self._has_preferred_host:
            self._has_preferred_host = False
            cluster.set_preferred_host(self.id, None)
            messages.append(WarningRaised(f"the host that started job {self.id} is no longer available"))
        elif checkpoint is not None and not self._has_preferred_host and previous.state != "PENDING":
            self._has_preferred_host = True
            cluster.set_preferred_host(self.id, host)
        stage = f"job {self.id} is pending in SLURM's queue" + (f": {reason}" if reason else "")
        return [*messages, StageChanged(stage)]

    def _end_reason(self) -> str:
        state, reason = self._state
        status = "is no longer known to SLURM" if state == UNKNOWN_JOB else f"ended as {state}"
        reason_text = f" ({reason})" if reason and reason != state else ""
        if self.is_stopped and self._offset == 0:
            return f"job {self.id} was cancelled before it started"
        if self._offset == 0:
            return (
                f"job {self.id} {status}{reason_text} without writing to {self.folder.path}; all nodes must"
                f" share this folder and have this Python; --on slurm:FOLDER selects another folder"
            )
        return f"job {self.id} {status}{reason_text}; its log: {self.folder.logs}"
