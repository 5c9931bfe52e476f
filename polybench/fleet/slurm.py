"""`--on slurm`: a job for each machine group, on a cluster that has SLURM; no other program is needed there.

`--on slurm:FOLDER` names the folder by which driver and jobs talk, which all nodes share.
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

from polybench.core import interrupts
from polybench.core.errors import BadInput
from polybench.core.machines import MachineGroup
from polybench.fleet.executor import Event, Lost, Place
from polybench.fleet.messages import Finished, Message, Refused, Stage, Task, Warned
from polybench.fleet.slurm_cluster import ENDED, GONE, NEVER, JobState, SlurmCluster
from polybench.fleet.slurm_folder import BEAT_SECONDS, JobFolder
from polybench.report.saved_studies import results_folder

_LOOK_SECONDS = 0.5
"""Between two looks at the jobs' folders."""

_FEWEST_SECONDS, _MOST_SECONDS = 2.0, 30.0
"""Between two questions to SLURM, which is asked by all users of a cluster: rarer the longer it takes."""

_LEAVING_SECONDS = 10.0
"""For a job to end after its last message: what belongs to it is removed then."""

_UNKNOWN = JobState("")

_LATE_SECONDS = 20.0
"""After a job's end, until which a network file system shows what it said last."""


class Cluster(Protocol):
    """What runs jobs."""

    def check(self, groups: Sequence[MachineGroup]) -> list[str]:
        """As of `fleet.executor.Executor`."""
        ...

    def machines(self) -> list[MachineGroup]:
        """As of `fleet.executor.Executor`."""
        ...

    def submit(self, folder: JobFolder, group: MachineGroup, near: str | None) -> str:
        """The ID of a job that does the task in the folder, on that host if one is given."""
        ...

    def states(self, ids: Iterable[str]) -> dict[str, JobState]:
        """Of these jobs, where it can be told."""
        ...

    def stay_near(self, id: str, host: str | None) -> None:
        """Have a waiting job wait for this host; None takes that back."""
        ...

    def cancel(self, ids: Iterable[str]) -> None:
        """End jobs, or take them from the queue."""
        ...


class SlurmExecutor:
    """Each group as a job on a node of its own."""

    def __init__(self, on: str, cluster: Cluster | None = None) -> None:
        _, _, folder = on.partition(":")
        self._folder = (Path(folder).expanduser() if folder else results_folder() / "slurm").absolute()
        self._cluster = cluster or SlurmCluster()
        self._jobs: dict[str, _Job] = {}
        self._leaving: list[_Job] = []
        self._own: set[Path] = set()
        self._asked = self._beaten = float("-inf")
        self._since = time.monotonic()

    def check(self, groups: Sequence[MachineGroup]) -> list[str]:
        """Ask SLURM, which refuses what it could never run; and whether there is a folder to talk by."""
        self._ensure_usable()
        return self._cluster.check(groups)

    def _ensure_usable(self) -> None:
        try:
            import submitit  # noqa: F401
        except ImportError as error:
            raise BadInput("--on slurm needs submitit; pip install 'polybench[slurm]'") from error
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise BadInput(
                f"--on slurm: cannot write to {self._folder}: {error.strerror}; --on slurm:FOLDER names"
                " another folder, which all nodes must share"
            ) from error

    def machines(self) -> list[Place]:
        """One node of each partition, whichever is free first: a cluster has thousands."""
        self._ensure_usable()
        return [Place(group) for group in self._cluster.machines()]

    def start(self, group: MachineGroup, task: Task, near: str | None = None) -> None:
        """Submit a job; on the host that began it where something is kept, since it goes on nowhere else.

        None is submitted where one of an earlier driver has finished since: it is heard to its end.
        """
        finished = self._finished_meanwhile(task.id)
        if finished is not None:
            self._own.add(finished.folder.path)
            self._jobs[group.label] = finished
            return
        near = near if task.state is not None else None
        for host, state in self._of_an_earlier_driver(task.id):
            task, near = msgspec.structs.replace(task, state=state), host
        paths = (self._folder / f"{task.id}-{number}" for number in itertools.count())
        folder = JobFolder(next(path for path in paths if not path.exists()))
        folder.begin(task)
        self._own.add(folder.path)
        try:
            job = _Job(folder, self._cluster.submit(folder, group, near), near=near is not None)
        except BaseException:  # of a job that there is none of, nobody else would remove it
            shutil.rmtree(folder.path, ignore_errors=True)
            raise
        folder.belongs_to(job.id)
        self._jobs[group.label] = job
        self._asked, self._since = float("-inf"), time.monotonic()

    def _finished_meanwhile(self, id: str) -> _Job | None:
        """The job that has measured all of it after its driver was killed."""
        for path in sorted(self._folder.glob(f"{id}-*")):
            folder = JobFolder(path)
            if path not in self._own and (job := folder.job()) is not None and folder.is_complete():
                return _Job(folder, job, near=False)
        return None

    def _of_an_earlier_driver(self, id: str) -> Iterator[tuple[str, bytes]]:
        """Hosts of jobs that outlived the driver which began this study, and what they have kept since."""
        for path in sorted(self._folder.glob(f"{id}-*")):
            folder = JobFolder(path)
            if path in self._own or (job := folder.job()) is None:
                continue
            self._cluster.cancel([job])
            self._leaving.append(_Job(folder, job, near=False))
            self._own.add(path)
            host, state = folder.begun()
            if host is not None and state is not None:
                yield host, state

    def events(self, seconds: float) -> list[Event]:
        """What the jobs have written since, and why others wait."""
        until = time.monotonic() + seconds
        while True:
            found = self._beat_and_look()
            left = until - time.monotonic()
            if found or left <= 0 or not self._jobs:
                return found
            with interrupts.waiting():
                time.sleep(min(_LOOK_SECONDS, left))

    def _beat_and_look(self) -> list[Event]:
        now = time.monotonic()
        if now - self._beaten > BEAT_SECONDS:
            self._beaten = now
            for job in self._jobs.values():
                job.beat()
        states: dict[str, JobState] = {}
        if self._jobs and now - self._asked > _patience(now - self._since):
            self._asked = now
            states = self._cluster.states(job.id for job in self._jobs.values())
        found = [
            Event(label, message)
            for label, job in self._jobs.items()
            for message in job.look(states.get(job.id), self._cluster)
        ]
        for label, message in found:
            if isinstance(message, Finished | Refused | Lost):
                job = self._jobs.pop(label)
                if job.stopped or not isinstance(message, Lost):  # whose log says why
                    self._leaving.append(job)
        return found

    def stop(self) -> None:
        """Tell those that run; those that wait are taken from the queue."""
        for job in self._jobs.values():
            job.stop()
        self._cluster.cancel(job.id for job in self._jobs.values() if not job.runs)
        self._asked = float("-inf")

    def close(self) -> None:
        """Cancel whatever still runs or waits; what has ended leaves nothing behind."""
        self._cluster.cancel(job.id for job in self._jobs.values())
        self._leaving += self._jobs.values()
        self._jobs.clear()
        until = time.monotonic() + _LEAVING_SECONDS
        while self._leaving and time.monotonic() < until:
            states = self._cluster.states(job.id for job in self._leaving)
            ended = [job for job in self._leaving if states.get(job.id, _UNKNOWN).state in ENDED]
            for job in ended:
                self._leaving.remove(job)
                shutil.rmtree(job.folder.path, ignore_errors=True)
            if self._leaving:
                time.sleep(_LOOK_SECONDS)
        with contextlib.suppress(OSError):
            self._folder.rmdir()  # unless there is something of others, or a log


def _patience(seconds: float) -> float:
    return min(_MOST_SECONDS, max(_FEWEST_SECONDS, seconds / 20))


class _Job:
    """The job of one group, and what is known of it."""

    def __init__(self, folder: JobFolder, id: str, *, near: bool) -> None:
        self.folder, self.id = folder, id
        self.runs = False
        self._offset = 0
        self._state = _UNKNOWN
        self._ended: float | None = None
        self._near, self.stopped = near, False

    def beat(self) -> None:
        """The driver lives; a job that is to stop needs not know."""
        if not self.stopped:
            self.folder.beat()

    def stop(self) -> None:
        """Its results are not waited for any more."""
        self.stopped = True
        self.folder.ask_to_stop()

    def look(self, state: JobState | None, cluster: Cluster) -> list[Message | Lost]:
        """What is new, in the order in which it was said."""
        said, self._offset = self.folder.read(self._offset)
        found: list[Message | Lost] = list(said)
        if state is not None and state != self._state:
            before, self._state = self._state, state
            self.runs = state.state == "RUNNING"
            found += self._news(before, cluster)
        if self._state.state not in ENDED:  # or it begins again
            self._ended = None
        elif self._ended is None:
            self._ended = time.monotonic()
        last = any(isinstance(message, Finished | Refused | Lost) for message in found)
        if self._ended is not None and not last and not said:
            why, never_began = self.folder.why_lost(), self.stopped and self._offset == 0
            if why is not None or never_began or time.monotonic() - self._ended > _LATE_SECONDS:
                found.append(Lost(why or self._how_it_ended(), again=self._state.state == "NODE_FAIL"))
        return found

    def _news(self, before: JobState, cluster: Cluster) -> list[Message | Lost]:
        """Of a job that waits: why, and on which host it is to go on."""
        state, reason = self._state
        if state != "PENDING":
            return []
        if reason in NEVER:
            cluster.cancel([self.id])
            return [Lost(f"SLURM will never start job {self.id}: {reason}", again=False)]
        host, kept = self.folder.begun()
        found: list[Message | Lost] = []
        if host is not None and before.state != "PENDING":
            found.append(Warned(f"SLURM took {host} from job {self.id}, which begins again"))
        if reason.startswith("ReqNodeNotAvail") and self._near:
            self._near = False
            cluster.stay_near(self.id, None)
            found.append(Warned(f"the host on which job {self.id} began is not there any more"))
        elif kept is not None and not self._near and before.state != "PENDING":
            self._near = True
            cluster.stay_near(self.id, host)
        waits = f"job {self.id} waits in SLURM's queue" + (f": {reason}" if reason else "")
        return [*found, Stage(waits)]

    def _how_it_ended(self) -> str:
        state, reason = self._state
        how = "is not known to SLURM any more" if state == GONE else f"ended as {state}"
        because = f" ({reason})" if reason and reason != state else ""
        if self.stopped and self._offset == 0:
            return f"job {self.id} was cancelled before it began"
        if self._offset == 0:
            return (
                f"job {self.id} {how}{because}, and wrote nothing to {self.folder.path}: do the nodes share"
                f" it, and have this Python? --on slurm:FOLDER names another folder"
            )
        return f"job {self.id} {how}{because}; its log: {self.folder.logs}"
