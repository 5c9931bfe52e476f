"""Finds unfinished runs. A cluster run of several studies has a checkpoint, which names them, beside their logs."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import msgspec

from polybench.data.disk import atomic_write, is_inside, read_regular_file, remove_folder
from polybench.errors import BadInput
from polybench.log import Header, read_outline
from polybench.networks import find_model
from polybench.networks.toml_text import TomlText
from polybench.planning.study_file import replace_network
from polybench.results.document import study_toml
from polybench.runner.resume import discard_study, rerun_hint, unfinished_ids, unfinished_logs
from polybench.runner.scratch import LOCK_FILE, hold_lock, is_stale
from polybench.runner.workers import list_changes
from polybench.schema.documents import kind_of_id, split_point_id, start_of_id
from polybench.schema.options import CheckScope, Id, LogKind, MachineGroup, Study
from polybench.storage.store import Store

CHECKPOINT_FOLDER = "unfinished"


_FILE = "cluster"
"""Name of the file of a checkpoint in the folder of its run."""

RunKind = Literal[LogKind, "cluster"]
"""Kinds of runs that can be resumed."""


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


class ClusterCheckpoint(msgspec.Struct, kw_only=True):
    """State of a study, as TOML, on several machines, between two phases of any of its machine studies."""

    header: Header
    study: str
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


def select_sweep(axes: Mapping[str, Sequence[int]]) -> dict[str, Any]:
    """Return what selects a sweep, apart from its study; the order of the axes determines that of the points."""
    return {"swept values": {axis: list(values) for axis, values in axes.items()}}


def select_machines(groups: Sequence[MachineGroup]) -> dict[str, Any]:
    """Return what selects a cluster run, apart from its study."""
    machines = {f"machine {group.label}": msgspec.to_builtins(group) for group in groups}
    return {"machines": [group.label for group in groups]} | machines


class CheckpointStore:
    """Checkpoints of cluster runs by ID; each has a folder with a file and a lock."""

    def __init__(self, results: Path) -> None:
        self._results, self.folder = results, results / CHECKPOINT_FOLDER

    def ids(self) -> list[str]:
        """Return the IDs of all checkpoints, newest first."""
        return sorted((path.parent.name for path in self.folder.glob(f"*/{_FILE}")), reverse=True)

    def path(self, id: str) -> Path:
        """Return the path of a checkpoint."""
        return self.run_folder(id) / _FILE

    def run_folder(self, id: str) -> Path:
        """Return the folder of a run; raises BadInput for an invalid ID, or if it is a link or behind one."""
        try:
            folder = self.folder / msgspec.convert(id, Id)
        except msgspec.ValidationError:
            raise BadInput(f"invalid ID {id!r}: expected letters, digits and . _ - only") from None
        if not is_inside(folder, self._results):
            raise BadInput(f"cannot use {folder}: expected a folder inside of {self._results}: delete the link")
        return folder

    def read(self, id: str) -> ClusterCheckpoint:
        """Read a checkpoint; raises BadInput if it cannot be read, or its content is invalid."""
        path = self.path(id)
        try:
            return _decode(read_regular_file(path), id)
        except FileNotFoundError:
            raise BadInput(f"cannot resume {id}: it has finished, or the ID is unknown") from None
        except (OSError, msgspec.MsgspecError, RecursionError, ValueError, BadInput) as error:
            again = rerun_hint(id, (), self._results)
            hint = f"start over with {again}, or delete it with `polybench resume {id} --discard`"
            raise BadInput(f"cannot read checkpoint {path}: {error}: {hint}") from error

    def read_all(self, errors: list[str] | None = None) -> Iterator[ClusterCheckpoint]:
        """Yield readable checkpoints, newest first; append the messages of the others to `errors`."""
        for id in self.ids():
            try:
                yield self.read(id)
            except BadInput as error:
                if errors is not None:
                    errors.append(str(error))

    def write(self, checkpoint: ClusterCheckpoint) -> None:
        """Replace the checkpoint atomically; raises OSError if this fails."""
        text = msgspec.json.encode(checkpoint)
        path = self.path(checkpoint.header.id)
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
                    if not self.path(id).exists():
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


def _decode(data: bytes, id: str) -> ClusterCheckpoint:
    """Decode a checkpoint, which is JSON because that has neither NaN nor infinity, after a line with its checksum.

    Raises ValueError, MsgspecError or BadInput unless it is intact, complete, and the checkpoint of this run.
    """
    checksum, _, text = data.partition(b"\n")
    if checksum != _checksum(text):
        raise ValueError("it has another checksum")
    checkpoint = msgspec.json.decode(text, type=ClusterCheckpoint)
    if checkpoint.header.id != id:
        raise ValueError(f"it belongs to {checkpoint.header.id}")
    if len({id, *checkpoint.study_ids}) <= len(checkpoint.study_ids):
        raise ValueError("two of its studies have the same ID")
    checkpoint.check()
    return checkpoint


class ResumableRun(NamedTuple):
    """An unfinished run."""

    id: str
    kind: RunKind = "study"


def find_resumable(name: str, store: Store) -> ResumableRun:
    """Find the unfinished run whose ID begins with `name`, or for `last` the one that stopped last.

    A point of a sweep, and a study of a cluster run, are resumed with the whole run. Raises BadInput if no or several
    runs match.
    """
    checkpoints = CheckpointStore(store.folder)
    name = (split_point_id(name) or (name,))[0]
    kinds: dict[str, RunKind] = {id: kind_of_id(id) for id in unfinished_ids(store)}
    kinds |= dict.fromkeys(checkpoints.ids(), "cluster")
    parents = {
        study_id: run.header.id for run in checkpoints.read_all() for study_id in [run.header.id, *run.study_ids]
    }
    ids = sorted({parents.get(id, id) for id in kinds if name == "last" or id.startswith(name)})
    if name == "last" and ids:
        # The studies of a corrupt cluster run are unknown, so it is chosen only if there is no other run.
        newest = max([*(id for id in ids if kinds[id] != "cluster"), *parents], default=ids[-1], key=start_of_id)
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
    checkpoints, study_ids = CheckpointStore(store.folder), [run.id]
    if run.kind == "cluster":
        study_ids = []
        with contextlib.suppress(BadInput):  # corrupt: its studies are unknown
            study_ids = checkpoints.read(run.id).study_ids
    with contextlib.ExitStack() as stack:
        if run.kind == "cluster":  # no other process measures it
            stack.enter_context(checkpoints.lock(run.id))
        for id in study_ids:
            if run.kind != "cluster" or store.log_path(id).exists():  # a machine may not have started
                discard_study(id, store)
        if run.kind == "cluster":
            checkpoints.remove(run.id)
    if (checkpoints.folder / run.id).exists():
        raise BadInput(f"cannot delete {checkpoints.folder / run.id}: delete it manually")


def find_unfinished(
    study: Study, store: Store, kind: RunKind = "study", selection: Mapping[str, Any] | None = None
) -> str:
    """Return the ID of the newest unfinished run of a kind with exactly these settings.

    A sweep or cluster run has a `selection` as well. If no run matches, BadInput lists differences from the newest.
    """
    requested, selection = study_toml(study), selection or {}
    newest: _Candidate | None = None
    errors: list[str] = []
    for candidate in _candidates(store, kind, errors):
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


def _candidates(store: Store, kind: RunKind, errors: list[str]) -> Iterator[_Candidate]:
    """Yield all readable unfinished runs of a kind, newest first; append the messages of the others to `errors`."""
    if kind == "cluster":
        for checkpoint in CheckpointStore(store.folder).read_all(errors):
            yield _Candidate(checkpoint.header.id, checkpoint.study, checkpoint.selection)
        return
    for path in unfinished_logs(store):
        if kind_of_id(path.stem) != kind:
            continue
        try:
            header = read_outline(path).header
        except (BadInput, OSError) as error:
            errors.append(str(error))
        else:
            selection = select_sweep(header.axes) if header.axes else {}
            yield _Candidate(path.stem, header.study, selection)


def _study_fields(study: str) -> dict[str, Any]:
    """Return the fields of a study in TOML, with the name of a custom network in place of its content."""
    text = TomlText("a study", study)
    fields = replace_network(text, text.load())
    return fields | {"model": find_model(fields["model"]).name}
