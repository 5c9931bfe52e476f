"""`--on slurm`: submitit runs each machine group as a job on a whole node, which needs only SLURM and polybench.

A job writes its messages to a file in a folder that all nodes share; `--on slurm:FOLDER` selects the folder.
"""

from __future__ import annotations

import contextlib
import math
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Collection, Sequence
from pathlib import Path

import msgspec
import submitit
from submitit.core.utils import FailedJobError, FailedSubmissionError
from submitit.helpers import Checkpointable

from polybench.cluster import messages
from polybench.cluster.executor import Event, Node, last_line
from polybench.cluster.local import NodeProcess
from polybench.cluster.messages import Message, Task
from polybench.data import supervisor
from polybench.data.disk import remove_folder
from polybench.errors import BadInput
from polybench.machine import interrupts
from polybench.schema.options import MachineGroup
from polybench.storage.store import results_folder

_COMMAND_SECONDS, _SUBMISSION_SECONDS = 8.0, 60.0
"""Time for a query of SLURM, which would itself try for minutes, and for the submission of a job."""
_POLL_SECONDS, _QUERY_SECONDS = 0.5, 10.0
"""Intervals between two reads of messages, and between two queries of SLURM, which all users share."""
_LATE_SECONDS, _CLEANUP_SECONDS = 20.0, 10.0
"""Waits for the last messages of a job on a network file system, and for its end before its folder is removed."""
_MINUTES, _DIAGNOSIS_MINUTES = 120, 10
"""Time limits of jobs whose group has none, and of those that only diagnose a node."""
_NOTICE_SECONDS, _MAX_RESTARTS = 60, 10
"""Time before its limit at which submitit requeues a job, and how often it does."""
_END_STATES = {
    *("BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL", "OUT_OF_MEMORY", "PREEMPTED"),
    *("REVOKED", "TIMEOUT", "forgotten"),
}
"""States of jobs that have ended, which SLURM forgets after minutes; a requeued job is PENDING."""


class NodeJob(Checkpointable):
    """The job of one machine group, which SLURM (preemption, lost node) or submitit (time limit) may restart."""

    def __init__(self, file: Path, task: Task) -> None:
        self.file, self.task = file, task

    def __call__(self) -> None:
        """Run the node program; on the same host it resumes what an earlier start has finished."""
        task, this_host = self.task, socket.gethostname()
        host, sent = messages.last_host(self.file)
        if host == this_host:
            log = list(task.log)
            for lines in sent:
                log += lines.after(len(log))
            task = msgspec.structs.replace(task, log=log)
        elif host is not None:
            task = msgspec.structs.replace(task, log=[])
            moved = f"started on {host}, but SLURM moved the job: everything is measured again on {this_host}"
            messages.append_messages(self.file, messages.Moved(moved))
        # SLURM sends SIGTERM to all processes of a job. The node program and its workers inherit that it is
        # ignored, since a terminated worker would be a failed configuration.
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        with contextlib.closing(NodeProcess(task)) as process:
            signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
            signal.signal(signal.SIGINT, lambda *_: process.stop())  # of `SlurmExecutor.stop`
            received: list[Message] = []
            while not any(isinstance(message, messages.LAST_MESSAGES) for message in received):
                received = process.receive()
                messages.append_messages(self.file, *received)


class _Submitter(submitit.SlurmExecutor):
    """Gives options on the command line, where they override the user's SBATCH_ variables."""

    def __init__(self, folder: Path, options: list[str]) -> None:
        # exec replaces the shell by submitit as the job's first process, which SLURM's signals reach.
        super().__init__(folder, max_num_timeout=_MAX_RESTARTS, python=f"exec {shlex.quote(sys.executable)} -P")
        self._options = options

    def _make_submission_command(self, submission_file_path: Path) -> list[str]:
        return ["timeout", f"{_SUBMISSION_SECONDS:g}", "sbatch", *self._options, str(submission_file_path)]


class SlurmExecutor:
    """Runs each group as a job on a whole node."""

    def __init__(self, target: str) -> None:
        _, _, folder = target.partition(":")
        self._folder = (Path(folder).expanduser() if folder else results_folder() / "slurm").absolute()
        if not str(self._folder).isprintable():  # it becomes a line of a job's script
            raise BadInput(f"--on slurm: {self._folder}: expected a folder without line breaks and control characters")
        self._jobs: dict[str, _Job] = {}
        self._ending_jobs: list[_Job] = []
        self._minutes: dict[str, float] = {}  # time limits of partitions
        self._default_partition, self._last_query = "", -math.inf

    def check(self, groups: Sequence[MachineGroup]) -> list[str]:
        """Check that SLURM accepts the jobs, and that the folder for messages is writable."""
        self._find_partitions()
        for group in groups:
            run = _run("sbatch", "--test-only", *self._options(group), "--wrap", "true")
            if run.returncode:
                hint = f"partitions are: {', '.join(self._minutes) or 'none'}"
                raise BadInput(f"machine {group.label}: SLURM rejects the job: {last_line(run.stderr)}; {hint}")
        return []

    def nodes(self) -> list[Node]:
        """Return one node of each partition that is up, whichever is free first: a cluster has thousands."""
        limits = {name: round(min(self._minutes[name], _DIAGNOSIS_MINUTES)) for name in self._find_partitions()}
        return [Node(MachineGroup(label=name, partition=name, minutes=limit)) for name, limit in limits.items()]

    def _find_partitions(self) -> list[str]:
        """Store the time limits of all partitions, and return those that are up."""
        if shutil.which("sbatch") is None or shutil.which("srun") is None:
            raise BadInput("--on slurm: sbatch not found on this machine; run polybench on a login node")
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            hint = "use --on slurm:FOLDER with a folder that all nodes share"
            raise BadInput(f"--on slurm: cannot write to {self._folder}: {error.strerror}; {hint}") from error
        run = _run("sinfo", "--all", "--noheader", "--format=%P|%a|%l")
        if run.returncode:
            raise BadInput(f"--on slurm: SLURM does not respond: {last_line(run.stderr)}")
        rows = [line.strip().split("|") for line in run.stdout.splitlines()]
        self._minutes = {name.rstrip("*"): parse_minutes(limit) for name, _, limit in rows}
        self._default_partition = next((name.rstrip("*") for name, _, _ in rows if name.endswith("*")), "")
        return [name.rstrip("*") for name, available, _ in rows if available == "up"]

    def _time_limit(self, group: MachineGroup) -> int:
        """Return the minutes of a job; reject more than its partitions allow, since it would never start."""
        partitions = group.partition or os.environ.get("SBATCH_PARTITION", self._default_partition)
        limit = max(self._minutes.get(name, math.inf) for name in partitions.split(","))
        if group.minutes is not None and group.minutes > limit:
            problem = f"{group.minutes} minutes exceed the limit of SLURM's partition"
            raise BadInput(f"machine {group.label}: {problem}; use minutes = {limit:.0f} or less")
        return group.minutes or round(min(limit, _MINUTES))

    def _options(self, group: MachineGroup, host: str = "") -> list[str]:
        """Return options of sbatch for a whole node, on this host if one is given."""
        requested = {
            "job-name": f"polybench-{group.label}",
            "nodes": "1",
            "mem": "0",  # all of it
            "time": str(self._time_limit(group)),
            # "B:" sends the signal only to the job's first process, submitit's; it would kill workers.
            "signal": f"B:USR2@{_NOTICE_SECONDS}",
            "partition": group.partition,
            "constraint": group.constraint,
            "gres": group.accelerator and f"gpu:{group.accelerator}:1",
            "nodelist": host.partition(".")[0],  # without the domain
        }
        return ["--exclusive", "--requeue", *(f"--{name}={value}" for name, value in requested.items() if value)]

    def start(self, group: MachineGroup, task: Task, preferred_host: str | None = None) -> None:
        """Submit a job, on its previous host if there is a log, since only that host can resume it.

        If a killed driver has left a job that waits, runs or has finished, follow that one instead.
        """
        folder, host = self._folder / task.header.id, ""
        if not (folder / "job").exists():
            (folder / "messages").unlink(missing_ok=True)  # of an earlier job; the task has its log
            host = preferred_host or "" if task.log else ""
            self._submit(folder, group, task, host)
        self._jobs[group.label] = _Job(folder, host)
        self._last_query = -math.inf

    def _submit(self, folder: Path, group: MachineGroup, task: Task, host: str) -> None:
        submitter = _Submitter(folder / "log", self._options(group, host))
        # Without srun, since a job step would get one core.
        submitter.update_parameters(time=self._time_limit(group), use_srun=False, stderr_to_stdout=True)
        try:
            (folder / "job").write_text(submitter.submit(NodeJob(folder / "messages", task)).job_id)
        except (FailedJobError, FailedSubmissionError, subprocess.CalledProcessError) as error:
            remove_folder(folder, self._folder)
            raise BadInput(f"machine {group.label}: SLURM rejects the job: {last_line(str(error))}") from error

    def events(self, seconds: float) -> list[Event]:
        """Return new messages of the jobs, and the reasons why jobs are pending."""
        deadline = time.monotonic() + seconds
        while not (events := self._poll()) and self._jobs and time.monotonic() < deadline:
            with interrupts.interruptible():
                time.sleep(_POLL_SECONDS)
        return events

    def _poll(self) -> list[Event]:
        if time.monotonic() - self._last_query > _QUERY_SECONDS:
            self._last_query = time.monotonic()
            _query_states(self._jobs.values())
        events = [Event(label, message) for label, job in self._jobs.items() for message in job.poll()]
        for label, message in events:
            if isinstance(message, messages.LAST_MESSAGES):
                job = self._jobs.pop(label)
                (job.folder / "job").unlink()
                if job.is_stopped or not isinstance(message, messages.NodeLost):  # the log has the reason
                    self._ending_jobs.append(job)
        return events

    def stop(self) -> None:
        """Stop running jobs and cancel pending ones."""
        for job in self._jobs.values():
            job.is_stopped = True
            _run("scancel", *(["--signal=INT", "--batch"] if job.state == "RUNNING" else []), job.id)
        self._last_query = -math.inf

    def close(self) -> None:
        """Cancel all jobs, and remove the folders of jobs that have ended."""
        for job in self._jobs.values():
            _run("scancel", job.id)
            (job.folder / "job").unlink()
        jobs = [*self._jobs.values(), *self._ending_jobs]
        self._jobs.clear()
        deadline = time.monotonic() + _CLEANUP_SECONDS
        while jobs and time.monotonic() < deadline:
            _query_states(jobs)
            for job in [job for job in jobs if job.state in _END_STATES]:
                jobs.remove(job)
                remove_folder(job.folder, self._folder)
            time.sleep(_POLL_SECONDS if jobs else 0)
        with contextlib.suppress(OSError):
            self._folder.rmdir()  # unless it contains a log or files of others


class _Job:
    """A submitted job, which may start only on this host, if any. Drivers may follow it while its file `job` exists."""

    def __init__(self, folder: Path, host: str) -> None:
        self.folder, self._host, self._offset = folder, host, 0
        self.id = (folder / "job").read_text()
        self.state, self._reason, self.is_stopped, self._end_time = "", "", False, math.inf
        self._new: list[Message] = []

    def update(self, state: str, reason: str) -> None:
        """Store the state that SLURM reports, and why the job is pending or has ended."""
        previous, (self.state, self._reason) = (self.state, self._reason), (state, reason)
        if previous == (state, reason):
            return
        self._end_time = time.monotonic() if state in _END_STATES else math.inf
        if state == "PENDING":
            host, sent = messages.last_host(self.folder / "messages")
            if sent and not self._host and previous[0] != "PENDING":
                self._require_host(host or "")  # it was requeued, and only this host can resume it
            elif self._host and reason.startswith("ReqNodeNotAvail"):
                self._require_host("")
                self._new.append(messages.WarningRaised(f"the host of job {self.id} is no longer available"))
            explanation = f": {reason}" if reason else ""
            self._new.append(messages.StageChanged(f"job {self.id} is pending in SLURM's queue{explanation}"))

    def _require_host(self, host: str) -> None:
        self._host = host
        _run("scontrol", "update", f"JobId={self.id}", f"ReqNodeList={host.partition('.')[0]}")

    def poll(self) -> list[Message]:
        """Return new messages, in order."""
        received, self._offset = messages.read_messages(self.folder / "messages", self._offset)
        received, self._new = [*received, *self._new], []
        was_cancelled = self.is_stopped and self._offset == 0
        if received or time.monotonic() < self._end_time + (0 if was_cancelled else _LATE_SECONDS):
            return received
        if was_cancelled:
            return [messages.NodeLost(f"job {self.id} was cancelled before it started", can_retry=False)]
        reason = f" ({self._reason})" if self._reason not in ("", self.state) else ""
        text = f"job {self.id} ended as {self.state}{reason}; its log: {self.folder / 'log'}"
        if self._offset == 0:
            text += "; all nodes must share this folder and have this Python; --on slurm:FOLDER selects another folder"
        return [messages.NodeLost(text, can_retry=self.state in ("NODE_FAIL", "forgotten"))]


def _query_states(jobs: Collection[_Job]) -> None:
    """Update the states of jobs, unless SLURM does not respond now."""
    ids = ",".join(job.id for job in jobs)
    run = _run("squeue", "--noheader", "--states=all", "--format=%i|%T|%r", f"--jobs={ids}")
    if not run.returncode or "Invalid job id" in run.stderr:
        states = {id: rest for id, *rest in (line.strip().split("|", 2) for line in run.stdout.splitlines())}
        for job in jobs:
            state, reason = states.get(job.id, ("forgotten", ""))
            job.update(state, "" if reason == "None" else reason)


def parse_minutes(limit: str) -> float:
    """Parse SLURM's `days-hours:minutes:seconds`, in which leading parts are optional; `infinite` is inf."""
    match = re.fullmatch(r"(?:(\d+)-)?(?:(\d+):)?(\d+):(\d+)", limit)
    days, hours, minutes = (int(part or 0) for part in match.groups()[:3]) if match else (math.inf, 0, 0)
    return (days * 24 + hours) * 60 + minutes


def _run(*command: str) -> subprocess.CompletedProcess[str]:
    return supervisor.run(command, _COMMAND_SECONDS)
