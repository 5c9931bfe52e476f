"""Finds and reads the logs of a results folder."""

from __future__ import annotations

import contextlib
import gc
import os
import re
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, get_args

import msgspec
import platformdirs

from polybench.data.disk import atomic_write, is_file, read_regular_file, remove_stale
from polybench.errors import BadInput
from polybench.log import SUFFIX, AnyEvent, Header, encode_line, header_of, read_log, read_outline, split_points
from polybench.results.allocation_sites import derive_allocations
from polybench.results.document import report_of
from polybench.results.layers import derive_layers
from polybench.results.peak import derive_peak
from polybench.results.summaries import StudySummary
from polybench.results.sweep import derive_sweep
from polybench.schema.documents import (
    DOCUMENT_KINDS,
    AnyDocument,
    kind_of,
    kind_of_id,
    newest_name,
    point_id,
    read_document,
    split_point_id,
    start_of_id,
)
from polybench.schema.encoding import find_schema
from polybench.schema.measurements import LayersDocument
from polybench.schema.options import Id, SweepCommand
from polybench.schema.study import SCHEMA, StudyDocument
from polybench.storage.filters import NO_FILTERS, Filters
from polybench.storage.log_summary import check_file_name, summarize_file, summarize_points

_SWEEPS = get_args(SweepCommand)

_PROBE_BYTES = 1 << 16
"""Bytes that a test of the folder writes: about the smallest document of a study with step times."""

STUDY_ID = re.compile(r"\d{8}-\d{6}-")
"""Start of a study's ID: date and time."""

_DERIVE: dict[str, Callable[..., AnyDocument]] = {
    "sweep": derive_sweep,
    "overhead": derive_sweep,
    "layers": derive_layers,
    "peak": derive_peak,
    "allocations": derive_allocations,
}
"""Functions of a log that compute its document, by the command of its header; a study has none."""

_MAX_NAMES = 5
"""Number of names that an error message lists."""


def results_folder(given: Path | None = None) -> Path:
    """Return `--results`, else `POLYBENCH_RESULTS`, else a folder in the user's data folder."""
    if given is not None:
        return given
    if override := os.environ.get("POLYBENCH_RESULTS"):
        return Path(override)
    return Path(platformdirs.user_data_dir("polybench")) / "results"


class Store:
    """Folder of logs.

    Attributes:
        failed_saves: reason by ID for each log whose last save failed.
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
        return sorted(self.folder.glob(f"*{SUFFIX}"), key=lambda path: start_of_id(path.stem))

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

    def save_log(self, id: str, log: bytes) -> Path:
        """Write the log of a study that was not saved, unless the folder has it, and return its path."""
        path = self.log_path(id)
        if not path.exists():
            self.ensure_writable()
            write_file_atomically(path, log)
        return path

    def summaries(self) -> list[StudySummary]:
        """Return summaries of all saved studies and points of sweeps, readable or not, the oldest first.

        Raises:
            BadInput: the folder cannot be read.
        """
        with without_collections():
            found = [_summarize(path) for path in self._study_paths()]
            found += [point for path in self._paths(*_SWEEPS) for point in summarize_points(path)]
        return sorted((one for one in found if one is not None), key=lambda study: (study.started_at, study.file))

    def studies(self, filters: Filters = NO_FILTERS) -> Iterator[StudyDocument]:
        """Yield the matching readable studies one at a time, the newest first."""
        for study in reversed(self.summaries()):
            if filters.matches(study):
                with contextlib.suppress(BadInput):
                    yield self.read(study)

    def _study_paths(self) -> list[Path]:
        """Return the path of each study, readable or not, and of documents of the form that precedes logs."""
        names = self._names()
        logged = {f"{name.removesuffix(SUFFIX)}.json" for name in names if name.endswith(SUFFIX)}
        return [
            self.folder / name
            for name in names
            if _is_log(name, "study") or (name.endswith(".json") and STUDY_ID.match(name) and name not in logged)
        ]

    def _paths(self, *kinds: str) -> list[Path]:
        """Return the path of each log of these kinds, readable or not, the oldest first."""
        return [self.folder / name for name in self._names() if _is_log(name, *kinds)]

    def _names(self) -> list[str]:
        """Return the names of all files in the folder."""
        try:
            with os.scandir(self.folder) as entries:
                return sorted(entry.name for entry in entries if not entry.name.startswith("."))
        except FileNotFoundError:
            return []
        except OSError as error:
            raise BadInput(f"cannot read the results folder {self.folder}: {error.strerror}") from error

    def others(self, kind: str, filters: Filters = NO_FILTERS) -> Iterator[Any]:
        """Yield the matching readable documents of a kind other than studies one at a time, the newest first."""
        for summary in reversed(self.other_summaries(kind)):
            if filters.matches(summary):
                with contextlib.suppress(BadInput):
                    yield self.read(summary)

    def other_summaries(self, *kinds: str) -> list[StudySummary]:
        """Return summaries of all logs of these kinds, by default of all but studies, readable or not."""
        return [summarize_file(path, kind_of_id(path.stem)) for path in self._paths(*(kinds or _DERIVE))]

    def read(self, summary: StudySummary) -> Any:
        """Load the document of a summary.

        Raises:
            BadInput: it cannot be read.
        """
        if summary.kind == "study":
            return _load_log(self._locate(summary.file))
        return self.load_other(summary.file, summary.kind)

    def load(self, name: str, **arguments: Any) -> StudyDocument:
        """Compute the report of the study with this ID, unique prefix of an ID, path of its log, or `last`.

        The ID of a sweep's point is `SWEEP.N`. `last` is the study started last. `arguments` are those of `derive`:
        baseline, tolerance and prices in place of the study's, repetitions, and `salvage`, with which a damaged log
        counts up to its first damaged line.

        Raises:
            BadInput: no study or several studies match, or its log cannot be read.
        """
        return _load_log(self.find(name), name, **arguments)

    def log_of(self, name: str, kind: str = "study") -> bytes:
        """Return the lines of a log; a name is that of `load` or `load_other`."""
        if kind != "study":
            return read_regular_file(_find_by_prefix(self._paths(kind), name, kind))
        location = self.find(name)
        if location.point is None:
            return read_regular_file(location.path)
        return b"".join(map(encode_line, location.events()))

    def find(self, name: str) -> Location:
        """Return where the log of a study is; a name is that of `load`, and so is the error."""
        # The folder may contain other logs, with any name.
        if name == "last" and (summaries := self.summaries()):
            studies = [one for one in summaries if one.unreadable_reason is None or STUDY_ID.match(one.file)]
            name = (studies or summaries)[-1].file
        if is_document_path(name):
            return Location(Path(name))
        if (found := split_point_id(name)) and (matches := _matching(self._paths(*_SWEEPS), found[0])):
            return Location(_only(matches, found[0], "sweeps"), found[1])
        if matches := _matching(self._study_paths(), name):
            return Location(_only(matches, name, "studies"))
        if (kind := kind_of_id(name)) != "study":
            raise BadInput(_not_a_study(name, kind))
        raise BadInput(f"no study {name!r} in {self.folder}; `polybench list` shows the saved studies")

    def _locate(self, id: str) -> Location:
        """Return where the log of the study with exactly this ID is."""
        sweep, point = split_point_id(id) or (id, None)
        return Location(self.log_path(sweep), point)

    def load_other(
        self, name: str, kind: str, *, salvage: bool = False, prices: Mapping[str, float] | None = None
    ) -> Any:
        """Compute the document of a kind other than studies by its ID, a unique prefix, the log's path, or `KIND-last`.

        Only sweeps have `prices`.

        Raises:
            BadInput: none or several match, or its log cannot be read.
        """
        path = _find_by_prefix(self._paths(kind), name, kind)
        with _naming(path, kind):
            events = read_log(path, salvage=salvage)
            if (command := header_of(events).command) != kind:
                raise BadInput(f"cannot read the {kind} {path}: it is the log of {_described(command)}")
            arguments = {"prices": prices} if kind in _SWEEPS else {}
            document: Any = _DERIVE[kind](events, salvage=salvage, **arguments)
            if not is_document_path(name):
                check_file_name(document.id, path.stem)
        return document

    def find_sweep(self, name: str) -> Header | None:
        """Return the header of the sweep or overhead with this name, one of `load_other`; None if it names neither."""
        kind = _kind_of_log(Path(name)) if is_document_path(name) else kind_of_id(name)
        if kind not in _SWEEPS:
            return None
        path = _find_by_prefix(self._paths(kind), name, kind)
        with _naming(path, kind):
            return read_outline(path).header


class Location(NamedTuple):
    """The place of a study's log: a file of its own, or a point in that of a sweep."""

    path: Path
    point: int | None = None

    @property
    def id(self) -> str:
        """The ID of the study by the file's name."""
        return self.path.stem if self.point is None else point_id(self.path.stem, self.point)

    def events(self, *, salvage: bool = False) -> list[AnyEvent]:
        """Read the log; raises OSError or BadInput if this fails."""
        events = read_log(self.path, salvage=salvage)
        if self.point is None:
            return events
        points = split_points(events, salvage=salvage)
        if self.point not in points:
            started = ", ".join(map(str, points)) or "none"
            raise BadInput(f"no point {self.point} in {self.path}: the points that have started are {started}")
        return [msgspec.structs.replace(event, point=msgspec.UNSET) for event in points[self.point]]


def _described(kind: str | None) -> str:
    return DOCUMENT_KINDS[kind or "study"].description


def _not_a_study(name: str, kind: str) -> str:
    uses = "show, report or plot" if kind == "sweep" else "show or plot"
    return f"{name!r} is {_described(kind)}, not a study; use polybench {uses}"


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
    return _only(matches, name, kind if kind == "layers" else f"{kind}s")


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


def _load_log(location: Location, name: str = "", **arguments: Any) -> StudyDocument:
    """Compute the report of a log; the study's ID is the file's name, unless a user gave the path."""
    if location.path.suffix != SUFFIX:
        raise BadInput(_refusal(location.path))
    with _naming(location.path, "study"):
        events = location.events(salvage=arguments.get("salvage", False))
        if (command := header_of(events).command) is not None:
            raise BadInput(_not_a_study(str(location.path), command))
        document = report_of(events, **arguments)
        if not is_document_path(name):
            check_file_name(document.id, location.id)
    return document


@contextlib.contextmanager
def _naming(path: Path, kind: str) -> Iterator[None]:
    """Raise BadInput with the path for a file that cannot be read."""
    try:
        yield
    except (OSError, msgspec.MsgspecError) as error:
        raise BadInput(f"cannot read the {kind} {path}: {getattr(error, 'strerror', None) or error}") from error


def _refusal(path: Path) -> str:
    """Return why a file that is not a log is not a study."""
    try:
        schema = find_schema(read_regular_file(path))
    except (OSError, msgspec.MsgspecError) as error:
        return f"cannot read the study {path}: {getattr(error, 'strerror', None) or error}"
    if schema == SCHEMA and not STUDY_ID.match(path.name):
        return f"{path} is a report: give the ID of its study, or the path of its log, ID{SUFFIX}"
    if kind_of(schema) in ("study", "layers"):
        return f"{path} was written by an unreleased version; measure again"
    return f"cannot read the study {path}: its schema is {schema!r}: expected a log, ID{SUFFIX}"


@contextlib.contextmanager
def without_collections() -> Iterator[None]:
    """Turn the garbage collector off: summaries have no cycles, and with thousands it takes a third of the time."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _summarize(path: Path) -> StudySummary | None:
    """Summarize a study; None if it disappears in the meantime."""
    if path.suffix != SUFFIX:
        return StudySummary(file=path.stem, unreadable_reason="an unreleased version wrote it; measure again")
    summary = summarize_file(path)
    return None if summary.unreadable_reason is not None and not os.path.lexists(path) else summary


def write_file_atomically(path: Path, content: bytes) -> None:
    """Replace the file; readers and crashes see the old content or the new one, never a part of it."""
    with atomic_write(path) as file:
        file.write(content)


def load_document(
    name: str,
    store: Store,
    *,
    salvage: bool = False,
    prices: Mapping[str, float] | None = None,
    with_repetitions: bool = False,
) -> AnyDocument:
    """Compute a document from the log of this ID, prefix, path or `last`, or read a printed one by its path.

    With `with_repetitions`, that of a study has those among the saved studies.

    Raises:
        BadInput: no document or several documents match, or the document cannot be read.
    """
    if not is_document_path(name) or name.endswith(SUFFIX):
        kind = _kind_of_log(Path(name)) if is_document_path(name) else kind_of_id(name)
        if kind != "study":
            document: AnyDocument = store.load_other(name, kind, salvage=salvage, prices=prices)
            return document
        repetitions = store.summaries() if with_repetitions else ()
        return store.load(name, salvage=salvage, prices=prices, repetitions=repetitions)
    try:
        document = read_document(read_regular_file(Path(name)))
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise BadInput(f"cannot read {name}: {getattr(error, 'strerror', None) or error}") from error
    is_old = isinstance(document, LayersDocument) and kind_of_id(document.id) != "layers"
    if is_old or isinstance(document, StudyDocument):
        raise BadInput(_refusal(Path(name)))
    if prices:
        raise BadInput(f"--price: the costs of {name} need its log: give its ID, or the path of its log, ID{SUFFIX}")
    return document


def _kind_of_log(path: Path) -> str:
    """Return the kind of a log, whatever its name is; that of a study if it cannot be read."""
    with contextlib.suppress(BadInput, OSError):
        return read_outline(path).header.command or "study"
    return "study"


def _is_log(name: str, *kinds: str) -> bool:
    """Return True if this is the name of the log of one of these kinds."""
    return name.endswith(SUFFIX) and kind_of_id(name.removesuffix(SUFFIX)) in kinds
