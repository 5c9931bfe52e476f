"""Results of measurements and comparisons, for Python."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import msgspec

from polybench.analysis.related_documents import related_documents
from polybench.errors import BadInput, PolybenchError, install_command, lookup_or_suggest
from polybench.figures import FIGURES, draw, image_export
from polybench.figures.image_export import caption_for
from polybench.html_report import Section, StudySection, render_report
from polybench.render import PARITY_FORMATS, render_study
from polybench.render import diff as diff_text
from polybench.render import explanation as explanation_text
from polybench.render import history as history_text
from polybench.render import layers as layers_text
from polybench.render import merge as merge_text
from polybench.render import overhead as overhead_text
from polybench.render import peak as peak_text
from polybench.render import sweep as sweep_text
from polybench.render.layer_table import Sort
from polybench.schema.analyses import DiffDocument, ExplanationDocument, HistoryDocument, MergeDocument
from polybench.schema.encoding import encode
from polybench.schema.measurements import LayersDocument, OverheadDocument, PeakDocument, SweepDocument
from polybench.schema.metrics import Metric, select_metrics
from polybench.schema.result import Result
from polybench.schema.study import StudyDocument, to_json
from polybench.storage.document_loader import load_document
from polybench.storage.store import Store, results_folder


class DataFrameMixin:
    """Conversions for results that have rows."""

    def rows(self) -> list[dict[str, Any]]:
        """Return a dictionary per row."""
        raise NotImplementedError

    def to_pandas(self) -> Any:
        """Return the rows as a pandas DataFrame; requires pandas (extra `pandas`)."""
        return to_data_frame(self.rows())

    def to_parquet(self, path: str | Path) -> Path:
        """Write the rows to a Parquet file; requires pyarrow (extra `parquet`)."""
        return write_parquet(self.rows(), path)


def to_data_frame(rows: list[dict[str, Any]]) -> Any:
    """Return a pandas DataFrame; raises BadInput without pandas."""
    try:
        return import_module("pandas").DataFrame(rows)
    except ImportError as error:
        raise BadInput(f"pandas is not installed; {install_command('pandas')}, or use rows()") from error


def write_parquet(rows: list[dict[str, Any]], path: str | Path) -> Path:
    """Write a column for each name of the rows, with its type; nested values become JSON text.

    Raises:
        BadInput: pyarrow is not installed.
        PolybenchError: the file cannot be written.
    """
    try:
        arrow, parquet = import_module("pyarrow"), import_module("pyarrow.parquet")
    except ImportError as error:
        raise BadInput(f"pyarrow is not installed; {install_command('parquet')}") from error
    names = list(dict.fromkeys(name for row in rows for name in row))
    table = arrow.table({name: [_scalar(row.get(name)) for row in rows] for name in names})
    try:
        parquet.write_table(table, path)
    except OSError as error:
        raise PolybenchError(f"cannot write {path}: {error.strerror or error}") from error
    return Path(path)


def _scalar(value: Any) -> Any:
    """Return a scalar, or JSON text of a nested value: its structure may vary by row, which a column
    cannot."""
    return value if value is None or isinstance(value, str | int | float) else msgspec.json.encode(value).decode()


_CONFIGURATION_FIELDS = ("configuration", "engine", "variant", "environment", "device", "status")


class StudyResult:
    """A finished study. `document` is the saved document."""

    def __init__(self, document: StudyDocument) -> None:
        self.document = document

    def rows(self, columns: Sequence[str] = ("all",)) -> list[dict[str, float | str | None]]:
        """Return a dictionary per configuration: its names, its status, and the columns' values in SI units.

        A column with an interval, such as `speedup`, adds `speedup_low` and `speedup_high`, which may be
        None.
        """
        metrics = select_metrics(columns)
        return [
            {name: getattr(result, name) for name in _CONFIGURATION_FIELDS}
            | {name: value for metric in metrics for name, value in _values(metric, result)}
            for result in self.document.results
        ]

    def to_csv(self, columns: Sequence[str] | None = None) -> str:
        """Return CSV as on the command line, with every column by default."""
        return self.render("csv", columns)

    def to_json(self) -> str:
        """Return the saved document."""
        return to_json(self.document).decode()

    def to_markdown(self, columns: Sequence[str] | None = None) -> str:
        """Return a table with these columns, or with the important ones that fit."""
        return self.render("markdown", columns)

    def to_pandas(self, columns: Sequence[str] = ("all",)) -> Any:
        """Return the rows as a pandas DataFrame indexed by configuration; requires pandas."""
        return to_data_frame(self.rows(columns)).set_index("configuration")

    def to_parquet(self, path: str | Path, columns: Sequence[str] = ("all",)) -> Path:
        """Write the rows to a Parquet file; requires pyarrow (extra `parquet`)."""
        return write_parquet(self.rows(columns), path)

    def to_html(self, results: Path | None = None) -> str:
        """Return the page of `polybench report`, a self-contained HTML file; requires the extra `report`.

        It includes layers and an explanation if `results`, the folder of saved studies, has the documents for
        them.
        """
        return render_report([study_section(self.document, Store(results_folder(results)))])

    def save(self, results: Path | None = None) -> Path:
        """Write the document to the results folder, where `polybench list` and `show` find it."""
        store = Store(results_folder(results))
        store.ensure_writable()
        return store.save(self.document)

    def plot(self, name: str = "speed") -> Any:
        """Return a plotly Figure by its name in `polybench.figures.FIGURES`; requires plotly (extra `plot`).

        Raises:
            BadInput: the name is not a figure of a study, or its data was not measured.
        """
        study_figures = {one: one for one, row in FIGURES.items() if row.kind == "study"}
        drawn = draw(lookup_or_suggest(name, study_figures, "figure"), self.document)
        return image_export.to_plotly(drawn, caption_for(self.document))

    def __str__(self) -> str:
        return self.render("table")

    def __repr__(self) -> str:
        return f"<StudyResult {self.document.id}: {', '.join(r.configuration for r in self.document.results)}>"

    def _repr_markdown_(self) -> str:  # what notebooks show
        return self.to_markdown()

    def render(self, format: str, columns: Sequence[str] | None = None) -> str:
        """Return the output of `--format FORMAT`; raises BadInput for an unknown format."""
        return render_study(self.document, format, None if columns is None else select_metrics(columns))


class ParityResult(DataFrameMixin):
    """The result of a parity check. `document` is a study without times."""

    def __init__(self, document: StudyDocument) -> None:
        self.document = document

    def rows(self) -> list[dict[str, Any]]:
        """Return a dictionary per comparison of a loss, gradient or weight; unchecked configurations are left
        out."""
        return [
            {
                "configuration": result.configuration,
                "status": result.parity.status,
                **msgspec.to_builtins(tensor),
            }
            for result in self.document.results
            for tensor in result.parity.tensors
        ]

    def to_json(self) -> str:
        """Return the document."""
        return to_json(self.document).decode()

    def __str__(self) -> str:
        return render_study(self.document, "table", formats=PARITY_FORMATS)

    def _repr_markdown_(self) -> str:
        return f"```\n{self}```"


def _values(metric: Metric, result: Result) -> Iterator[tuple[str, float | str | None]]:
    yield metric.name, metric.value(result)
    if metric.has_interval:
        low, high = metric.interval(result) or (None, None)
        yield f"{metric.name}_low", low
        yield f"{metric.name}_high", high


class SweepResult(DataFrameMixin):
    """A finished sweep. `document` is the saved document."""

    def __init__(self, document: SweepDocument) -> None:
        self.document = document

    def rows(self) -> list[dict[str, Any]]:
        """Return a dictionary for each configuration at each point, in SI units."""
        return [
            {**point.parameters, **msgspec.to_builtins(configuration), "oversubscribed": point.oversubscribed}
            for point in self.document.points
            for configuration in point.configurations
        ]

    def save(self, results: Path | None = None) -> Path:
        """Write the document to the results folder, where `polybench report` finds it."""
        store = Store(results_folder(results))
        store.ensure_writable()
        return store.save(self.document)

    def to_json(self) -> str:
        """Return the saved document."""
        return sweep_text.render(self.document, "json")

    def to_html(self) -> str:
        """Return the page of `polybench report`, a self-contained HTML file; requires the extra `report`."""
        return render_report([self.document])

    def plot(self) -> Any:
        """Return a plotly Figure of throughput over the swept axes; requires plotly (extra `plot`)."""
        return image_export.to_plotly(draw("scaling", self.document), caption_for(self.document))

    def __str__(self) -> str:
        return sweep_text.render(self.document, "table")

    def _repr_markdown_(self) -> str:
        return sweep_text.render(self.document, "markdown")


class OverheadResult(DataFrameMixin):
    """Overheads of training steps. `document` is the saved document."""

    def __init__(self, document: OverheadDocument) -> None:
        self.document = document

    def rows(self) -> list[dict[str, Any]]:
        """Return a dictionary per configuration, in SI units."""
        return [
            {name: value for name, value in msgspec.to_builtins(engine).items() if name != "points"}
            for engine in self.document.configurations
        ]

    def save(self, results: Path | None = None) -> Path:
        """Write the document to the results folder, where `polybench show` finds it."""
        store = Store(results_folder(results))
        store.ensure_writable()
        return store.save(self.document)

    def to_json(self) -> str:
        """Return the saved document."""
        return overhead_text.render(self.document, "json")

    def plot(self) -> Any:
        """Return a plotly Figure of step time over batch size, with the fitted line; requires plotly (extra
        `plot`)."""
        return image_export.to_plotly(draw("overhead", self.document), caption_for(self.document))

    def __str__(self) -> str:
        return overhead_text.render(self.document, "table")

    def _repr_markdown_(self) -> str:
        return overhead_text.render(self.document, "markdown")


class PeakResult(DataFrameMixin):
    """The peak throughput of a machine. `document` is the whole record."""

    def __init__(self, document: PeakDocument) -> None:
        self.document = document

    def rows(self) -> list[dict[str, Any]]:
        """Return a dictionary per peak, in SI units."""
        return [msgspec.to_builtins(peak) for peak in self.document.peaks]

    def plot(self) -> Any:
        """Return a plotly Figure of the peaks and of each layer's attainable speed; requires plotly (extra
        `plot`)."""
        return image_export.to_plotly(draw("peak", self.document), caption_for(self.document))

    def __str__(self) -> str:
        return peak_text.render(self.document, "table")

    def _repr_markdown_(self) -> str:
        return peak_text.render(self.document, "markdown")


class LayersResult(DataFrameMixin):
    """Times of layers. `document` is the saved document."""

    def __init__(self, document: LayersDocument) -> None:
        self.document = document

    def rows(self) -> list[dict[str, Any]]:
        """Return a dictionary for each operation of each layer in each configuration, in SI units."""
        return layers_text.layer_records(self.document)

    def save(self, results: Path | None = None) -> Path:
        """Write the document to the results folder, where `explain` finds it."""
        store = Store(results_folder(results))
        store.ensure_writable()
        return store.save(self.document)

    def to_json(self) -> str:
        """Return the saved document."""
        return encode(self.document).decode()

    def to_markdown(self, sort: Sort = "network") -> str:
        """Return the table, with configurations side by side."""
        return layers_text.render(self.document, "markdown", sort)

    def to_pandas(self) -> Any:
        """Return the rows as a pandas DataFrame indexed by configuration, layer and operation; requires
        pandas."""
        return to_data_frame(self.rows()).set_index(["configuration", "layer", "operation"])

    def plot(self, sort: Sort = "network") -> Any:
        """Return a plotly Figure with a bar for each operation in each configuration; requires plotly (extra
        `plot`)."""
        return image_export.to_plotly(draw("operations", self.document, sort=sort), caption_for(self.document))

    def roofline(self) -> Any:
        """Return a plotly Figure of the layers and the machine's measured peaks; requires plotly (extra
        `plot`).

        Raises:
            BadInput: no peaks are cached for these engines on this machine; `peak` measures them.
        """
        return image_export.to_plotly(draw("roofline", self.document), caption_for(self.document))

    def __str__(self) -> str:
        return layers_text.render(self.document, "table")

    def _repr_markdown_(self) -> str:  # what notebooks show
        return self.to_markdown()


class DiffResult(DataFrameMixin):
    """A comparison of two studies. `document` is the whole record, as with `--format json`."""

    def __init__(self, document: DiffDocument) -> None:
        self.document = document

    def rows(self) -> list[dict[str, Any]]:
        """Return a dictionary per configuration: verdict, ratio with its interval, and changes."""
        return [msgspec.to_builtins(row) for row in self.document.rows]

    def to_json(self) -> str:
        """Return the document."""
        return diff_text.render(self.document, "json")

    def to_pandas(self) -> Any:
        """Return the rows as a pandas DataFrame indexed by configuration; requires pandas."""
        return to_data_frame(self.rows()).set_index("configuration")

    def __str__(self) -> str:
        return diff_text.render(self.document, "table")

    def _repr_markdown_(self) -> str:  # what notebooks show
        return diff_text.render(self.document, "markdown")


class MergeResult(DataFrameMixin):
    """A workload on several machines. `document` is the whole record, as with `--format json`."""

    def __init__(self, document: MergeDocument) -> None:
        self.document = document

    def rows(self) -> list[dict[str, Any]]:
        """Return a dictionary for each configuration on each machine, in SI units."""
        return [msgspec.to_builtins(result) for result in self.document.results]

    def to_json(self) -> str:
        """Return the document with its machines."""
        return merge_text.render(self.document, "json")

    def __str__(self) -> str:
        return merge_text.render(self.document, "table")

    def _repr_markdown_(self) -> str:  # what notebooks show
        return merge_text.render(self.document, "markdown")


class HistoryResult(DataFrameMixin):
    """Configurations over time. `document` is the whole record, as with `--format json`."""

    def __init__(self, document: HistoryDocument) -> None:
        self.document = document

    def rows(self) -> list[dict[str, Any]]:
        """Return a dictionary for each study of each series, with the fields of both, in SI units."""
        return [
            {name: value for name, value in msgspec.to_builtins(series).items() if name not in _SERIES_LISTS}
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

    def to_json(self) -> str:
        """Return the document."""
        return history_text.render(self.document, "json")

    def plot(self) -> Any:
        """Return a plotly Figure of step times over time, with their levels; requires plotly (extra
        `plot`)."""
        return image_export.to_plotly(draw("history", self.document), caption_for(self.document))

    def __str__(self) -> str:
        return history_text.render(self.document, "table")

    def _repr_markdown_(self) -> str:
        return f"```\n{self}```"


_SERIES_LISTS = ("points", "change_points")
"""Fields of a series that are not part of a row."""


class ExplanationResult:
    """Reasons for the differences in a study. `document` is the whole record, as with `--format json`."""

    def __init__(self, document: ExplanationDocument) -> None:
        self.document = document

    def to_json(self) -> str:
        """Return the document with all components of its breakdowns."""
        return explanation_text.render(self.document, "json")

    def __str__(self) -> str:
        return explanation_text.render(self.document, "table")

    def _repr_markdown_(self) -> str:  # what notebooks show
        return explanation_text.render(self.document, "markdown")


def load_section(name: str, store: Store) -> Section:
    """Load a study with all related saved documents, or a sweep.

    Raises:
        BadInput: the document does not exist, cannot be read, or is of another kind.
    """
    document = load_document(name, store)
    if isinstance(document, SweepDocument):
        return document
    if not isinstance(document, StudyDocument):
        raise BadInput(f"{name} is neither a study nor a sweep; the report of a study includes its layers and peaks")
    return study_section(document, store)


def study_section(study: StudyDocument, store: Store) -> StudySection:
    """Return the section of a study, with its scripts, layers and explanation as far as available."""
    return StudySection(study, *related_documents(study, store))
