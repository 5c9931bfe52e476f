"""Checkpoints of unfinished studies, sweeps and cluster runs, in a folder beside the saved studies.

A document has medians and means; a checkpoint has all measurements, from which the run continues.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import math
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeVar

import msgspec

from polybench.data.disk import atomic_write, is_inside, read_regular_file, remove_folder
from polybench.errors import BadInput
from polybench.machine import host
from polybench.networks import find_model
from polybench.networks.toml_text import TomlText
from polybench.planning.grid import MAX_POINTS, points
from polybench.planning.plan import resolve
from polybench.planning.schedule import RoundBudget
from polybench.planning.study_file import parse, replace_network
from polybench.results.document import DocumentHeader, collect_versions, measured_step_times, study_toml
from polybench.results.run_state import ConfigurationRun
from polybench.runner.scratch import LOCK_FILE, hold_lock, is_stale
from polybench.schema.metadata import NO_METADATA, RoundInterference, Settings, StudyFileMetadata, ToolVersion
from polybench.schema.options import CheckScope, Configuration, Id, MachineGroup, NaturalInt, Study
from polybench.schema.result import library_versions
from polybench.storage.anonymize import UNKNOWN_HOST
from polybench.storage.store import Store
from polybench.storage.summaries import ConfigurationSummary, StudySummary, SweepPoints, parse_time

CHECKPOINT_FOLDER = "unfinished"

_MACHINE_FIELDS = ("hostname", "os", "cpu", "cores", "threads", "gpus", "cpu_governor", "python")

SweepCommand = Literal["sweep", "overhead"]
"""The command that renders a sweep."""


class Checkpoint(msgspec.Struct, kw_only=True):
    """An unfinished run; its subclasses add what is needed to continue it. `study` is TOML, as in documents."""

    header: DocumentHeader
    study: str

    @property
    def selection(self) -> dict[str, Any]:
        """Keys that select the run, in addition to its study."""
        return {}

    @property
    def study_ids(self) -> list[str]:
        """IDs of the studies that belong to the run."""
        return []

    def check(self) -> None:
        """Raise ValueError if parts of the content contradict each other."""

    def parse_study(self) -> Study:
        """Return the study; raise BadInput if this machine cannot measure it."""
        return parse(self.study, f"the study of {self.header.id}")


class ConfigurationGroup(msgspec.Struct):
    """Configurations, by name, whose workers run at the same time, and their round budget."""

    configurations: list[str]
    round_budget: RoundBudget


class CompletedPhases(msgspec.Struct):
    """Finished phases of a study. Trainings are in the configuration runs."""

    parity_check: bool = False
    process_runs: NaturalInt = 0
    native_allocations: bool = False
    groups: list[ConfigurationGroup] = []
    """Groups of the process runs. A resumed study keeps them, whatever memory is free then."""


class StudyCheckpoint(Checkpoint, kw_only=True, tag="study"):
    """State of a study between two phases."""

    settings: Settings
    runs: list[ConfigurationRun]
    interference: list[RoundInterference]
    warnings: list[str]
    completed: CompletedPhases

    def check(self) -> None:
        """Raise ValueError unless each run has the measurements of all completed process runs, and a group."""
        names, grouped = (
            [run.configuration.name for run in self.runs],
            {name for group in self.completed.groups for name in group.configurations},
        )
        for name, run in zip(names, self.runs, strict=True):
            counted, measured = ([len(process) for process in one] for one in (run.block_counters, run.step_times))
            is_complete = len(measured) == self.completed.process_runs and 0 not in measured
            if counted != measured or (run.is_active and not is_complete):
                raise ValueError(f"{name} has {len(measured)} of {self.completed.process_runs} process runs")
            if run.is_active and self.completed.process_runs and name not in grouped:
                raise ValueError(f"{name} is in no group")


class SweepSpec(NamedTuple):
    """A study and the values to sweep, by the axes of `planning.grid`; `command` renders the sweep."""

    study: Study
    axes: Mapping[str, Sequence[int]]
    command: SweepCommand = "sweep"
    study_file: StudyFileMetadata = NO_METADATA


class SweepCheckpoint(Checkpoint, kw_only=True, tag="sweep"):
    """State of a sweep; each of its points is a study with a checkpoint of its own."""

    axes: dict[str, list[int]]
    command: SweepCommand
    started: dict[int, Id] = {}
    """Point number -> ID of its study."""

    def check(self) -> None:
        """Raise ValueError for the study of a point that the sweep lacks."""
        count = min(MAX_POINTS, math.prod(map(len, self.axes.values())))
        if not set(self.started) <= set(range(count)):
            raise ValueError(f"it has {count} points, but studies of others have started")

    @property
    def selection(self) -> dict[str, Any]:
        """The swept values and the command."""
        return select_sweep(self.axes, self.command)

    @property
    def study_ids(self) -> list[str]:
        """IDs of the points that have started, in their order."""
        return [self.started[number] for number in sorted(self.started)]

    @property
    def spec(self) -> SweepSpec:
        """The sweep's study and swept values."""
        return SweepSpec(self.parse_study(), self.axes, self.command, self.header.study_file)


class ClusterRun(msgspec.Struct, frozen=True, kw_only=True):
    """A study and its machines: `on` is their address, `upload` means that they get this polybench's code."""

    study: Study
    groups: Sequence[MachineGroup]
    on: str
    upload: bool = False
    strict: bool = False
    parity_check: CheckScope = "new"


class MachineStudy(msgspec.Struct, kw_only=True):
    """The study of one machine group, which has a checkpoint of its own."""

    label: str
    study_id: Id
    hostname: str | None = None
    """Host name of the machine that last started it."""
    versions: dict[str, str | None] = {}
    """Versions of the engines' packages on that machine."""
    notes: list[str] = []
    """Notes on lost machines, for its document."""
    finished: bool = False


class ClusterCheckpoint(Checkpoint, kw_only=True, tag="cluster"):
    """State of a study on several machines, between two phases of any of its machine studies."""

    run: ClusterRun
    machine_studies: list[MachineStudy]

    def check(self) -> None:
        """Raise ValueError unless each machine group has a study of its own."""
        if [one.label for one in self.machine_studies] != [group.label for group in self.run.groups]:
            raise ValueError("its studies are not those of its machines")

    @property
    def selection(self) -> dict[str, Any]:
        """The machine groups, whatever their address is."""
        return select_machines(self.run.groups)

    @property
    def study_ids(self) -> list[str]:
        """IDs of the machines' studies."""
        return [study.study_id for study in self.machine_studies]


def select_sweep(axes: Mapping[str, Sequence[int]], command: SweepCommand) -> dict[str, Any]:
    """Return what selects a sweep, apart from its study; the order of the axes determines that of the points."""
    return {"swept values": {axis: list(values) for axis, values in axes.items()}, "command": command}


def select_machines(groups: Sequence[MachineGroup]) -> dict[str, Any]:
    """Return what selects a cluster run, apart from its study."""
    machines = {f"machine {group.label}": msgspec.to_builtins(group) for group in groups}
    return {"machines": [group.label for group in groups]} | machines


CheckpointT = TypeVar("CheckpointT", bound=Checkpoint)


class CorruptCheckpoint(BadInput):
    """The checkpoint is corrupt."""


class ChangedSinceCheckpoint(BadInput):
    """Machine, versions, settings or data have changed."""

    def __init__(self, message: str, changes: Sequence[str]) -> None:
        super().__init__(message)
        self.changes = changes


def _file_name(kind: type[Checkpoint]) -> str:
    return str(kind.__struct_config__.tag)


_KINDS: tuple[type[Checkpoint], ...] = (StudyCheckpoint, SweepCheckpoint, ClusterCheckpoint)


class CheckpointStore:
    """Checkpoints by ID; each has a folder with a file, which is named after its kind, and a lock."""

    def __init__(self, results: Path) -> None:
        self._results, self.folder = results, results / CHECKPOINT_FOLDER

    def ids(self, kind: type[Checkpoint] = StudyCheckpoint) -> list[str]:
        """Return the IDs of all checkpoints of a kind, newest first."""
        found = (path.parent.name for path in self.folder.glob(f"*/{_file_name(kind)}"))
        return sorted((id for id in found if self._kind_of(id) is kind), reverse=True)

    def _kind_of(self, id: str) -> type[Checkpoint] | None:
        """Return the kind of a checkpoint; a folder with files of several kinds has the first one."""
        return next((kind for kind in _KINDS if (self.folder / id / _file_name(kind)).exists()), None)

    def path(self, id: str, kind: type[Checkpoint] = StudyCheckpoint) -> Path:
        """Return the path of a checkpoint."""
        return self.run_folder(id) / _file_name(kind)

    def run_folder(self, id: str) -> Path:
        """Return the folder of a run; raises BadInput for an invalid ID, or if it is a link or behind one."""
        try:
            folder = self.folder / msgspec.convert(id, Id)
        except msgspec.ValidationError:
            raise BadInput(f"invalid ID {id!r}: expected letters, digits and . _ - only") from None
        if not is_inside(folder, self._results):
            raise BadInput(f"cannot use {folder}: expected a folder inside of {self._results}: delete the link")
        return folder

    def read(self, id: str, kind: type[CheckpointT]) -> CheckpointT:
        """Read a checkpoint; raises BadInput if it cannot be read, and CorruptCheckpoint if its content is invalid."""
        path = self.path(id, kind)
        try:
            return _decode(read_regular_file(path), kind, id)
        except FileNotFoundError:
            raise BadInput(f"cannot resume {id}: it has finished, or the ID is unknown") from None
        except (OSError, msgspec.MsgspecError, RecursionError, ValueError, BadInput) as error:
            raise self.unreadable(id, kind, error) from error

    def unreadable(self, id: str, kind: type[Checkpoint], error: Exception) -> BadInput:
        """Return the error for a checkpoint that cannot be read, or whose content is invalid."""
        error_type = BadInput if isinstance(error, OSError) else CorruptCheckpoint
        hint = f"start over with {self._rerun_hint(id)}, or delete it with `polybench resume {id} --discard`"
        return error_type(f"cannot read checkpoint {self.path(id, kind)}: {error}: {hint}")

    def read_unchanged(self, id: str, kind: type[CheckpointT]) -> CheckpointT:
        """Read a checkpoint; raises BadInput if the machine or polybench has changed.

        Engines are not started, so their versions are not known yet.
        """
        checkpoint = self.read(id, kind)
        before, now = checkpoint.header.host, host.this_host()
        changes = [list_changes({name: getattr(before, name)}, {name: getattr(now, name)}) for name in _MACHINE_FIELDS]
        self.reject_changed(
            checkpoint, [*itertools.chain(*changes), *polybench_changes(checkpoint.header.tool_version)]
        )
        return checkpoint

    def read_all(self, kind: type[CheckpointT], errors: list[str] | None = None) -> Iterator[CheckpointT]:
        """Yield readable checkpoints, newest first; append the messages of the others to `errors`."""
        for id in self.ids(kind):
            try:
                yield self.read(id, kind)
            except BadInput as error:
                if errors is not None:
                    errors.append(str(error))

    def reject_changed(self, checkpoint: Checkpoint, changes: Iterable[str]) -> None:
        """Raise ChangedSinceCheckpoint, with the command that starts over, if there are changes."""
        if unique := list(dict.fromkeys(changes)):
            id, argv = checkpoint.header.id, checkpoint.header.argv
            message = f"cannot resume {id}: {'; '.join(unique)}: start over with {self._rerun_hint(id, argv)}"
            raise ChangedSinceCheckpoint(message, unique)

    def _rerun_hint(self, id: str, argv: Sequence[str] = ()) -> str:
        """Return the command that starts over; a saved study is repeated by its ID."""
        if (self.folder.parent / f"{id}.json").is_file():
            return f"`polybench run {id}`"
        return f"`{shlex.join(['polybench', *argv])}`" if argv else "the same command without --resume"

    def write(self, checkpoint: Checkpoint) -> None:
        """Replace the checkpoint atomically; raises OSError if this fails."""
        text = msgspec.json.encode(checkpoint, enc_hook=str)
        self.write_bytes(checkpoint.header.id, _checksum(text) + b"\n" + text, type(checkpoint))

    def write_bytes(self, id: str, data: bytes, kind: type[Checkpoint] = StudyCheckpoint) -> None:
        """Replace the checkpoint by an encoded one, such as that of another machine."""
        path = self.path(id, kind)
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic_write(path) as file:
            file.write(data)

    def remove(self, id: str) -> None:
        """Delete the checkpoint of a finished run."""
        remove_folder(self.run_folder(id), self._results)

    @contextlib.contextmanager
    def lock(self, id: str) -> Iterator[None]:
        """Lock a run, so that only one process measures it; raises BadInput if another process has locked it."""
        folder = self.run_folder(id)
        folder.mkdir(parents=True, exist_ok=True)
        self._remove_empty()
        try:
            with contextlib.ExitStack() as stack:
                try:
                    stack.enter_context(hold_lock(folder))
                except BlockingIOError:
                    raise BadInput(f"{id} is still running: wait for it, or stop it first") from None
                except OSError as error:
                    raise BadInput(f"cannot lock {folder}: {error.strerror}") from error
                try:
                    yield
                finally:
                    if not any(self.path(id, kind).exists() for kind in _KINDS):
                        self.remove(id)
        finally:
            for left in (folder, self.folder):
                with contextlib.suppress(OSError):
                    left.rmdir()  # a network file system deletes an open file, the lock, only when it is closed

    def _remove_empty(self) -> None:
        """Delete the folders of runs that were killed before their first checkpoint."""
        for folder in self.folder.iterdir():
            with contextlib.suppress(OSError):
                if {path.name for path in folder.iterdir()} <= {LOCK_FILE} and is_stale(folder):
                    remove_folder(folder, self._results)


def _checksum(text: bytes) -> bytes:
    return hashlib.sha256(text).hexdigest().encode()


def _decode(data: bytes, kind: type[CheckpointT], id: str) -> CheckpointT:
    """Decode a checkpoint, which is JSON because that has neither NaN nor infinity, after a line with its checksum.

    Raises ValueError, MsgspecError or BadInput unless it is intact, complete, and the checkpoint of this run.
    """
    checksum, _, text = data.partition(b"\n")
    if checksum != _checksum(text):
        raise ValueError("it has another checksum")
    checkpoint = msgspec.json.decode(text, type=kind, dec_hook=_decode_path)
    if checkpoint.header.id != id:
        raise ValueError(f"it belongs to {checkpoint.header.id}")
    if len({id, *checkpoint.study_ids}) <= len(checkpoint.study_ids):
        raise ValueError("two of its studies have the same ID")
    checkpoint.check()
    return checkpoint


def _decode_path(kind: type[Any], value: Any) -> Any:
    """Decode a path, which is encoded as text."""
    if issubclass(kind, Path):
        return Path(value)
    raise NotImplementedError


class ResumableRun(NamedTuple):
    """An unfinished study, sweep or cluster run."""

    id: str
    kind: type[Checkpoint] = StudyCheckpoint


def find_resumable(name: str, store: Store) -> ResumableRun:
    """Find the unfinished run whose ID begins with `name`, or for `last` the one that stopped last.

    A study that belongs to a sweep or cluster run is resumed with the whole run. Raises BadInput if no or several
    runs match.
    """
    checkpoints = CheckpointStore(store.folder)
    kinds = {id: kind for kind in _KINDS for id in checkpoints.ids(kind)}
    parents = {
        study_id: run.header.id
        for kind in (SweepCheckpoint, ClusterCheckpoint)
        for run in checkpoints.read_all(kind)
        for study_id in [run.header.id, *run.study_ids]
    }
    ids = sorted({parents.get(id, id) for id in kinds if name == "last" or id.startswith(name)})
    if name == "last" and ids:
        # The studies of a corrupt sweep are unknown, so it is chosen only if there is no other run.
        newest = max([*(id for id in ids if kinds[id] is StudyCheckpoint), *parents], default=ids[-1])
        ids = [parents.get(newest, newest)]
    if len(ids) == 1:
        return ResumableRun(ids[0], kinds[ids[0]])
    if ids:
        raise BadInput(f"ambiguous ID {name!r}: {len(ids)} unfinished studies match: use a longer prefix")
    raise BadInput(f"cannot resume {name!r}: it has finished, or the ID is unknown")


def discard(run: ResumableRun, store: Store) -> None:
    """Delete the checkpoints of a run and its studies, even if they are corrupt; documents remain.

    Raises BadInput if the run is active, or its checkpoint cannot be deleted.
    """
    checkpoints, study_ids = CheckpointStore(store.folder), []
    with contextlib.suppress(BadInput):  # corrupt: its studies are unknown
        study_ids = checkpoints.read(run.id, run.kind).study_ids
    with contextlib.ExitStack() as stack:
        for id in (run.id, *study_ids):  # no other process measures them
            stack.enter_context(checkpoints.lock(id))
        for id in (*study_ids, run.id):
            checkpoints.remove(id)
    if (checkpoints.folder / run.id).exists():
        raise BadInput(f"cannot delete {checkpoints.folder / run.id}: delete it manually")


def find_unfinished(
    study: Study, store: Store, kind: type[Checkpoint] = StudyCheckpoint, selection: Mapping[str, Any] | None = None
) -> str:
    """Return the ID of the newest unfinished run with exactly these settings, among intact checkpoints.

    A sweep or cluster run has a `selection` as well. If no run matches, BadInput lists differences from the newest.
    """
    requested, selection = study_toml(study), selection or {}
    newest: Checkpoint | None = None
    errors: list[str] = []
    for candidate in CheckpointStore(store.folder).read_all(kind, errors):
        # Encoded, because the order counts.
        if (candidate.study, msgspec.json.encode(candidate.selection)) == (requested, msgspec.json.encode(selection)):
            return candidate.header.id
        newest = newest or candidate
    if newest is None:
        text = f"no unfinished study in {store.folder}: run the command without --resume"
    else:
        id, before = newest.header.id, _study_fields(newest.study) | newest.selection
        changes = "; ".join(list_changes(before, _study_fields(requested) | dict(selection)))
        text = f"no unfinished study has these settings: in {id}, {changes}: `polybench resume {id}` resumes it"
    raise BadInput("; ".join([text, *errors]))


def _study_fields(study: str) -> dict[str, Any]:
    """Return the fields of a study in TOML, with the name of a custom network in place of its content."""
    text = TomlText("a study", study)
    fields = replace_network(text, text.load())
    return fields | {"model": find_model(fields["model"]).name}


def polybench_changes(before: ToolVersion) -> list[str]:
    """Describe changes of polybench."""
    tools = before, host.tool_version()
    old, new = ({f"polybench's {name}": getattr(tool, name) for name in ("version", "commit")} for tool in tools)
    return list_changes(old, new)


def list_changes(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Describe each changed value."""
    return [
        f"{name} was {before.get(name, 'absent')}, now {now.get(name, 'absent')}"
        for name in dict.fromkeys([*before, *now])
        if before.get(name) != now.get(name)
    ]


def summarize_unsaved(store: Store, saved: Iterable[StudySummary]) -> list[StudySummary]:
    """Summarize unfinished runs without a document: studies that stopped early, and sweeps."""
    checkpoints, known = CheckpointStore(store.folder), {summary.file for summary in saved}
    studies = [_summarize(checkpoints, id, StudyCheckpoint) for id in checkpoints.ids() if id not in known]
    return [*studies, *(_summarize(checkpoints, id, SweepCheckpoint) for id in checkpoints.ids(SweepCheckpoint))]


def _summarize(checkpoints: CheckpointStore, id: str, kind: type[StudyCheckpoint | SweepCheckpoint]) -> StudySummary:
    try:
        checkpoint = checkpoints.read(id, kind)
        header, own = checkpoint.header, _own_summary(checkpoint)
    except BadInput as error:
        started_at = 0.0
        with contextlib.suppress(OSError):
            started_at = (checkpoints.folder / id).stat().st_mtime
        return StudySummary(file=id, started_at=started_at, unreadable_reason=str(error))
    return StudySummary(
        file=id,
        started_at=parse_time(header.created) or 0.0,
        id=id,
        created=header.created,
        title=header.study_file.title,
        tags=[*header.study_file.tags],
        hostname=UNKNOWN_HOST if header.anonymous else header.host.hostname,
        finished=False,
        **own,
    )


def _own_summary(checkpoint: StudyCheckpoint | SweepCheckpoint) -> dict[str, Any]:
    """Return the fields of a summary that a study and a sweep do not share."""
    runs: list[tuple[Configuration, ConfigurationRun | None]]
    if isinstance(checkpoint, StudyCheckpoint):
        settings = checkpoint.settings
        runs = [(run.configuration, run) for run in checkpoint.runs]
        own = {
            "model": settings.model,
            "pass_": settings.pass_,
            "dataset": settings.dataset,
            "batch_size": settings.batch_size,
        }
    else:
        study = parse(checkpoint.study, f"the study of {checkpoint.header.id}", remote=True)
        study = msgspec.structs.replace(study, pin_cpus=False, force=True)  # this machine may have fewer cores
        plan = resolve(points(study, {axis: values[:1] for axis, values in checkpoint.axes.items()})[0].study)
        runs = [(configuration, None) for configuration in plan.configurations]
        own = {
            "model": plan.model.name,
            "pass_": plan.workload.pass_,
            "dataset": plan.study.data,
            "batch_size": plan.workload.batch_size,
            "kind": checkpoint.command,
            "points": SweepPoints(checkpoint.axes, checkpoint.study_ids),
        }
    configurations = [
        ConfigurationSummary(
            configuration.name,
            configuration.engine,
            configuration.variant,
            configuration.device,
            run is not None and bool(measured_step_times(run)),
            library_versions(collect_versions(run)) if run is not None else {},
            None,
        )
        for configuration, run in runs
    ]
    return own | {"configurations": configurations}
