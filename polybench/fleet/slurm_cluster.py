"""SLURM's commands: what it offers, what becomes of jobs, and why they wait."""

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

from polybench.core.errors import BadInput
from polybench.core.machines import MachineGroup
from polybench.fleet.slurm_folder import JobFolder
from polybench.fleet.slurm_job import NodeJob

_PATIENCE_SECONDS = 8.0
"""For an answer of SLURM before anything is started; its own commands try for minutes."""

_DEFAULT_MINUTES = 120
"""Of a job whose group names no limit, where the partition allows as much: most studies take less. One that
takes more is begun again by submitit and goes on."""

_LOOK_MINUTES = 10
"""Of a job that only says what its node has."""

_NOTICE_SECONDS = 60
"""Before its time is over, in which a job asks to begin again."""

_BEGINNINGS = 10
"""The most that a job begins again when its time is over."""

GONE = "GONE"
"""The state of a job that SLURM does not know any more; it forgets them after some minutes."""

ENDED = {
    *("BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", GONE, "NODE_FAIL", "OUT_OF_MEMORY"),
    *("PREEMPTED", "REVOKED", "TIMEOUT"),
}
"""States after which nothing comes; a job that begins again is PENDING."""

NEVER = {
    *("AccountNotAllowed", "BadConstraints", "DependencyNeverSatisfied", "InvalidAccount", "InvalidQOS"),
    *("PartitionNodeLimit", "PartitionTimeLimit", "QOSNotAllowed"),
}
"""Reasons to wait that no waiting ends."""


_VARIABLES = {"time": "TIMELIMIT", "mem": "MEM_PER_NODE"}
"""Of sbatch, behind SBATCH_, where a flag's is not called like the flag."""


class JobState(NamedTuple):
    """What SLURM says of a job; `reason` is why it waits, or why it ended."""

    state: str
    reason: str = ""


class Partition(NamedTuple):
    """What `sinfo` says of one."""

    is_default: bool
    is_up: bool
    minutes: int | None
    """A job has there, at most; None is any time."""


class SlurmCluster:
    """The cluster whose commands are on this machine."""

    def __init__(self) -> None:
        self._partitions: dict[str, Partition] = {}

    def check(self, groups: Sequence[MachineGroup]) -> list[str]:
        """Find out what would keep the groups' jobs from running.

        Returns:
            Warnings.

        Raises:
            BadInput: SLURM is not here, does not answer, or refuses a job.
        """
        self._partitions = _partitions()
        warnings = [warning for group in groups for warning in self._check_partition(group)]
        for group in groups:
            flags = [_flag(name, value) for name, value in self._flags(group, None).items()]
            self._try(group.label, ["sbatch", "--test-only", *flags, "--wrap", "true"])
        return warnings

    def machines(self) -> list[MachineGroup]:
        """One node of each partition that is up, for minutes.

        Raises:
            BadInput: SLURM is not here, or does not answer.
        """
        found = _partitions()
        return [
            MachineGroup(
                label=name, partition=name, minutes=min(_LOOK_MINUTES, partition.minutes or _LOOK_MINUTES)
            )
            for name, partition in found.items()
            if partition.is_up
        ]

    def _check_partition(self, group: MachineGroup) -> list[str]:
        names = self._names(group)
        known = f"partitions are: {', '.join(self._partitions) or 'none'}"
        if not names:
            raise BadInput(f"machine {group.label}: SLURM has no default partition; name one; {known}")
        for name in names:
            if name not in self._partitions:
                raise BadInput(f"machine {group.label}: SLURM has no partition {name!r}; {known}")
        if group.minutes is not None and group.minutes > (most := self._most_minutes(group)):
            raise BadInput(
                f"machine {group.label}: {group.minutes} minutes are more than SLURM's partition"
                f" {', '.join(names)} has for a job; write minutes = {most:.0f} or less"
            )
        down = [name for name in names if not self._partitions[name].is_up]
        return [f"machine {group.label}: SLURM's partition {name} is down; jobs wait there" for name in down]

    def _names(self, group: MachineGroup) -> list[str]:
        """Of its partitions: the first one that is free has the job."""
        if given := group.partition or os.environ.get("SBATCH_PARTITION"):
            return given.split(",")
        return [name for name, partition in self._partitions.items() if partition.is_default]

    def _time(self, group: MachineGroup) -> float:
        return group.minutes or min(_DEFAULT_MINUTES, self._most_minutes(group))

    def _most_minutes(self, group: MachineGroup) -> float:
        """That a job may have in any of the group's partitions."""
        limits = [self._partitions[name].minutes for name in self._names(group)]
        return max((math.inf if limit is None else limit for limit in limits), default=math.inf)

    def _try(self, label: str, command: list[str]) -> None:
        run = _run(command)
        if run.returncode:
            raise BadInput(f"machine {label}: SLURM refuses the job: {_last_words(run.stderr)}")

    def _flags(self, group: MachineGroup, near: str | None) -> dict[str, str | bool]:
        """Options of sbatch, in submitit's spelling, for a whole node with all its memory and GPUs."""
        asked = {
            "partition": group.partition,
            "constraint": group.constraint,
            "gres": group.accelerator and f"gpu:{group.accelerator}:1",
            "nodelist": near and _node(near),
        }
        flags: dict[str, str | bool] = {
            "job_name": f"polybench-{group.label}",
            "nodes": "1",
            "exclusive": True,
            "mem": "0",
            "time": f"{self._time(group):.0f}",
            "requeue": True,
            # To the job's first process alone, which is submitit's: workers would end of it.
            "signal": f"B:USR2@{_NOTICE_SECONDS}",
        }
        return flags | {name: value for name, value in asked.items() if value is not None}

    def submit(self, folder: JobFolder, group: MachineGroup, near: str | None) -> str:
        """Submit the job that has its task in the folder; returns its ID.

        Raises:
            BadInput: SLURM refuses it.
        """
        from submitit import SlurmExecutor
        from submitit.core.utils import FailedJobError, FailedSubmissionError

        # exec: the job's first process is then submitit's and no shell, so that the signal reaches it.
        python = f"exec {shlex.quote(sys.executable)} -P"
        executor = SlurmExecutor(folder.logs, max_num_timeout=_BEGINNINGS, python=python)
        flags = self._flags(group, near)
        executor.update_parameters(
            time=int(str(flags["time"])),
            use_srun=False,  # a step of it would have one core
            stderr_to_stdout=True,
            additional_parameters=flags,
        )
        try:
            with _not_overruled(flags):
                return executor.submit(NodeJob(folder.path)).job_id
        except (FailedJobError, FailedSubmissionError, subprocess.CalledProcessError) as error:
            why = _last_words(str(error))
            raise BadInput(f"machine {group.label}: SLURM refuses the job: {why}") from error

    def states(self, ids: Iterable[str]) -> dict[str, JobState]:
        """Of these jobs; empty where SLURM does not answer, which it may at the next time."""
        wanted = list(ids)
        run = _run(
            ["squeue", "--noheader", "--states=all", "--format=%i|%T|%r", f"--jobs={','.join(wanted)}"]
        )
        if run.returncode and "Invalid job id" not in run.stderr:
            return {}
        found = [line.strip().split("|", 2) for line in run.stdout.splitlines()]
        known = {id: JobState(state, "" if reason == "None" else reason) for id, state, reason in found}
        return {id: known.get(id, JobState(GONE)) for id in wanted}

    def stay_near(self, id: str, host: str | None) -> None:
        """Have a waiting job wait for this host, where it can go on; None takes that back."""
        _run(["scontrol", "update", f"JobId={id}", f"ReqNodeList={_node(host or '')}"])

    def cancel(self, ids: Iterable[str]) -> None:
        """End jobs, or take them from the queue."""
        wanted = list(ids)
        if wanted:
            _run(["scancel", *wanted])


@contextlib.contextmanager
def _not_overruled(flags: Iterable[str]) -> Iterator[None]:
    """Without those variables by which users replace what a job's script asks for, where it does ask."""
    names = [f"SBATCH_{_VARIABLES.get(flag, flag.upper())}" for flag in flags]
    kept = {name: os.environ.pop(name) for name in names if name in os.environ}
    try:
        yield
    finally:
        os.environ.update(kept)


def _partitions() -> dict[str, Partition]:
    """By name.

    Raises:
        BadInput: SLURM is not here, or does not answer.
    """
    if shutil.which("sbatch") is None or shutil.which("srun") is None:
        raise BadInput(
            "--on slurm: there is no sbatch on this machine; start polybench where jobs are submitted,"
            " on a login node"
        )
    run = _run(["sinfo", "--all", "--noheader", "--format=%P|%a|%l"])
    if run.returncode:
        raise BadInput(f"--on slurm: SLURM does not answer: {_last_words(run.stderr)}")
    found = {}
    for line in run.stdout.splitlines():
        name, available, limit = line.strip().split("|")
        found[name.rstrip("*")] = Partition(name.endswith("*"), available == "up", _minutes(limit))
    return found


def _minutes(limit: str) -> int | None:
    """SLURM's `days-hours:minutes:seconds`, of which the first may be missing; `infinite` is None."""
    match = re.fullmatch(r"(?:(\d+)-)?(?:(\d+):)?(\d+):(\d+)", limit)
    if match is None:
        return None
    days, hours, minutes, _ = (int(part or 0) for part in match.groups())
    return (days * 24 + hours) * 60 + minutes


def _node(host: str) -> str:
    """SLURM's name of a host that may call itself with its domain."""
    return host.partition(".")[0]


def _flag(name: str, value: str | bool) -> str:
    flag = f"--{name.replace('_', '-')}"
    return flag if value is True else f"{flag}={value}"


def _run(command: Sequence[str]) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(
            command, capture_output=True, text=True, errors="replace", timeout=_PATIENCE_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        what = f"{command[0]} had no answer in {_PATIENCE_SECONDS:.0f} s; slurmctld may be down"
        return subprocess.CompletedProcess(command, 1, "", what)


def _last_words(text: str) -> str:
    """Of what a command said, without its name."""
    lines = [
        re.sub(r"^(\w+: (error: )?|allocation failure: )", "", line) for line in text.split("\n") if line
    ]
    return lines[-1] if lines else "it does not say why"
