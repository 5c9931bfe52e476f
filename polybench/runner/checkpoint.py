"""Checkpoints of unfinished runs, in a folder beside the saved studies."""

from __future__ import annotations

import contextlib
import shlex
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Generic, Literal, NamedTuple, TypeVar

import msgspec

from polybench.data.disk import atomic_write, read_regular_file
from polybench.errors import BadInput
from polybench.planning.schedule import RoundBudgetState
from polybench.planning.study_file import parse
from polybench.results.document import DocumentHeader, study_toml
from polybench.results.run_state import ConfigurationRun
from polybench.runner.scratch import LOCK_FILE, hold_lock, is_stale
from polybench.schema.metadata import NO_METADATA, Host, RoundInterference, Settings, StudyFileMetadata, ToolVersion
from polybench.schema.options import MachineGroup, Study
from polybench.storage.past_durations import CheckScope

CHECKPOINT_FOLDER = "unfinished"

CheckpointT = TypeVar("CheckpointT", bound=msgspec.Struct)


class CorruptCheckpoint(BadInput):
    """The checkpoint is corrupt."""


class CheckpointStore(Generic[CheckpointT]):
    """Checkpoints of one type by ID; each has a folder with a file and a lock.

    Args:
        results: the folder of saved studies.
        file_name: name of the checkpoint file, different for each type.
        checkpoint_type: type of its content.
    """

    def __init__(self, results: Path, file_name: str, checkpoint_type: type[CheckpointT]) -> None:
        self.folder = results / CHECKPOINT_FOLDER
        self._file_name, self._type = file_name, checkpoint_type

    def ids(self) -> list[str]:
        """Return the IDs of all checkpoints, newest first."""
        return sorted((path.parent.name for path in self.folder.glob(f"*/{self._file_name}")), reverse=True)

    def path(self, id: str) -> Path:
        """Return the path of a checkpoint."""
        return self.folder / id / self._file_name

    def read(self, id: str) -> CheckpointT:
        """Read a checkpoint.

        Raises:
            BadInput: the checkpoint does not exist, or cannot be read.
            CorruptCheckpoint: its content is invalid.
        """
        path = self.path(id)
        try:
            return msgspec.msgpack.decode(read_regular_file(path), type=self._type, dec_hook=_decode_path)
        except FileNotFoundError:
            raise BadInput(f"cannot resume {id}: it has finished, or the ID is unknown") from None
        except (OSError, msgspec.MsgspecError, RecursionError, ValueError) as error:
            error_type = BadInput if isinstance(error, OSError) else CorruptCheckpoint
            hint = f"start over with {self.rerun_hint(id)}, or delete it with `polybench resume {id} --discard`"
            raise error_type(f"cannot read checkpoint {path}: {error}: {hint}") from error

    def rerun_hint(self, id: str, argv: Sequence[str] = ()) -> str:
        """Return the command that starts over, as text.

        Args:
            id: of the run; a saved study is repeated by its ID.
            argv: its original command line, if known.
        """
        if (self.folder.parent / f"{id}.json").is_file():
            return f"`polybench run {id}`"
        return f"`{shlex.join(['polybench', *argv])}`" if argv else "the same command without --resume"

    def write(self, id: str, checkpoint: CheckpointT) -> None:
        """Replace the checkpoint atomically; raises OSError if this fails."""
        self.write_bytes(id, msgspec.msgpack.encode(checkpoint, enc_hook=str))

    def write_bytes(self, id: str, data: bytes) -> None:
        """Replace the checkpoint by the encoded one of another machine."""
        folder = self.folder / id
        folder.mkdir(parents=True, exist_ok=True)
        with atomic_write(self.path(id)) as file:
            file.write(data)

    def remove(self, id: str) -> None:
        """Delete the checkpoint of a finished run."""
        shutil.rmtree(self.folder / id, ignore_errors=True)

    def discard(self, id: str) -> None:
        """Delete the checkpoint of an unfinished run, even if it is corrupt.

        Raises:
            BadInput: the run is active, or its folder cannot be deleted.
        """
        with self.lock(id):
            self.remove(id)
        if (self.folder / id).exists():
            raise BadInput(f"cannot delete {self.folder / id}: delete it manually")

    @contextlib.contextmanager
    def lock(self, id: str) -> Iterator[None]:
        """Lock a run, so that only one process measures it.

        Raises:
            BadInput: another process has locked it.
        """
        folder = self.folder / id
        folder.mkdir(parents=True, exist_ok=True)
        self._remove_empty()
        with contextlib.ExitStack() as stack:
            try:
                stack.enter_context(hold_lock(folder))
            except BlockingIOError:
                raise BadInput(f"{id} is still running: wait for it, or stop it first") from None
            try:
                yield
            finally:
                if not self.path(id).exists():
                    self.remove(id)
                with contextlib.suppress(OSError):
                    self.folder.rmdir()  # fails if there are other checkpoints

    def _remove_empty(self) -> None:
        """Delete the folders of runs that were killed before their first checkpoint."""
        for folder in self.folder.iterdir():
            with contextlib.suppress(OSError):
                if [path.name for path in folder.iterdir()] == [LOCK_FILE] and is_stale(folder):
                    shutil.rmtree(folder, ignore_errors=True)


def _decode_path(kind: type[Any], value: Any) -> Any:
    """Decode a path, which is encoded as text."""
    if issubclass(kind, Path):
        return Path(value)
    raise NotImplementedError


class ConfigurationGroup(msgspec.Struct):
    """Configurations, by name, whose workers run at the same time, and their round budget."""

    configurations: list[str]
    round_budget: RoundBudgetState


class CompletedPhases(msgspec.Struct):
    """Finished phases of a study. Trainings are in the configuration runs."""

    parity_check: bool = False
    process_runs: int = 0
    native_allocations: bool = False
    groups: list[ConfigurationGroup] = []
    """Groups of the process runs. A resumed study keeps them, whatever memory is free then."""


class StudyCheckpoint(msgspec.Struct, kw_only=True):
    """State of a study between two phases. `study` is TOML, as in the document."""

    header: DocumentHeader
    study: str
    settings: Settings
    runs: list[ConfigurationRun]
    interference: list[RoundInterference]
    warnings: list[str]
    completed: CompletedPhases


class StudyCheckpointStore(CheckpointStore[StudyCheckpoint]):
    """Checkpoints of unfinished studies.

    Args:
        results: the folder of saved studies.
    """

    def __init__(self, results: Path) -> None:
        super().__init__(results, "study", StudyCheckpoint)


SweepCommand = Literal["sweep", "overhead"]
"""The command that renders the sweep."""


class SweepSpec(NamedTuple):
    """A study and the values to sweep.

    Attributes:
        study: settings that all points share.
        axes: swept values by the axes of `planning.grid`.
        command: that renders the sweep.
        study_file: metadata of the study file.
    """

    study: Study
    axes: Mapping[str, Sequence[int]]
    command: SweepCommand = "sweep"
    study_file: StudyFileMetadata = NO_METADATA


class SweepCheckpoint(msgspec.Struct, kw_only=True):
    """State of a sweep between two points. `study` is TOML, as in documents."""

    id: str
    created: str
    argv: list[str]
    study: str
    axes: dict[str, list[int]]
    command: SweepCommand
    study_file: StudyFileMetadata
    tool_version: ToolVersion
    host: Host
    anonymous: bool = False
    started: dict[int, str] = {}
    """Point number -> ID of its study."""

    @property
    def spec(self) -> SweepSpec:
        """The sweep's study and swept values."""
        study = parse(self.study, f"the study of {self.id}")
        return SweepSpec(study, self.axes, self.command, self.study_file)

    def matches(self, spec: SweepSpec) -> bool:
        """Return whether the sweep has exactly this study and these swept values."""
        axes = {axis: list(values) for axis, values in spec.axes.items()}
        # The order of the axes determines that of the points.
        same_axes = list(self.axes.items()) == list(axes.items())
        return same_axes and (self.study, self.command) == (study_toml(spec.study), spec.command)


class SweepCheckpointStore(CheckpointStore[SweepCheckpoint]):
    """Checkpoints of unfinished sweeps.

    Args:
        results: the folder of saved studies.
    """

    def __init__(self, results: Path) -> None:
        super().__init__(results, "sweep", SweepCheckpoint)


class ClusterRun(msgspec.Struct, frozen=True, kw_only=True):
    """A study and its machines: `on` is their address, `upload` means that they get this polybench's code."""

    study: Study
    groups: Sequence[MachineGroup]
    on: str
    upload: bool = False
    argv: Sequence[str] = ()
    study_file: StudyFileMetadata = NO_METADATA
    strict: bool = False
    parity_check: CheckScope = "new"
    anonymous: bool = False


class MachineStudy(msgspec.Struct, kw_only=True):
    """The study of one machine group. `study_checkpoint` holds its own checkpoint."""

    label: str
    study_id: str
    hostname: str | None = None
    """Host name of the machine that last started it."""
    versions: dict[str, str | None] = {}
    """Versions of the engines' packages on that machine."""
    notes: list[str] = []
    """Notes on lost machines, for its document."""
    finished: bool = False


class ClusterCheckpoint(msgspec.Struct, kw_only=True):
    """State of a study on several machines, between two phases of any of its machine studies."""

    id: str
    created: str
    tool_version: ToolVersion
    run: ClusterRun
    machine_studies: list[MachineStudy]


class ClusterCheckpointStore(CheckpointStore[ClusterCheckpoint]):
    """Checkpoints of unfinished studies on several machines.

    Args:
        results: the folder of saved studies.
    """

    def __init__(self, results: Path) -> None:
        super().__init__(results, "cluster", ClusterCheckpoint)
