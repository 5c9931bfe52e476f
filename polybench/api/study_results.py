"""A study and its identity check, as Python gets them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from polybench.api.data_frame import Records, data_frame, write_parquet
from polybench.api.parts import chapter_of
from polybench.core.document.result import Result
from polybench.core.document.study import StudyDocument, to_json
from polybench.core.names import pick
from polybench.export import PARITY_FORMATS
from polybench.export.rendering import rendered
from polybench.metrics import metrics_of
from polybench.metrics.base import Metric
from polybench.page import render
from polybench.plots import FIGURES, draw, image
from polybench.plots.provenance import provenance
from polybench.report.saved_studies import Store, results_folder

_CELL = ("cell", "engine", "variant", "environment", "device", "status")


class StudyResult:
    """A finished study. `document` is the whole record, as it is saved."""

    def __init__(self, document: StudyDocument) -> None:
        self.document = document

    def rows(self, columns: Sequence[str] = ("all",)) -> list[dict[str, float | str | None]]:
        """One dictionary a cell: what it is, its status, and the columns' values in SI units.

        A column `speedup` with an interval has `speedup_low` and `speedup_high` beside it, None where there
        is none.
        """
        metrics = metrics_of(columns)
        return [
            {name: getattr(result, name) for name in _CELL}
            | {name: value for metric in metrics for name, value in _values(metric, result)}
            for result in self.document.results
        ]

    def to_csv(self, columns: Sequence[str] | None = None) -> str:
        """CSV as the command line has it, by default with every column."""
        return self.render("csv", columns)

    def to_json(self) -> str:
        """The document of the public interface."""
        return to_json(self.document).decode()

    def to_markdown(self, columns: Sequence[str] | None = None) -> str:
        """A table with these columns, or with the important ones that fit."""
        return self.render("markdown", columns)

    def to_pandas(self, columns: Sequence[str] = ("all",)) -> Any:
        """The rows as a pandas DataFrame, cells as its index; needs pandas."""
        return data_frame(self.rows(columns)).set_index("cell")

    def to_parquet(self, path: str | Path, columns: Sequence[str] = ("all",)) -> Path:
        """Write the rows as a Parquet file; needs pyarrow (extra `parquet`)."""
        return write_parquet(self.rows(columns), path)

    def to_html(self, results: Path | None = None) -> str:
        """The page of `polybench report`, a file that needs nothing else; needs the extra `report`.

        Layers and an explanation are in it where `results`, the folder of saved studies, has what they need.
        """
        return render([chapter_of(self.document, Store(results_folder(results)))])

    def save(self, results: Path | None = None) -> Path:
        """Write the document to the results folder; it is then found by `polybench list` and `show`."""
        store = Store(results_folder(results))
        store.ensure_writable()
        return store.save(self.document)

    def plot(self, name: str = "speed") -> Any:
        """A plotly Figure with this name, a key of `polybench.plots.FIGURES`; needs plotly (extra `plot`).

        Raises:
            BadInput: there is no such figure of a study, or nothing that it could show was measured.
        """
        of_studies = {one: one for one, row in FIGURES.items() if row.of == "study"}
        drawn = draw(pick(name, of_studies, "figure"), self.document)
        return image.figure(drawn, provenance(self.document))

    def __str__(self) -> str:
        return self.render("table")

    def __repr__(self) -> str:
        return f"<StudyResult {self.document.id}: {', '.join(r.cell for r in self.document.results)}>"

    def _repr_markdown_(self) -> str:  # what notebooks show
        return self.to_markdown()

    def render(self, name: str, columns: Sequence[str] | None = None) -> str:
        """As the command line prints it with `--format NAME`; raises BadInput for an unknown one."""
        return rendered(self.document, name, None if columns is None else metrics_of(columns))


class ParityResult(Records):
    """What the identity check found. `document` is the whole record: a study without times."""

    def __init__(self, document: StudyDocument) -> None:
        self.document = document

    def rows(self) -> list[dict[str, Any]]:
        """One dictionary for each comparison of a loss, gradient or weight; none of cells not checked."""
        return [
            {"cell": result.cell, "status": result.parity.status, **msgspec.to_builtins(tensor)}
            for result in self.document.results
            for tensor in result.parity.tensors
        ]

    def to_json(self) -> str:
        """The document of the public interface."""
        return to_json(self.document).decode()

    def __str__(self) -> str:
        return rendered(self.document, "table", formats=PARITY_FORMATS)

    def _repr_markdown_(self) -> str:
        return f"```\n{self}```"


def _values(metric: Metric, result: Result) -> Iterator[tuple[str, float | str | None]]:
    yield metric.name, metric.value(result)
    if metric.has_interval:
        low, high = metric.interval(result) or (None, None)
        yield f"{metric.name}_low", low
        yield f"{metric.name}_high", high
