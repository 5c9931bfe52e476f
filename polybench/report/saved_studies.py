"""Saved studies: one JSON document each, written whole or not at all; the times of layers beside them."""

from __future__ import annotations

import contextlib
import os
import re
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TypeVar

import msgspec
import platformdirs

from polybench.core.document.layers import LayersDocument, layers_from_json
from polybench.core.document.study import StudyDocument, from_json, json_of, to_json
from polybench.core.errors import BadInput
from polybench.data.disk import drop_abandoned, regular_bytes, replacing
from polybench.report.listed import EVERYTHING, Filters, Listed
from polybench.report.study_index import StudyIndex

_ROOM_BYTES = 1 << 16
"""What a study's document takes at least, once there are samples in it."""

STUDY_ID = re.compile(r"\d{8}-\d{6}-")
"""How the ID of a study begins: its date and time."""

_MOST_NAMES = 5
"""In a sentence."""

_LAYERS = "layers"
"""The folder, beside the studies, of documents of layers."""

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

    def save(self, study: StudyDocument) -> Path:
        """Write or replace the study's document atomically."""
        path = self.folder / f"{study.id}.json"
        self.folder.mkdir(parents=True, exist_ok=True)  # somebody may have removed it since
        write_atomically(path, to_json(study))
        self.unsaved.pop(study.id, None)
        return path

    def save_layers(self, layers: LayersDocument) -> Path:
        """The same of a document of layers, which is found by `layers` only."""
        path = self.folder / _LAYERS / f"{layers.id}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, json_of(layers))
        self.unsaved.pop(layers.id, None)
        return path

    def try_to_save(self, document: StudyDocument | LayersDocument) -> str | None:
        """Save it, or return why not; if it is finished with the place of a copy, where there is room."""
        try:
            if isinstance(document, StudyDocument):
                self.save(document)
            else:
                self.save_layers(document)
        except OSError as error:
            growing = isinstance(document, StudyDocument) and document.finished is False
            copy = "" if growing else _copy_elsewhere(document)
            self.unsaved[document.id] = f"cannot save to {self.folder}: {error.strerror}{copy}"
        return self.unsaved.get(document.id)

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

    def load(self, name: str) -> StudyDocument:
        """The study with this ID, unique prefix of an ID, path of a document, or `last`, the one begun last.

        Raises:
            BadInput: none or several match, or the document cannot be read.
        """
        path = self._find(name)
        try:
            return from_json(regular_bytes(path))
        except (OSError, msgspec.MsgspecError) as error:
            raise BadInput(f"cannot read the study {path}: {error}") from error

    def _find(self, name: str) -> Path:
        # What somebody else put there may have any name, and be anything.
        if name == "last" and (listed := self.listed()):
            return self._path(([one for one in listed if _is_study(one)] or listed)[-1])
        paths = sorted(self.folder.glob("*.json"))
        if name.endswith(".json") and Path(name).is_file():
            return Path(name)
        matches = [path for path in paths if path.stem.startswith(name)]
        exact = [path for path in matches if path.stem == name]
        if len(exact or matches) == 1:
            return (exact or matches)[0]
        if matches:
            raise BadInput(
                f"{name!r} is the beginning of {len(matches)} studies: {_some(p.stem for p in matches)}"
            )
        if any(path.stem.startswith(name) for path in self.folder.glob(f"{_LAYERS}/*.json")):
            raise BadInput(
                f"{name!r} are times of layers, not a study; `polybench list` shows the studies, and"
                " `polybench explain` finds the layers that belong to one by itself"
            )
        raise BadInput(f"no study {name!r} in {self.folder}; `polybench list` shows what is there")


def _is_study(one: Listed) -> bool:
    return one.unreadable is None or STUDY_ID.match(one.file) is not None


def _copy_elsewhere(document: StudyDocument | LayersDocument) -> str:
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
