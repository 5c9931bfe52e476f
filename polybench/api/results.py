"""Results of measurements and comparisons, for Python."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar

import msgspec

from polybench.analysis.explanation import SavedDocuments
from polybench.analysis.prices import check_prices
from polybench.analysis.related_documents import load_saved_documents, related_documents
from polybench.errors import BadInput, install_command, lookup_or_suggest
from polybench.figures import FIGURES, draw, image_export
from polybench.figures.image_export import caption_for
from polybench.html_report import Section, StudySection, render_report
from polybench.log import decode_lines
from polybench.render import explanation, render
from polybench.render.layers import layer_records
from polybench.render.table import Sort
from polybench.results.document import report_of
from polybench.results.repetitions import spread_between_days
from polybench.results.sweep import derive_sweep
from polybench.schema.analyses import DiffDocument, ExplanationDocument, HistoryDocument, MergeDocument
from polybench.schema.documents import AnyDocument
from polybench.schema.measurements import LayersDocument, OverheadDocument, PeakDocument, SweepDocument
from polybench.schema.metrics import select_metrics
from polybench.schema.study import StudyDocument
from polybench.storage.store import Store, load_document, results_folder

D = TypeVar("D", bound=msgspec.Struct)


class DocumentResult(Generic[D]):
    """A document with its texts and rows. `document` is the whole record, as with `--format json`.

    A notebook shows the Markdown table.
    """

    _text: ClassVar[Callable[..., str]] = staticmethod(render)
    """Renders the document in a format."""
    _index: ClassVar[list[str] | None] = None
    """Index of the DataFrame."""

    def __init__(self, document: D) -> None:
        self.document = document

    def rows(self) -> list[dict[str, Any]]:
        """Return a dictionary per row, in SI units."""
        raise NotImplementedError

    def to_pandas(self) -> Any:
        """Return the rows as a pandas DataFrame; requires pandas (extra `pandas`)."""
        return to_data_frame(self.rows(), self._index)

    def to_json(self) -> str:
        """Return the document."""
        return self._text(self.document, "json")

    def to_markdown(self) -> str:
        """Return the table."""
        return self._text(self.document, "markdown")

    def __str__(self) -> str:
        return self._text(self.document, "table")

    def _repr_markdown_(self) -> str:
        return self.to_markdown()


S = TypeVar("S", StudyDocument, OverheadDocument, SweepDocument, LayersDocument)


class LoggedResult(DocumentResult[S], Generic[S]):
    """What was measured: its `log`, and the report that is computed from it, `document`."""

    def __init__(self, document: S, log: bytes) -> None:
        self.document, self.log = document, log

    def save(self, results: Path | None = None) -> Path:
        """Write the log to the results folder, where `polybench list`, `show` and `report` find it."""
        return Store(results_folder(results)).save_log(str(self.document.id), self.log)


def to_data_frame(rows: list[dict[str, Any]], index: list[str] | None = None) -> Any:
    """Return a pandas DataFrame; raises BadInput without pandas."""
    try:
        frame = import_module("pandas").DataFrame(rows)
    except ImportError as error:
        raise BadInput(f"pandas is not installed; {install_command('pandas')}, or use rows()") from error
    return frame if index is None else frame.set_index(index[0] if len(index) == 1 else index)


def _plot(name: str, document: Any) -> Any:
    """Return a plotly Figure; requires plotly (extra `plot`)."""
    return image_export.to_plotly(draw(name, document), caption_for(document))


_CONFIGURATION_FIELDS = ("configuration", "engine", "variant", "environment", "device", "status")


class StudyResult(LoggedResult[StudyDocument]):
    """A finished study. `document` is its report, which `log` contains."""

    def rows(self, columns: Sequence[str] = ("all",)) -> list[dict[str, Any]]:
        """Return a dictionary per configuration: its names, its status, and the columns' values in SI units.

        A column with an interval, such as `speedup`, adds `speedup_low` and `speedup_high`, which may be
        None. A comparison adds `speedup_inconclusive`.
        """
        metrics = select_metrics(columns)
        return [
            {name: getattr(result, name) for name in _CONFIGURATION_FIELDS}
            | {name: value for metric in metrics for name, value in metric.fields(result).items()}
            for result in self.document.results
        ]

    def render(self, format: str, columns: Sequence[str] | None = None) -> str:
        """Return the output of `--format FORMAT`; raises BadInput for an unknown format."""
        return render(self.document, format, columns=None if columns is None else select_metrics(columns))

    def to_csv(self, columns: Sequence[str] | None = None) -> str:
        """Return CSV as on the command line, with every column by default."""
        return self.render("csv", columns)

    def to_markdown(self, columns: Sequence[str] | None = None) -> str:
        """Return a table with these columns, or with the important ones that fit."""
        return self.render("markdown", columns)

    def to_pandas(self, columns: Sequence[str] = ("all",)) -> Any:
        """Return the rows as a pandas DataFrame indexed by configuration; requires pandas."""
        return to_data_frame(self.rows(columns), ["configuration"])

    def to_html(self, results: Path | None = None) -> str:
        """Return the page of `polybench report`, a self-contained HTML file; requires the extra `report`.

        It includes layers and an explanation if `results`, the folder of saved studies, has the documents for
        them.
        """
        saved = load_saved_documents(self.document, Store(results_folder(results)))
        return render_report([study_section(self.document, saved)])

    def plot(self, name: str = "speed") -> Any:
        """Return a plotly Figure by its name in `polybench.figures.FIGURES`; requires plotly (extra `plot`).

        Raises:
            BadInput: the name is not a figure of a study, or its data was not measured.
        """
        study_figures = {one: one for one, row in FIGURES.rows().items() if row.kind == "study"}
        return _plot(lookup_or_suggest(name, study_figures, "figure"), self.document)

    def __repr__(self) -> str:
        return f"<StudyResult {self.document.id}: {', '.join(r.configuration for r in self.document.results)}>"


class ParityResult(DocumentResult[StudyDocument]):
    """The result of a parity check. `document` is a study without times."""

    def rows(self) -> list[dict[str, Any]]:
        """Return a dictionary per comparison of a loss, gradient or weight; unchecked configurations are left
        out."""
        return [
            {"configuration": result.configuration, "status": result.parity.status, **msgspec.to_builtins(tensor)}
            for result in self.document.results
            for tensor in result.parity.tensors
        ]

    @staticmethod
    def _text(document: StudyDocument, format: str) -> str:
        if format == "markdown":
            return f"```\n{render(document, kind='parity')}```"
        return render(document, format, kind="parity")


class SweepResult(LoggedResult[SweepDocument]):
    """A finished sweep, with its points in one log."""

    def rows(self) -> list[dict[str, Any]]:
        """Return a dictionary for each configuration at each point, in SI units."""
        return [
            {**point.parameters, **msgspec.to_builtins(configuration), "oversubscribed": point.oversubscribed}
            for point in self.document.points
            for configuration in point.configurations
        ]

    def to_html(self) -> str:
        """Return the page of `polybench report`, a self-contained HTML file; requires the extra `report`."""
        return render_report([self.document])

    def plot(self) -> Any:
        """Return a plotly Figure of throughput over the swept axes; requires plotly (extra `plot`)."""
        return _plot("scaling", self.document)


class OverheadResult(LoggedResult[OverheadDocument]):
    """Overheads of training steps, with the batch sizes in one log."""

    def rows(self) -> list[dict[str, Any]]:
        """Return a dictionary per configuration, in SI units."""
        return [
            {name: value for name, value in msgspec.to_builtins(engine).items() if name != "points"}
            for engine in self.document.configurations
        ]

    def plot(self) -> Any:
        """Return a plotly Figure of step time over batch size, with the fitted line."""
        return _plot("overhead", self.document)


class PeakResult(DocumentResult[PeakDocument]):
    """The peak throughput of a machine."""

    def rows(self) -> list[dict[str, Any]]:
        """Return a dictionary per peak, in SI units."""
        return [msgspec.to_builtins(peak) for peak in self.document.peaks]

    def plot(self) -> Any:
        """Return a plotly Figure of the peaks and of each layer's attainable speed."""
        return _plot("peak", self.document)


class LayersResult(LoggedResult[LayersDocument]):
    """Times of layers."""

    _index = ["configuration", "layer", "operation"]  # noqa: RUF012 - declared as a ClassVar above

    def rows(self) -> list[dict[str, Any]]:
        """Return a dictionary for each operation of each layer in each configuration, in SI units."""
        return layer_records(self.document)

    def to_markdown(self, sort: Sort = "network") -> str:
        """Return the table, with configurations side by side."""
        return render(self.document, "markdown", sort=sort)

    def plot(self) -> Any:
        """Return a plotly Figure with a bar for each layer and configuration, with its operations stacked."""
        return _plot("layers", self.document)

    def roofline(self) -> Any:
        """Return a plotly Figure of the layers and the machine's measured peaks.

        Without cached peaks of these engines on this machine, the error says how to measure them.
        """
        return _plot("roofline", self.document)


class DiffResult(DocumentResult[DiffDocument]):
    """A comparison of two studies."""

    _index = ["configuration"]  # noqa: RUF012

    def rows(self) -> list[dict[str, Any]]:
        """Return a dictionary per configuration: verdict, ratio with its interval, and changes."""
        return [msgspec.to_builtins(row) for row in self.document.rows]


class MergeResult(DocumentResult[MergeDocument]):
    """A workload on several machines."""

    def rows(self) -> list[dict[str, Any]]:
        """Return a dictionary for each configuration on each machine, in SI units."""
        return [msgspec.to_builtins(result) for result in self.document.results]


class HistoryResult(DocumentResult[HistoryDocument]):
    """Configurations over time."""

    def rows(self) -> list[dict[str, Any]]:
        """Return a dictionary for each study of each series, with the fields of both, in SI units."""
        lists = ("points", "change_points")
        return [
            {name: value for name, value in msgspec.to_builtins(series).items() if name not in lists}
            | msgspec.to_builtins(point)
            for series in self.document.series
            for point in series.points
        ]

    def change_points(self) -> list[dict[str, Any]]:
        """Return a dictionary for each change point: its study, ratio, and changes."""
        return [
            {"configuration": series.configuration, **msgspec.to_builtins(step)}
            for series in self.document.series
            for step in series.change_points
        ]

    def plot(self) -> Any:
        """Return a plotly Figure of step times over time, with their levels."""
        return _plot("history", self.document)

    def to_markdown(self) -> str:
        """Return the table as preformatted text."""
        return f"```\n{self}```"


class ExplanationResult(DocumentResult[ExplanationDocument]):
    """Reasons for the differences in a study; JSON has all components of its breakdowns."""

    _text = staticmethod(explanation.render)

    def rows(self) -> list[dict[str, Any]]:
        """Return a dictionary per statement."""
        return [msgspec.to_builtins(statement) for statement in self.document.all_statements()]


def load_sections(
    parts: Sequence[str | StudyResult | SweepResult], store: Store, prices: Mapping[str, float] | None = None
) -> list[Section]:
    """Load studies with all related saved documents, sweeps and overheads, with costs at these prices.

    Raises:
        BadInput: a document is of another kind or cannot be read, or a price applies to none of them.
    """
    documents = [_document(part, store, prices) for part in parts]
    for part, document in zip(parts, documents, strict=True):
        if not isinstance(document, StudyDocument | SweepDocument | OverheadDocument):
            raise BadInput(
                f"{part} is not a study, sweep or overhead; the report of a study includes its layers and peaks"
            )
    check_prices(prices or (), documents)
    return [
        study_section(one, load_saved_documents(one, store)) if isinstance(one, StudyDocument) else one  # type: ignore[misc]  # checked above
        for one in documents
    ]


def _document(part: str | StudyResult | SweepResult, store: Store, prices: Mapping[str, float] | None) -> AnyDocument:
    if isinstance(part, str):
        return load_document(part, store, prices=prices)
    if not prices:
        return part.document
    events = list(decode_lines(io.BytesIO(part.log), part.document.id or ""))
    return derive_sweep(events, prices=prices) if isinstance(part, SweepResult) else report_of(events, prices=prices)


def study_section(study: StudyDocument, saved: SavedDocuments) -> StudySection:
    """Return the section of a study, with its programs, layers, explanation and repetitions as far as available."""
    repeated = msgspec.structs.replace(study, repetitions=spread_between_days(study, saved.summaries))
    return StudySection(repeated, *related_documents(repeated, saved))
