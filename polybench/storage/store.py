"""Saves and loads studies, a log each, and documents of other kinds in subfolders.

A study without a log, of Julia for example, is a document.
"""

from __future__ import annotations

import contextlib
import os
import re
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

import msgspec
import platformdirs

from polybench.data.disk import atomic_write, is_file, read_regular_file, remove_stale
from polybench.errors import BadInput
from polybench.log import SUFFIX, read_log
from polybench.results.document import report_of
from polybench.schema.documents import DOCUMENT_KINDS, AnyDocument, kind_of, newest_name, read_document
from polybench.schema.encoding import decode, encode
from polybench.schema.measurements import LayersDocument, SweepDocument
from polybench.schema.metadata import Document
from polybench.schema.options import Id
from polybench.schema.study import StudyDocument
from polybench.storage.study_index import StudyIndex
from polybench.storage.summaries import NO_FILTERS, Filters, Kind, StudySummary, check_file_name, summarize_document

_PROBE_BYTES = 1 << 16
"""Bytes that a test of the folder writes: about the smallest document of a study with step times."""

STUDY_ID = re.compile(r"\d{8}-\d{6}-")
"""Start of a study's ID: date and time."""

_MAX_NAMES = 5
"""Number of names that an error message lists."""

D = TypeVar("D", bound=AnyDocument)


def results_folder(given: Path | None = None) -> Path:
    """Return `--results`, else `POLYBENCH_RESULTS`, else a folder in the user's data folder."""
    if given is not None:
        return given
    if override := os.environ.get("POLYBENCH_RESULTS"):
        return Path(override)
    return Path(platformdirs.user_data_dir("polybench")) / "results"


class Store:
    """Folder of saved studies.

    Attributes:
        failed_saves: reason by ID for each document whose last save failed.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.failed_saves: dict[str, str] = {}

    def log_path(self, id: str) -> Path:
        """Return the path of a study's log; raises BadInput for an invalid ID."""
        try:
            return self.folder / f"{msgspec.convert(id, Id)}{SUFFIX}"
        except msgspec.ValidationError:
            raise BadInput(f"invalid ID {id!r}: expected letters, digits and . _ - only") from None

    def logs(self) -> list[Path]:
        """Return the paths of all logs, readable or not, the oldest first."""
        return sorted(self.folder.glob(f"*{SUFFIX}"))

    def ensure_writable(self) -> None:
        """Check before a measurement that its document can be saved.

        Raises:
            BadInput: the folder cannot be written.
        """
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=self.folder) as file:
                file.write(bytes(_PROBE_BYTES))
                file.flush()
            remove_stale(self.folder, rf"{STUDY_ID.pattern}.*\.json")
        except OSError as error:
            raise BadInput(
                f"cannot write results to {self.folder}: {error.strerror}; use another --results folder, or --no-save"
            ) from error

    def save(self, document: Document) -> Path:
        """Write or replace the document atomically and return its path."""
        path = self._document_path(document)
        path.parent.mkdir(parents=True, exist_ok=True)  # it may have been deleted since
        write_file_atomically(path, encode(document))
        self.failed_saves.pop(path.stem, None)
        return path

    def _document_path(self, document: Document) -> Path:
        folder = DOCUMENT_KINDS[kind_of(document.schema)].folder
        assert folder is not None
        return self.folder / folder / f"{document.id}.json"

    def try_to_save(self, document: Document) -> str | None:
        """Save the document and return None, or an error message if it cannot be saved.

        A finished document is then saved to the temporary folder, if possible.
        """
        name = self._document_path(document).stem
        try:
            self.save(document)
        except OSError as error:
            is_unfinished = isinstance(document, StudyDocument) and document.finished is False
            copy = "" if is_unfinished else _save_copy(document)
            self.failed_saves[name] = f"cannot save to {self.folder}: {error.strerror}{copy}"
        return self.failed_saves.get(name)

    def summaries(self) -> list[StudySummary]:
        """Return summaries of all saved studies, readable or not, the oldest first.

        Raises:
            BadInput: the folder cannot be read.
        """
        return StudyIndex(self.folder).summaries()

    def studies(self, filters: Filters = NO_FILTERS) -> Iterator[StudyDocument]:
        """Yield the matching readable studies one at a time, the newest first."""
        paths = (self._path(study) for study in reversed(self.summaries()) if filters.matches(study))
        return _readable(paths, StudyDocument)

    def _path(self, study: StudySummary) -> Path:
        folder = DOCUMENT_KINDS[study.kind].folder
        assert folder is not None
        path = self.folder / folder / f"{study.file}.json"
        return self.folder / f"{study.file}{SUFFIX}" if study.kind == "study" and not path.exists() else path

    def _study_paths(self) -> list[Path]:
        """Return the path of each study, readable or not, the oldest first; a document precedes its log."""
        paths = {path.stem: path for path in (*self.logs(), *self.folder.glob("*.json"))}
        return [paths[id] for id in sorted(paths)]

    def layers(self) -> list[LayersDocument]:
        """Return all readable layers documents, the newest first."""
        return list(_readable(reversed(self.files("layers")), LayersDocument))

    def sweeps(self) -> Iterator[SweepDocument]:
        """Yield all readable sweeps one at a time, the newest first."""
        return _readable(reversed(self.files("sweep")), SweepDocument)

    def sweep_summaries(self) -> list[StudySummary]:
        """Return summaries of all saved sweeps and overheads, readable or not."""
        return [_summarize(path, kind) for kind in ("sweep", "overhead") for path in self.files(kind)]

    def layers_summaries(self) -> list[StudySummary]:
        """Return summaries of all saved layers documents, readable or not."""
        return [_summarize(path, "layers") for path in self.files("layers")]

    def has_layers(self, name: str) -> bool:
        """Return True for `layers-last`, and for the ID of layers, or its prefix, with which no study begins."""
        if name == newest_name("layers"):
            return True
        return not _matching(self._study_paths(), name) and bool(_matching(self.files("layers"), name))

    def files(self, kind: str) -> list[Path]:
        """Return the paths of all documents of a kind other than studies, readable or not, the oldest first."""
        return sorted(self.folder.glob(f"{DOCUMENT_KINDS[kind].folder}/*.json"))

    def load_kind(self, type_: type[D], name: str) -> D:
        """Load the document of a type by its ID, a unique prefix of it, its path, or `KIND-last`.

        Raises:
            BadInput: no document or several documents match, or the document cannot be read.
        """
        return _load(_find_by_prefix(self.files(_kind(type_)), name, _kind(type_)), type_, name)

    def read(self, summary: StudySummary, type_: type[D]) -> D:
        """Load the document of a summary, which is of this type.

        Raises:
            BadInput: it cannot be read.
        """
        return _load(self._path(summary), type_)

    def load_computed(
        self, name: str, *, baseline: str | None = None, tolerance: float | None = None, salvage: bool = False
    ) -> StudyDocument:
        """Compute the report of a log with other arguments than the study's; a name is that of `load`.

        With `salvage`, a damaged log counts up to its first damaged line.

        Raises:
            BadInput: as `load`, or the study has no log.
        """
        path = self._find(name)
        if path.suffix != SUFFIX:
            raise BadInput(
                f"{path.stem} has no log: --baseline, --tolerance and --salvage need one: leave them out, or run"
                f" `polybench run {path.stem}`"
            )
        try:
            events = read_log(path, salvage=salvage)
        except OSError as error:
            raise BadInput(f"cannot read {path}: {error.strerror}") from error
        return report_of(events, baseline=baseline, tolerance=tolerance, salvage=salvage)

    def load(self, name: str) -> StudyDocument:
        """Load the study with this ID, unique prefix of an ID, path, or `last`, the one started last.

        Raises:
            BadInput: no study or several studies match, or the document cannot be read.
        """
        return _load(self._find(name), StudyDocument, name)

    def _find(self, name: str) -> Path:
        # The folder may contain other JSON files, with any name.
        if name == "last" and (summaries := self.summaries()):
            studies = [one for one in summaries if one.unreadable_reason is None or STUDY_ID.match(one.file)]
            return self._path((studies or summaries)[-1])
        if is_document_path(name):
            return Path(name)
        if matches := _matching(self._study_paths(), name):
            return _only(matches, name, "studies")
        if name.startswith(DOCUMENT_KINDS["sweep"].id_prefix):
            raise BadInput(f"{name!r} is a sweep, not a study; use polybench show, report or plot")
        if name.startswith(DOCUMENT_KINDS["overhead"].id_prefix):
            raise BadInput(f"{name!r} is an overhead, not a study; use polybench show or plot")
        if _matching(self.files("layers"), name):
            raise BadInput(
                f"{name!r} is a layers document, not a study: `polybench list` shows the saved studies, and"
                " `polybench explain` finds a study's layers document by itself"
            )
        raise BadInput(f"no study {name!r} in {self.folder}; `polybench list` shows the saved studies")


def is_document_path(name: str) -> bool:
    """Return True if the name is a path of a document or log, not an ID."""
    return name.endswith((".json", SUFFIX)) and is_file(Path(name))


def _find_by_prefix(paths: Sequence[Path], name: str, kind: str) -> Path:
    """Return the path of the document of a kind with this name."""
    if is_document_path(name):
        return Path(name)
    matches = paths[-1:] if name == newest_name(kind) else _matching(paths, name)
    if not matches:
        raise BadInput(f"no saved {kind} {name!r}; polybench {kind} saves one")
    return _only(matches, name, "layers documents" if kind == "layers" else f"{kind}s")


def _matching(paths: Sequence[Path], name: str) -> list[Path]:
    """Return the path with exactly this name, else all paths whose name starts with it."""
    matches = [path for path in paths if path.stem.startswith(name)]
    return [path for path in matches if path.stem == name] or matches


def _only(matches: Sequence[Path], name: str, kind: str) -> Path:
    if len(matches) > 1:
        names = ", ".join(path.stem for path in matches[:_MAX_NAMES])
        more = f" and {len(matches) - _MAX_NAMES} more" if len(matches) > _MAX_NAMES else ""
        raise BadInput(f"ambiguous ID {name!r}: {len(matches)} {kind} begin with it: {names}{more}")
    return matches[0]


def _kind(type_: type[D]) -> str:
    return next(kind for kind, row in DOCUMENT_KINDS.items() if row.type is type_)


def _load(path: Path, type_: type[D], name: str = "") -> D:
    """Load a document; its ID is the file's name, unless a user gave the path."""
    try:
        return _decode(path, type_) if is_document_path(name) else _read(path, type_)
    except (OSError, msgspec.MsgspecError) as error:
        problem = getattr(error, "strerror", None) or error
        raise BadInput(f"cannot read the {_kind(type_)} {path}: {problem}") from error


def _read(path: Path, type_: type[D]) -> D:
    """Read a document of the results folder; raises OSError, MsgspecError or DamagedLog."""
    document = _decode(path, type_)
    check_file_name(getattr(document, "id", None), path.stem)
    return document


def _decode(path: Path, type_: type[D]) -> D:
    """Read a document, or compute it from a log; raises OSError, MsgspecError or DamagedLog."""
    if path.suffix != SUFFIX:
        return decode(read_regular_file(path), type_)
    if type_ is not StudyDocument:
        raise BadInput(f"cannot read the {_kind(type_)} {path}: it is the log of a study")
    return report_of(read_log(path))  # type: ignore[return-value]


def _save_copy(document: Document) -> str:
    path = Path(tempfile.gettempdir()) / f"polybench-{document.id}.json"
    try:
        write_file_atomically(path, encode(document))
    except OSError:
        return ""
    return f"; saved a copy to {path}"


def _readable(paths: Iterable[Path], type_: type[D]) -> Iterator[D]:
    for path in paths:
        with contextlib.suppress(OSError, msgspec.MsgspecError, BadInput):
            yield _read(path, type_)


def _summarize(path: Path, kind: Kind) -> StudySummary:
    written = 0.0
    try:
        written = path.lstat().st_mtime
        return summarize_document(path.stem, read_regular_file(path), written, kind)
    except OSError as error:
        return StudySummary(file=path.stem, started_at=written, unreadable_reason=str(error), kind=kind)


def write_file_atomically(path: Path, content: bytes) -> None:
    """Replace the file; readers and crashes see the old content or the new one, never a part of it."""
    with atomic_write(path) as file:
        file.write(content)


def load_document(name: str, store: Store) -> AnyDocument:
    """Load a study, sweep, overhead or layers by their ID, prefix or `last`, or any document by its path.

    Raises:
        BadInput: no document or several documents match, or the document cannot be read.
    """
    if not is_document_path(name):
        for row in DOCUMENT_KINDS.values():
            if row.id_prefix and name.startswith(row.id_prefix):
                return store.load_kind(row.type, name)
        return store.load_kind(LayersDocument, name) if store.has_layers(name) else store.load(name)
    if name.endswith(SUFFIX):
        return store.load(name)
    try:
        return read_document(read_regular_file(Path(name)))
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise BadInput(f"cannot read {name}: {getattr(error, 'strerror', None) or error}") from error
