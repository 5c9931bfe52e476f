"""What is needed to go on with a study: kept beside the saved studies until it has come to its end.

A document has medians and means; this has everything that was measured, as the study itself had it.
"""

from __future__ import annotations

import contextlib
import fcntl
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from polybench.core.document.circumstances import RoundNoise, Settings
from polybench.core.errors import BadInput
from polybench.data.disk import regular_bytes, replacing
from polybench.planning.pace import PaceState
from polybench.report.cell_record import CellRecord
from polybench.report.document import Context

_FOLDER, _STATE, _LOCK = "unfinished", "state", "lock"
_NEW_SECONDS = 60.0


class Group(msgspec.Struct):
    """Cells whose workers live at the same time, by name, and the pace that was chosen for them."""

    cells: list[str]
    pace: PaceState


class Done(msgspec.Struct):
    """Which parts of a study are finished; trainings are in the records."""

    verified: bool = False
    replicates: int = 0
    native: bool = False
    groups: list[Group] = []
    """Of the replicates; they stay as they were, whatever memory there is now."""


class Checkpoint(msgspec.Struct, kw_only=True):
    """A study between two of its parts. `study` is TOML, as in the document."""

    context: Context
    study: str
    settings: Settings
    records: list[CellRecord]
    noise: list[RoundNoise]
    warnings: list[str]
    done: Done


class Unfinished:
    """A folder with a folder for each study that is not finished.

    Args:
        results: the folder of saved studies.
    """

    def __init__(self, results: Path) -> None:
        self.folder = results / _FOLDER

    def ids(self) -> list[str]:
        """Of the studies that can be resumed, the newest first."""
        return sorted((path.parent.name for path in self.folder.glob(f"*/{_STATE}")), reverse=True)

    def read(self, id: str) -> Checkpoint:
        """What was kept of it.

        Raises:
            BadInput: nothing was, or it cannot be read.
        """
        path = self.folder / id / _STATE
        try:
            return msgspec.msgpack.decode(regular_bytes(path), type=Checkpoint, dec_hook=_path)
        except FileNotFoundError:
            raise BadInput(
                f"there is nothing to resume of {id}: it is complete, or was never begun"
            ) from None
        except (OSError, msgspec.MsgspecError, RecursionError, ValueError) as error:
            raise BadInput(f"cannot read {path}: {error}; `polybench run {id}` measures all again") from error

    def write(self, checkpoint: Checkpoint) -> None:
        """Keep it in place of an earlier one, whole or not at all; raises OSError if it cannot."""
        folder = self.folder / checkpoint.context.id
        folder.mkdir(parents=True, exist_ok=True)
        with replacing(folder / _STATE) as file:
            file.write(msgspec.msgpack.encode(checkpoint, enc_hook=str))

    def find(self, name: str) -> str:
        """The ID of which this is the beginning, or `last`.

        Raises:
            BadInput: none or several of those that are not finished.
        """
        ids = self.ids()
        found = ids[:1] if name == "last" else [id for id in ids if id.startswith(name)]
        if len(found) == 1:
            return found[0]
        if found:
            raise BadInput(f"{name!r} is the beginning of {len(found)} studies that are not finished")
        raise BadInput(f"there is nothing to resume of {name!r}: no such study, or it is complete")

    def drop(self, id: str) -> None:
        """The study has come to its end."""
        shutil.rmtree(self.folder / id, ignore_errors=True)

    @contextlib.contextmanager
    def claimed(self, id: str) -> Iterator[None]:
        """Only one process at a time measures this study.

        Raises:
            BadInput: another one does.
        """
        folder = self.folder / id
        folder.mkdir(parents=True, exist_ok=True)
        self._drop_empty()
        with (folder / _LOCK).open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise BadInput(f"the study {id} runs still; wait for it, or end it first") from None
            except OSError:
                pass  # a file system without locks
            try:
                yield
            finally:
                if not (folder / _STATE).exists():
                    self.drop(id)
                with contextlib.suppress(OSError):
                    self.folder.rmdir()  # where nothing else is unfinished

    def _drop_empty(self) -> None:
        """Studies that were killed before anything could be kept."""
        for folder in self.folder.iterdir():
            with contextlib.suppress(OSError):
                old = time.time() - folder.stat().st_mtime > _NEW_SECONDS
                if old and [path.name for path in folder.iterdir()] == [_LOCK]:
                    shutil.rmtree(folder, ignore_errors=True)


def _path(kind: type[Any], value: Any) -> Any:
    """A log's place, which was written as text."""
    if issubclass(kind, Path):
        return Path(value)
    raise NotImplementedError
