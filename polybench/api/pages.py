"""The pages of `polybench report --all`: each saved document's report, differences of neighbours, history and list."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import msgspec

from polybench.analysis.diff import TOLERANCE, diff
from polybench.analysis.history import build_history
from polybench.analysis.related_documents import load_saved_documents
from polybench.api.results import study_section
from polybench.errors import BadInput
from polybench.html_report import render_report
from polybench.html_report.pages import HISTORY, LIST, diff_page, diff_path, history_page, list_page, report_path
from polybench.results.summaries import StudySummary
from polybench.schema.analyses import DiffDocument
from polybench.storage.store import Store


class Page(NamedTuple):
    """HTML, and the path of its file in the folder."""

    path: str
    text: str


class Pages:
    """The pages of a results folder. Iteration reads the documents one after the other, and yields the list last.

    Raises BadInput if the folder has no documents, and in iteration if jinja2 or plotly is not installed.
    """

    def __init__(self, store: Store, warn: Callable[[str], None]) -> None:
        """`warn` is called with a sentence for each document that cannot be read."""
        self._store, self._warn = store, warn
        found = sorted(
            (*store.summaries(), *store.other_summaries("sweep", "overhead")),
            key=lambda one: (one.started_at, one.file),
        )
        if not found:
            raise BadInput(f"no saved studies in {store.folder}: create one with polybench compare")
        self._saved = {one.file: one for one in found}
        self._diffs: dict[str, DiffDocument] = {}
        """Difference to its neighbour before, by study."""

    def __iter__(self) -> Iterator[Page]:
        for study in self._saved.values():
            if study.unreadable_reason is not None:
                self._warn(f"cannot read {study.file}: {study.unreadable_reason}")
        yield from self._study_reports()
        yield from self._sweep_reports()
        yield from self._differences()
        studies = (study for one in reversed(self._readable("study")) if (study := self._read(one)) is not None)
        yield Page(HISTORY, history_page(build_history(studies)))
        yield Page(LIST, self._list())

    def _readable(self, *kinds: str) -> list[StudySummary]:
        """Return the documents of these kinds, the oldest first."""
        return [one for one in self._saved.values() if one.unreadable_reason is None and one.kind in kinds]

    def _read(self, study: StudySummary) -> Any:
        """Return the document; None, after a warning, if it is damaged where its summary does not show it."""
        try:
            return self._store.read(study)
        except BadInput as error:
            self._warn(str(error))
            reason = str(error.__cause__ or error)
            self._saved[study.file] = msgspec.structs.replace(study, unreadable_reason=reason)
            return None

    def _study_reports(self) -> Iterator[Page]:
        """Yield the reports of studies; those of a network on a machine share the documents that explain them."""

        def related(study: StudySummary) -> tuple[str, str]:
            return study.model, study.hostname

        for _, group in itertools.groupby(sorted(self._readable("study"), key=related), related):
            saved = None
            for summary in group:
                if (study := self._read(summary)) is not None:
                    saved = saved or load_saved_documents(study, self._store)
                    yield Page(report_path(summary.file), render_report([study_section(study, saved)], reports=()))

    def _sweep_reports(self) -> Iterator[Page]:
        """Yield the reports of sweeps and overheads, with links to those of their points."""
        reports = [one.file for one in self._readable("study")]
        for summary in self._readable("sweep", "overhead"):
            if (document := self._read(summary)) is not None:
                yield Page(report_path(summary.file), render_report([document], reports=reports))

    def _differences(self) -> Iterator[Page]:
        """Compare each study with the one before it of the same workload on the same machine."""
        summaries = self._store.summaries()
        before: dict[tuple[Any, ...], StudySummary] = {}
        for study in self._readable("study"):
            if study.sweep is not None:
                continue
            workload = study.model, study.pass_, study.dataset, study.batch_size, study.hostname
            neighbour, before[workload] = before.get(workload), study
            if neighbour is None:
                continue
            a, b = self._read(neighbour), self._read(study)
            if a is not None and b is not None:
                self._diffs[study.file] = document = diff(a, b, TOLERANCE, saved=summaries)
                yield Page(diff_path(neighbour.file, study.file), diff_page(document))

    def _list(self) -> str:
        """Render the list, the newest first, without the points of sweeps."""
        points: dict[str, list[StudySummary]] = {}
        for study in self._saved.values():
            if study.sweep is not None:
                points.setdefault(study.sweep, []).append(study)
        listed = [one for one in self._saved.values() if one.sweep is None]
        return list_page(listed[::-1], points, self._diffs)
