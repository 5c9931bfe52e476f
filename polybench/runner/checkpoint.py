"""Finds unfinished runs. A cluster run of several studies has a checkpoint, which names them, beside their logs."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import msgspec

from polybench.data.disk import atomic_write, is_inside, read_regular_file, remove_folder
from polybench.errors import BadInput
from polybench.log import Header, read_outline
from polybench.networks import find_model
from polybench.networks.toml_text import TomlText
from polybench.planning.study_file import parse, replace_network
from polybench.results.document import study_toml
from polybench.runner.resume import (
    discard_study,
    machine_changes,
    polybench_changes,
    refuse,
    rerun_hint,
    unfinished_ids,
    unfinished_logs,
)
from polybench.runner.scratch import LOCK_FILE, hold_lock, is_stale
from polybench.runner.workers import list_changes
from polybench.schema.documents import kind_of_id, split_point_id, start_of_id
from polybench.schema.metadata import StudyFileMetadata
from polybench.schema.options import CheckScope, Id, MachineGroup, Study
from polybench.storage.store import Store

CHECKPOINT_FOLDER = "unfinished"


class Checkpoint(msgspec.Struct, kw_only=True):
    """An unfinished run; its subclasses add what is needed to continue it. `study` is TOML, as in documents."""

    header: Header
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


def study_file_of(header: Header) -> StudyFileMetadata:
    """Return what a header has of a study file."""
    return StudyFileMetadata(header.title, header.published, header.repeated_data_sha256, tuple(header.tags))


class ClusterRun(msgspec.Struct, frozen=True, kw_only=True):
    """A study and its machines: `on` is their address, `upload` means that they get this polybench's code."""

    study: Study
    groups: Sequence[MachineGroup]
    on: str
    upload: bool = False
    strict: bool = False
    parity_check: CheckScope = "new"


class MachineStudy(msgspec.Struct, kw_only=True):
    """The study of one machine group, which has a log of its own."""

    label: str
    study_id: Id
    hostname: str | None = None
    """Host name of the machine that last started it."""
    versions: dict[str, str | None] = {}
    """Versions of the engines' packages on that machine."""


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


def select_sweep(axes: Mapping[str, Sequence[int]], command: str | None) -> dict[str, Any]:
    """Return what selects a sweep, apart from its study; the order of the axes determines that of the points."""
    return {"swept values": {axis: list(values) for axis, values in axes.items()}, "command": command}


def select_machines(groups: Sequence[MachineGroup]) -> dict[str, Any]:
    """Return what selects a cluster run, apart from its study."""
    machines = {f"machine {group.label}": msgspec.to_builtins(group) for group in groups}
    return {"machines": [group.label for group in groups]} | machines


CheckpointT = TypeVar("CheckpointT", bound=Checkpoint)


class CorruptCheckpoint(BadInput):
    """The checkpoint is corrupt."""


def _file_name(kind: type[Checkpoint]) -> str:
    return str(kind.__struct_config__.tag)


class CheckpointStore:
    """Checkpoints by ID; each has a folder with a file, which is named after its kind, and a lock."""

    def __init__(self, results: Path) -> None:
        self._results, self.folder = results, results / CHECKPOINT_FOLDER

    def ids(self, kind: type[Checkpoint]) -> list[str]:
        """Return the IDs of all checkpoints of a kind, newest first."""
        return sorted((path.parent.name for path in self.folder.glob(f"*/{_file_name(kind)}")), reverse=True)

    def path(self, id: str, kind: type[Checkpoint]) -> Path:
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
        hint = (
            f"start over with {rerun_hint(id, (), self._results)}, or delete it with `polybench resume {id} --discard`"
        )
        return error_type(f"cannot read checkpoint {self.path(id, kind)}: {error}: {hint}")

    def read_unchanged(self, id: str, kind: type[CheckpointT]) -> CheckpointT:
        """Read a checkpoint; raises BadInput if the machine or polybench has changed."""
        checkpoint = self.read(id, kind)
        header = checkpoint.header
        refuse(id, header.argv, [*machine_changes(header.host), *polybench_changes(header.polybench)], self._results)
        return checkpoint

    def read_all(self, kind: type[CheckpointT], errors: list[str] | None = None) -> Iterator[CheckpointT]:
        """Yield readable checkpoints, newest first; append the messages of the others to `errors`."""
        for id in self.ids(kind):
            try:
                yield self.read(id, kind)
            except BadInput as error:
                if errors is not None:
                    errors.append(str(error))

    def write(self, checkpoint: Checkpoint) -> None:
        """Replace the checkpoint atomically; raises OSError if this fails."""
        text = msgspec.json.encode(checkpoint)
        path = self.path(checkpoint.header.id, type(checkpoint))
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic_write(path) as file:
            file.write(_checksum(text) + b"\n" + text)

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
                    if not self.path(id, ClusterCheckpoint).exists():
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
    checkpoint = msgspec.json.decode(text, type=kind)
    if checkpoint.header.id != id:
        raise ValueError(f"it belongs to {checkpoint.header.id}")
    if len({id, *checkpoint.study_ids}) <= len(checkpoint.study_ids):
        raise ValueError("two of its studies have the same ID")
    checkpoint.check()
    return checkpoint


class ResumableRun(NamedTuple):
    """An unfinished run; `kind` is None for a study or sweep, which is a log."""

    id: str
    kind: type[Checkpoint] | None = None


def find_resumable(name: str, store: Store) -> ResumableRun:
    """Find the unfinished run whose ID begins with `name`, or for `last` the one that stopped last.

    A point of a sweep, and a study of a cluster run, are resumed with the whole run. Raises BadInput if no or several
    runs match.
    """
    checkpoints = CheckpointStore(store.folder)
    name = (split_point_id(name) or (name,))[0]
    kinds: dict[str, type[Checkpoint] | None] = dict.fromkeys(unfinished_ids(store))
    kinds |= dict.fromkeys(checkpoints.ids(ClusterCheckpoint), ClusterCheckpoint)
    parents = {
        study_id: run.header.id
        for run in checkpoints.read_all(ClusterCheckpoint)
        for study_id in [run.header.id, *run.study_ids]
    }
    ids = sorted({parents.get(id, id) for id in kinds if name == "last" or id.startswith(name)})
    if name == "last" and ids:
        # The studies of a corrupt cluster run are unknown, so it is chosen only if there is no other run.
        newest = max([*(id for id in ids if kinds[id] is None), *parents], default=ids[-1], key=start_of_id)
        ids = [parents.get(newest, newest)]
    if len(ids) == 1:
        return ResumableRun(ids[0], kinds[ids[0]])
    if ids:
        raise BadInput(f"ambiguous ID {name!r}: {len(ids)} unfinished studies match: use a longer prefix")
    raise BadInput(f"cannot resume {name!r}: it has finished, or the ID is unknown")


def discard(run: ResumableRun, store: Store) -> None:
    """End a run and its studies, so that they cannot be resumed, even if they are corrupt; measurements remain.

    Raises BadInput if the run is active, or cannot be changed.
    """
    checkpoints, study_ids = CheckpointStore(store.folder), [run.id] if run.kind is None else []
    if run.kind is not None:
        with contextlib.suppress(BadInput):  # corrupt: its studies are unknown
            study_ids = checkpoints.read(run.id, run.kind).study_ids
    with contextlib.ExitStack() as stack:
        if run.kind is not None:  # no other process measures it
            stack.enter_context(checkpoints.lock(run.id))
        for id in study_ids:
            if run.kind is None or store.log_path(id).exists():  # a machine may not have started
                discard_study(id, store)
        if run.kind is not None:
            checkpoints.remove(run.id)
    if (checkpoints.folder / run.id).exists():
        raise BadInput(f"cannot delete {checkpoints.folder / run.id}: delete it manually")


def find_unfinished(
    study: Study, store: Store, kind: type[Checkpoint] | None = None, selection: Mapping[str, Any] | None = None
) -> str:
    """Return the ID of the newest unfinished run with exactly these settings; `kind` is None for a study or sweep.

    A sweep or cluster run has a `selection` as well. If no run matches, BadInput lists differences from the newest.
    """
    requested, selection = study_toml(study), selection or {}
    newest: _Candidate | None = None
    errors: list[str] = []
    for candidate in _candidates(store, kind, errors, is_sweep=bool(selection)):
        # Encoded, because the order counts.
        if (candidate.study, msgspec.json.encode(candidate.selection)) == (requested, msgspec.json.encode(selection)):
            return candidate.id
        newest = newest or candidate
    if newest is None:
        text = f"no unfinished study in {store.folder}: run the command without --resume"
    else:
        id, before = newest.id, _study_fields(newest.study) | dict(newest.selection)
        changes = "; ".join(list_changes(before, _study_fields(requested) | dict(selection)))
        text = f"no unfinished study has these settings: in {id}, {changes}: `polybench resume {id}` resumes it"
    raise BadInput("; ".join([text, *errors]))


class _Candidate(NamedTuple):
    """The settings of an unfinished run."""

    id: str
    study: str
    selection: Mapping[str, Any]


def _candidates(
    store: Store, kind: type[Checkpoint] | None, errors: list[str], *, is_sweep: bool
) -> Iterator[_Candidate]:
    """Yield all readable unfinished runs of a kind, newest first; append the messages of the others to `errors`."""
    if kind is not None:
        for checkpoint in CheckpointStore(store.folder).read_all(kind, errors):
            yield _Candidate(checkpoint.header.id, checkpoint.study, checkpoint.selection)
        return
    for path in unfinished_logs(store):
        if (kind_of_id(path.stem) != "study") != is_sweep:
            continue
        try:
            header = read_outline(path).header
        except (BadInput, OSError) as error:
            errors.append(str(error))
        else:
            selection = select_sweep(header.axes, header.command) if is_sweep else {}
            yield _Candidate(path.stem, header.study, selection)


def _study_fields(study: str) -> dict[str, Any]:
    """Return the fields of a study in TOML, with the name of a custom network in place of its content."""
    text = TomlText("a study", study)
    fields = replace_network(text, text.load())
    return fields | {"model": find_model(fields["model"]).name}
