"""Saved studies: one JSON document each, written whole or not at all; what is no study beside them."""

from __future__ import annotations

import contextlib
import os
import re
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

import msgspec
import platformdirs

from polybench.core.document.layers import LayersDocument, layers_from_json
from polybench.core.document.overhead import OVERHEAD_ID, OverheadDocument, overhead_from_json
from polybench.core.document.study import StudyDocument, from_json, json_of
from polybench.core.document.sweep import SWEEP_ID, SweepDocument, sweep_from_json
from polybench.core.errors import BadInput
from polybench.data.disk import drop_abandoned, is_file, regular_bytes, replacing
from polybench.report.listed import EVERYTHING, Filters, Listed
from polybench.report.study_index import StudyIndex

_ROOM_BYTES = 1 << 16
"""What a study's document takes at least, once there are samples in it."""

STUDY_ID = re.compile(r"\d{8}-\d{6}-")
"""How the ID of a study begins: its date and time."""

_MOST_NAMES = 5
"""In a sentence."""

_LAYERS, _SWEEPS, _OVERHEADS = "layers", "sweeps", "overheads"
"""The folders, beside the studies, of documents of other kinds."""

Document = StudyDocument | LayersDocument | SweepDocument | OverheadDocument

T = TypeVar("T")


def results_folder(given: Path | None = None) -> Path:
    """`--results`, else `POLYBENCH_RESULTS`, else the user's data folder."""
    if given is not None:
        return given
    if override := os.environ.get("POLYBENCH_RESULTS"):
        return Path(override)
    return Path(platformdirs.user_data_dir("polybench")) / "results"


class Store:
    """A folder of studies.

    Attributes:
        unsaved: of documents that could not be saved the last time: the ID, and why.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.unsaved: dict[str, str] = {}

    def ensure_writable(self) -> None:
        """Find out before measuring, not after.

        Raises:
            BadInput: nothing can be written there.
        """
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=self.folder) as file:
                file.write(bytes(_ROOM_BYTES))
                file.flush()
            drop_abandoned(self.folder, rf"{STUDY_ID.pattern}.*\.json")
        except OSError as error:
            raise BadInput(
                f"cannot write results to {self.folder}: {error.strerror};"
                " choose another --results folder, or --no-save"
            ) from error

    def save(self, document: Document) -> Path:
        """Write or replace the document atomically; what is no study lies in a folder of its own."""
        path = self._place(document)
        path.parent.mkdir(parents=True, exist_ok=True)  # somebody may have removed it since
        write_atomically(path, json_of(document))
        self.unsaved.pop(path.stem, None)
        return path

    def _place(self, document: Document) -> Path:
        folders = {LayersDocument: _LAYERS, SweepDocument: _SWEEPS, OverheadDocument: _OVERHEADS}
        return self.folder / folders.get(type(document), "") / f"{document.id}.json"

    def try_to_save(self, document: Document) -> str | None:
        """Save it, or return why not; if it is finished with the place of a copy, where there is room."""
        name = self._place(document).stem
        try:
            self.save(document)
        except OSError as error:
            growing = isinstance(document, StudyDocument) and document.finished is False
            copy = "" if growing else _copy_elsewhere(document)
            self.unsaved[name] = f"cannot save to {self.folder}: {error.strerror}{copy}"
        return self.unsaved.get(name)

    def listed(self) -> list[Listed]:
        """What lists need of all saved studies, readable or not, the oldest first.

        Raises:
            BadInput: the folder cannot be read.
        """
        return StudyIndex(self.folder).studies()

    def studies(self, wanted: Filters = EVERYTHING) -> Iterator[StudyDocument]:
        """Those that can be read and are wanted, the newest first, one at a time."""
        return _readable(
            (self._path(study) for study in reversed(self.listed()) if wanted.has(study)), from_json
        )

    def _path(self, study: Listed) -> Path:
        return self.folder / f"{study.file}.json"

    def layers(self) -> list[LayersDocument]:
        """All documents of layers that can be read, the newest first."""
        paths = sorted(self.folder.glob(f"{_LAYERS}/*.json"), reverse=True)
        return list(_readable(paths, layers_from_json))

    def sweeps(self) -> Iterator[SweepDocument]:
        """All documents of sweeps that can be read, the newest first, one at a time."""
        return _readable(reversed(self.sweep_files()), sweep_from_json)

    def sweep_files(self) -> list[Path]:
        """All of sweeps, readable or not, the oldest first."""
        return sorted(self.folder.glob(f"{_SWEEPS}/*.json"))

    def overhead_files(self) -> list[Path]:
        """All of overheads, readable or not, the oldest first."""
        return sorted(self.folder.glob(f"{_OVERHEADS}/*.json"))

    def load_sweep(self, name: str) -> SweepDocument:
        """The sweep with this ID, unique prefix of an ID, path of a document, or `sweep-last`.

        Raises:
            BadInput: none or several match, or the document cannot be read.
        """
        return _loaded(_of_series(self.sweep_files(), name, SWEEP_ID), "sweep", sweep_from_json)

    def load_overhead(self, name: str) -> OverheadDocument:
        """The overhead with this ID, unique prefix of an ID, path of a document, or `overhead-last`.

        Raises:
            BadInput: none or several match, or the document cannot be read.
        """
        path = _of_series(self.overhead_files(), name, OVERHEAD_ID)
        return _loaded(path, "overhead", overhead_from_json)

    def read(self, study: Listed) -> StudyDocument:
        """The document that was listed.

        Raises:
            BadInput: it cannot be read.
        """
        return _loaded(self._path(study), "study", from_json)

    def load(self, name: str) -> StudyDocument:
        """The study with this ID, unique prefix of an ID, path of a document, or `last`, the one begun last.

        Raises:
            BadInput: none or several match, or the document cannot be read.
        """
        return _loaded(self._find(name), "study", from_json)

    def _find(self, name: str) -> Path:
        # What somebody else put there may have any name, and be anything.
        if name == "last" and (listed := self.listed()):
            return self._path(([one for one in listed if _is_study(one)] or listed)[-1])
        paths = sorted(self.folder.glob("*.json"))
        if is_path(name):
            return Path(name)
        if matches := _matching(paths, name):
            return _only(matches, name, "studies")
        if name.startswith(SWEEP_ID):
            raise BadInput(f"{name!r} is a sweep, not a study; polybench show, report and plot take it")
        if name.startswith(OVERHEAD_ID):
            raise BadInput(f"{name!r} is an overhead, not a study; polybench show and plot take it")
        if any(path.stem.startswith(name) for path in self.folder.glob(f"{_LAYERS}/*.json")):
            raise BadInput(
                f"{name!r} are times of layers, not a study; `polybench list` shows the studies, and"
                " `polybench explain` finds the layers that belong to one by itself"
            )
        raise BadInput(f"no study {name!r} in {self.folder}; `polybench list` shows what is there")


def is_path(name: str) -> bool:
    """Whether this is the file of a document rather than its ID."""
    return name.endswith(".json") and is_file(Path(name))


def _of_series(paths: Sequence[Path], name: str, prefix: str) -> Path:
    """The document of this name among those of a kind, whose IDs begin with `prefix`."""
    if is_path(name):
        return Path(name)
    kind = prefix.rstrip("-")
    matches = paths[-1:] if name == f"{prefix}last" else _matching(paths, name)
    if not matches:
        raise BadInput(f"no {kind} {name!r} is saved; polybench {kind} saves one")
    return _only(matches, name, f"{kind}s")


def _matching(paths: Sequence[Path], name: str) -> list[Path]:
    """Those whose name begins so; the one that is called so, if there is one."""
    matches = [path for path in paths if path.stem.startswith(name)]
    return [path for path in matches if path.stem == name] or matches


def _only(matches: Sequence[Path], name: str, kind: str) -> Path:
    if len(matches) > 1:
        raise BadInput(
            f"{name!r} is the beginning of {len(matches)} {kind}: {_some(p.stem for p in matches)}"
        )
    return matches[0]


def _loaded(path: Path, kind: str, read: Callable[[bytes], T]) -> T:
    try:
        return read(regular_bytes(path))
    except (OSError, msgspec.MsgspecError) as error:
        raise BadInput(f"cannot read the {kind} {path}: {error}") from error


def _is_study(one: Listed) -> bool:
    return one.unreadable is None or STUDY_ID.match(one.file) is not None


def _copy_elsewhere(document: Document) -> str:
    path = Path(tempfile.gettempdir()) / f"polybench-{document.id}.json"
    try:
        write_atomically(path, json_of(document))
    except OSError:
        return ""
    return f"; a copy is {path}"


def _readable(paths: Iterable[Path], read: Callable[[bytes], T]) -> Iterator[T]:
    for path in paths:
        with contextlib.suppress(OSError, msgspec.MsgspecError):
            yield read(regular_bytes(path))


def _some(names: Iterable[str]) -> str:
    several = list(names)
    more = f" and {len(several) - _MOST_NAMES} more" if len(several) > _MOST_NAMES else ""
    return ", ".join(several[:_MOST_NAMES]) + more


def write_atomically(path: Path, content: bytes) -> None:
    """Replace `path` by `content`; a reader or a crash sees the old file or the new one, never a part."""
    with replacing(path) as file:
        file.write(content)
