"""Folders of what is not finished, beside the saved studies: each holds what is needed to go on with it."""

from __future__ import annotations

import contextlib
import shlex
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Generic, TypeVar

import msgspec

from polybench.core.errors import BadInput
from polybench.data.disk import regular_bytes, replacing
from polybench.measuring.held import LOCK, abandoned, held

FOLDER = "unfinished"

T = TypeVar("T", bound=msgspec.Struct)


class Damaged(BadInput):
    """What was kept is there, and is not what was written; nobody can go on with it."""


class Kept(Generic[T]):
    """What is kept of one kind, by ID: a folder each, with a file and a lock.

    Args:
        results: the folder of saved studies.
        file: the file's name, another one for each kind.
        kind: what is in it.
    """

    def __init__(self, results: Path, file: str, kind: type[T]) -> None:
        self.folder = results / FOLDER
        self._file, self._kind = file, kind

    def ids(self) -> list[str]:
        """Of all that can be resumed, the newest first."""
        return sorted((path.parent.name for path in self.folder.glob(f"*/{self._file}")), reverse=True)

    def file(self, id: str) -> Path:
        """Where it is kept."""
        return self.folder / id / self._file

    def read(self, id: str) -> T:
        """What was kept of it.

        Raises:
            BadInput: nothing was, or it cannot be read; Damaged where it never can.
        """
        path = self.file(id)
        try:
            return msgspec.msgpack.decode(regular_bytes(path), type=self._kind, dec_hook=_path)
        except FileNotFoundError:
            raise BadInput(
                f"there is nothing to resume of {id}: it is complete, or was never begun"
            ) from None
        except (OSError, msgspec.MsgspecError, RecursionError, ValueError) as error:
            kind = BadInput if isinstance(error, OSError) else Damaged
            remedy = f"{self.again(id)} measures all again; `polybench resume {id} --discard` removes it"
            raise kind(f"cannot read {path}: {error}; {remedy}") from error

    def again(self, id: str, argv: Sequence[str] = ()) -> str:
        """What measures all of it again, in words.

        Args:
            id: by which a study that was saved is repeated.
            argv: how it was begun, where that is known.
        """
        if (self.folder.parent / f"{id}.json").is_file():
            return f"`polybench run {id}`"
        return f"`{shlex.join(['polybench', *argv])}`" if argv else "the same command without --resume"

    def write(self, id: str, state: T) -> None:
        """Keep it in place of an earlier one, whole or not at all; raises OSError if it cannot."""
        self.write_bytes(id, msgspec.msgpack.encode(state, enc_hook=str))

    def write_bytes(self, id: str, state: bytes) -> None:
        """The same of what another machine has kept."""
        folder = self.folder / id
        folder.mkdir(parents=True, exist_ok=True)
        with replacing(self.file(id)) as file:
            file.write(state)

    def drop(self, id: str) -> None:
        """It has come to its end."""
        shutil.rmtree(self.folder / id, ignore_errors=True)

    def discard(self, id: str) -> None:
        """Give it up, even where nobody can read it.

        Raises:
            BadInput: it runs still, or cannot be removed.
        """
        with self.claimed(id):
            self.drop(id)
        if (self.folder / id).exists():
            raise BadInput(f"cannot remove {self.folder / id}; remove it by hand")

    @contextlib.contextmanager
    def claimed(self, id: str) -> Iterator[None]:
        """Only one process at a time measures this.

        Raises:
            BadInput: another one does.
        """
        folder = self.folder / id
        folder.mkdir(parents=True, exist_ok=True)
        self._drop_empty()
        with contextlib.ExitStack() as stack:
            try:
                stack.enter_context(held(folder))
            except BlockingIOError:
                raise BadInput(f"{id} runs still; wait for it, or end it first") from None
            try:
                yield
            finally:
                if not self.file(id).exists():
                    self.drop(id)
                with contextlib.suppress(OSError):
                    self.folder.rmdir()  # where nothing else is unfinished

    def _drop_empty(self) -> None:
        """What was killed before anything could be kept."""
        for folder in self.folder.iterdir():
            with contextlib.suppress(OSError):
                if [path.name for path in folder.iterdir()] == [LOCK] and abandoned(folder):
                    shutil.rmtree(folder, ignore_errors=True)


def _path(kind: type[Any], value: Any) -> Any:
    """A log's place, which was written as text."""
    if issubclass(kind, Path):
        return Path(value)
    raise NotImplementedError
