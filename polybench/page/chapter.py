"""One study of a page: documents in, texts out; what is made of them in HTML is in the templates."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from polybench.core.document.circumstances import Settings
from polybench.core.document.explanation import ExplanationDocument, Pair
from polybench.core.document.layers import LayersDocument
from polybench.core.document.study import StudyDocument
from polybench.export import layers_rows, published
from polybench.export.explanation import account_rows
from polybench.export.footnotes import footnotes
from polybench.export.heading import heading
from polybench.export.sentence import sentences
from polybench.page.circumstances import command_of, environment_of
from polybench.page.figures import Shown, figures_of
from polybench.page.overview import name_of
from polybench.page.proof import Proof, proofs_of
from polybench.page.table import Table, table_of

if TYPE_CHECKING:
    from polybench.plots import Drawable, Kind


class Chapter(NamedTuple):
    """A study, and what belongs to it.

    Attributes:
        scripts: the plain script of each cell that has one.
        layers: None where none were measured.
        explanation: None where there is nothing to compare.
    """

    study: StudyDocument
    scripts: Sequence[tuple[str, str]] = ()
    layers: LayersDocument | None = None
    explanation: ExplanationDocument | None = None


class PairView(NamedTuple):
    """An explanation of one difference: its sentences, and an account as a table."""

    pair: Pair
    header: list[str]
    rows: list[list[str]]


class StudyView(NamedTuple):
    """Everything that a chapter of the page says, as texts; `id` begins the names of its places."""

    id: str
    study: StudyDocument
    title: str
    headline: str
    heading: list[str]
    sentences: list[str]
    table: Table
    figures: list[Shown]
    notes: list[str]
    proofs: list[Proof]
    pairs: list[PairView]
    explanation: ExplanationDocument | None
    layers: layers_rows.Table | None
    layers_figures: list[Shown]
    scripts: Sequence[tuple[str, str]]
    published_header: list[str]
    published: list[list[str]]
    sources: list[str]
    command: str
    versions: list[tuple[str, list[tuple[str, str]]]]
    environment: list[tuple[str, str]]
    template: str = "study.html.j2"

    @property
    def drawn(self) -> list[Shown]:
        """All figures, wherever in the chapter they are."""
        return [*self.figures, *self.layers_figures]


def view_of(chapter: Chapter, number: int) -> StudyView:
    """The chapter of this number."""
    study, place = chapter.study, f"s{number}"
    said = sentences(study)
    first = headline(study)
    table = table_of(study)
    explanation = chapter.explanation
    documents: dict[Kind, Drawable] = {"study": study}
    if chapter.layers:
        documents["layers"] = chapter.layers
    figures = list(figures_of(documents, place))
    here = published.of_study(study.results)
    return StudyView(
        id=place,
        study=study,
        title=name_of(study),
        headline=first,
        heading=heading(study),
        sentences=[sentence for sentence in said if sentence != first],
        table=table,
        figures=[figure for figure in figures if figure.of == "study"],
        notes=footnotes(study, [column.name for column in table.columns]),
        proofs=proofs_of(study),
        pairs=[_pair(pair) for pair in explanation.pairs] if explanation else [],
        explanation=explanation,
        layers=layers_rows.build(chapter.layers) if chapter.layers else None,
        layers_figures=[figure for figure in figures if figure.of == "layers"],
        scripts=chapter.scripts,
        published_header=published.header(study.published, here),
        published=published.rows(study.published, here),
        sources=published.notes(study.published, here),
        command=command_of(study.argv),
        versions=[
            (result.cell, [(name, _plain(value)) for name, value in result.versions.items()])
            for result in study.results
            if result.versions
        ],
        environment=[*environment_of(study.host, study.polybench), *_hashes(study.settings)],
    )


def headline(study: StudyDocument) -> str:
    """The sentence about the fastest cell but the baseline; where nothing is compared, what there is."""
    others = [
        result
        for result in study.results
        if result.ranked and result.relative and result.relative.baseline != result.cell
    ]
    fastest = max(
        others, key=lambda result: result.relative.speedup if result.relative else 0.0, default=None
    )
    if fastest is not None and fastest.relative is not None:
        both = {fastest.cell, fastest.relative.baseline}
        alone = msgspec.structs.replace(study, results=[one for one in study.results if one.cell in both])
        if said := sentences(alone):
            return said[0]
    measured = [result.cell for result in study.results if result.measured]
    return f"Measured: {', '.join(measured)}." if measured else "Nothing was measured."


def _pair(pair: Pair) -> PairView:
    account = pair.account("layers") or pair.account("batch size")
    header, rows = account_rows(pair, account) if account else ([], [])
    return PairView(pair, header, rows)


def _plain(value: Any) -> str:
    """A version, or a table of names and values in a line."""
    if isinstance(value, dict):
        return ", ".join(f"{name} {_plain(one)}" for name, one in value.items())
    return str(value)


def _hashes(settings: Settings) -> list[tuple[str, str]]:
    return [
        (f"{settings.unit}s, SHA-256", settings.data_sha256),
        ("weights, SHA-256", settings.weights_sha256),
        ("batches, SHA-256", settings.batches_sha256),
    ]
