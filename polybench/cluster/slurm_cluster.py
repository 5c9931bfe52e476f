"""SLURM's commands: partitions, submission of jobs, and states of jobs."""

from __future__ import annotations

import contextlib
import math
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from polybench.cluster.slurm_folder import JobFolder
from polybench.cluster.slurm_job import NodeJob
from polybench.errors import BadInput
from polybench.schema.options import MachineGroup

_COMMAND_TIMEOUT = 8.0
"""Seconds; SLURM's commands themselves try for minutes."""

_DEFAULT_MINUTES = 120
"""Time limit of a job whose group has none, if the partition allows it; most studies need less. submitit
restarts a job that needs more, and the study resumes."""

_DIAGNOSIS_MINUTES = 10
"""Time limit of a job that only diagnoses its node."""

_NOTICE_SECONDS = 60
"""Time before its limit at which a job asks for a restart."""

_MAX_RESTARTS = 10
"""Maximum number of restarts of a job after its time limit."""

UNKNOWN_JOB = "GONE"
"""State of a job that SLURM has forgotten, which it does after some minutes."""

END_STATES = {
    *("BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", UNKNOWN_JOB, "NODE_FAIL", "OUT_OF_MEMORY"),
    *("PREEMPTED", "REVOKED", "TIMEOUT"),
}
"""Final states; a job that restarts is PENDING."""

PERMANENT_REASONS = {
    *("AccountNotAllowed", "BadConstraints", "DependencyNeverSatisfied", "InvalidAccount", "InvalidQOS"),
    *("PartitionNodeLimit", "PartitionTimeLimit", "QOSNotAllowed"),
}
"""Reasons for a pending job that never resolve."""


_VARIABLE_NAMES = {"time": "TIMELIMIT", "mem": "MEM_PER_NODE"}
"""Suffixes of sbatch's SBATCH_ variables that differ from the flag's name."""


class JobState(NamedTuple):
    """State of a job in SLURM; `reason` says why it is pending or has ended."""

    state: str
    reason: str = ""


class Partition(NamedTuple):
    """A partition as listed by `sinfo`."""

    is_default: bool
    is_up: bool
    minutes: int | None
    """Maximum duration of a job; None is unlimited."""


class SlurmCluster:
    """The SLURM cluster of this machine."""

    def __init__(self) -> None:
        self._partitions: dict[str, Partition] = {}

    def check(self, groups: Sequence[MachineGroup]) -> list[str]:
        """Check that the groups' jobs can run.

        Returns:
            Warnings.

        Raises:
            BadInput: SLURM is missing, does not respond, or rejects a job.
        """
        self._partitions = _partitions()
        warnings = [warning for group in groups for warning in self._check_partition(group)]
        for group in groups:
            flags = [_flag(name, value) for name, value in self._flags(group, None).items()]
            self._test_submission(group.label, ["sbatch", "--test-only", *flags, "--wrap", "true"])
        return warnings

    def partitions(self) -> list[MachineGroup]:
        """Return one node of each partition that is up, with a short time limit.

        Raises:
            BadInput: SLURM is missing or does not respond.
        """
        found = _partitions()
        return [
            MachineGroup(
                label=name,
                partition=name,
                minutes=min(_DIAGNOSIS_MINUTES, partition.minutes or _DIAGNOSIS_MINUTES),
            )
            for name, partition in found.items()
            if partition.is_up
        ]

    def _check_partition(self, group: MachineGroup) -> list[str]:
        names = self._partition_names(group)
        known = f"partitions are: {', '.join(self._partitions) or 'none'}"
        if not names:
            raise BadInput(f"machine {group.label}: SLURM has no default partition; choose one; {known}")
        for name in names:
            if name not in self._partitions:
                raise BadInput(f"machine {group.label}: SLURM has no partition {name!r}; {known}")
        if group.minutes is not None and group.minutes > (limit := self._max_minutes(group)):
            raise BadInput(
                f"machine {group.label}: {group.minutes} minutes exceed the limit of SLURM's partition"
                f" {', '.join(names)}; use minutes = {limit:.0f} or less"
            )
        down = [name for name in names if not self._partitions[name].is_up]
        return [f"machine {group.label}: SLURM's partition {name} is down; its jobs stay pending" for name in down]

    def _partition_names(self, group: MachineGroup) -> list[str]:
        """Return the group's partitions; the job runs in the first one that is free."""
        if given := group.partition or os.environ.get("SBATCH_PARTITION"):
            return given.split(",")
        return [name for name, partition in self._partitions.items() if partition.is_default]

    def _minutes(self, group: MachineGroup) -> float:
        return group.minutes or min(_DEFAULT_MINUTES, self._max_minutes(group))

    def _max_minutes(self, group: MachineGroup) -> float:
        """Return the maximum time limit of the group's partitions."""
        limits = [self._partitions[name].minutes for name in self._partition_names(group)]
        return max((math.inf if limit is None else limit for limit in limits), default=math.inf)

    def _test_submission(self, label: str, command: list[str]) -> None:
        run = _run(command)
        if run.returncode:
            raise BadInput(f"machine {label}: SLURM rejects the job: {_error_text(run.stderr)}")

    def _flags(self, group: MachineGroup, preferred_host: str | None) -> dict[str, str | bool]:
        """Return options of sbatch, in submitit's spelling, for a whole node with all its memory and GPUs."""
        requested = {
            "partition": group.partition,
            "constraint": group.constraint,
            "gres": group.accelerator and f"gpu:{group.accelerator}:1",
            "nodelist": preferred_host and _node_name(preferred_host),
        }
        flags: dict[str, str | bool] = {
            "job_name": f"polybench-{group.label}",
            "nodes": "1",
            "exclusive": True,
            "mem": "0",
            "time": f"{self._minutes(group):.0f}",
            "requeue": True,
            # "B:" sends the signal only to the job's first process, submitit's; it would kill workers.
            "signal": f"B:USR2@{_NOTICE_SECONDS}",
        }
        return flags | {name: value for name, value in requested.items() if value is not None}

    def submit(self, folder: JobFolder, group: MachineGroup, preferred_host: str | None) -> str:
        """Submit the job for the task in the folder; return its ID.

        Raises:
            BadInput: SLURM rejects the job.
        """
        from submitit import SlurmExecutor
        from submitit.core.utils import FailedJobError, FailedSubmissionError

        # exec replaces the shell by submitit as the job's first process, so that the signal reaches it.
        python = f"exec {shlex.quote(sys.executable)} -P"
        executor = SlurmExecutor(folder.logs, max_num_timeout=_MAX_RESTARTS, python=python)
        flags = self._flags(group, preferred_host)
        executor.update_parameters(
            time=int(str(flags["time"])),
            use_srun=False,  # a job step would get one core
            stderr_to_stdout=True,
            additional_parameters=flags,
        )
        try:
            with _without_overrides(flags):
                return executor.submit(NodeJob(folder.path)).job_id
        except (FailedJobError, FailedSubmissionError, subprocess.CalledProcessError) as error:
            reason = _error_text(str(error))
            raise BadInput(f"machine {group.label}: SLURM rejects the job: {reason}") from error

    def states(self, ids: Iterable[str]) -> dict[str, JobState]:
        """Return the states of these jobs; empty if SLURM does not respond now."""
        job_ids = list(ids)
        run = _run(["squeue", "--noheader", "--states=all", "--format=%i|%T|%r", f"--jobs={','.join(job_ids)}"])
        if run.returncode and "Invalid job id" not in run.stderr:
            return {}
        found = [line.strip().split("|", 2) for line in run.stdout.splitlines()]
        known = {id: JobState(state, "" if reason == "None" else reason) for id, state, reason in found}
        return {id: known.get(id, JobState(UNKNOWN_JOB)) for id in job_ids}

    def set_preferred_host(self, id: str, host: str | None) -> None:
        """Restrict a pending job to this host, which can resume it; None removes the restriction."""
        _run(["scontrol", "update", f"JobId={id}", f"ReqNodeList={_node_name(host or '')}"])

    def cancel(self, ids: Iterable[str]) -> None:
        """End running jobs and remove pending ones."""
        job_ids = list(ids)
        if job_ids:
            _run(["scancel", *job_ids])


@contextlib.contextmanager
def _without_overrides(flags: Iterable[str]) -> Iterator[None]:
    """Hide the user's SBATCH_ variables that would override these flags."""
    names = [f"SBATCH_{_VARIABLE_NAMES.get(flag, flag.upper())}" for flag in flags]
    removed = {name: os.environ.pop(name) for name in names if name in os.environ}
    try:
        yield
    finally:
        os.environ.update(removed)


def _partitions() -> dict[str, Partition]:
    """Return SLURM's partitions by name.

    Raises:
        BadInput: SLURM is missing or does not respond.
    """
    if shutil.which("sbatch") is None or shutil.which("srun") is None:
        raise BadInput(
            "--on slurm: sbatch not found on this machine; run polybench on a login node, where jobs are submitted"
        )
    run = _run(["sinfo", "--all", "--noheader", "--format=%P|%a|%l"])
    if run.returncode:
        raise BadInput(f"--on slurm: SLURM does not respond: {_error_text(run.stderr)}")
    found = {}
    for line in run.stdout.splitlines():
        name, available, limit = line.strip().split("|")
        found[name.rstrip("*")] = Partition(name.endswith("*"), available == "up", _parse_minutes(limit))
    return found


def _parse_minutes(limit: str) -> int | None:
    """Parse SLURM's `days-hours:minutes:seconds`, in which leading parts are optional; `infinite` is None."""
    match = re.fullmatch(r"(?:(\d+)-)?(?:(\d+):)?(\d+):(\d+)", limit)
    if match is None:
        return None
    days, hours, minutes, _ = (int(part or 0) for part in match.groups())
    return (days * 24 + hours) * 60 + minutes


def _node_name(host: str) -> str:
    """Return SLURM's name of a host, without the domain."""
    return host.partition(".")[0]


def _flag(name: str, value: str | bool) -> str:
    flag = f"--{name.replace('_', '-')}"
    return flag if value is True else f"{flag}={value}"


def _run(command: Sequence[str]) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(
            command, capture_output=True, text=True, errors="replace", timeout=_COMMAND_TIMEOUT, check=False
        )
    except subprocess.TimeoutExpired:
        message = f"{command[0]} timed out after {_COMMAND_TIMEOUT:.0f} s; slurmctld may be down"
        return subprocess.CompletedProcess(command, 1, "", message)


def _error_text(text: str) -> str:
    """Return the last line of a command's output, without the command's name."""
    lines = [re.sub(r"^(\w+: (error: )?|allocation failure: )", "", line) for line in text.split("\n") if line]
    return lines[-1] if lines else "no reason given"
