"""Checkpoints of unfinished runs, in a folder beside the saved studies."""

from __future__ import annotations

import contextlib
import shlex
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Generic, TypeVar

import msgspec

from polybench.data.disk import atomic_write, read_regular_file
from polybench.errors import BadInput
from polybench.runner.file_lock import LOCK_FILE, hold_lock, is_stale

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
