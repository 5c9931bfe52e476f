"""What else is measured or compared, as Python gets it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from polybench.api.data_frame import Records, data_frame
from polybench.core.document.diff import DiffDocument
from polybench.core.document.explanation import ExplanationDocument
from polybench.core.document.history import HistoryDocument
from polybench.core.document.layers import LayersDocument
from polybench.core.document.limit import LimitDocument
from polybench.core.document.merge import MergeDocument
from polybench.core.document.overhead import OverheadDocument
from polybench.core.document.study import json_of
from polybench.core.document.sweep import SweepDocument
from polybench.export import diff as diff_text
from polybench.export import explanation as explanation_text
from polybench.export import history as history_text
from polybench.export import layers as layers_text
from polybench.export import limit as limit_text
from polybench.export import merge as merge_text
from polybench.export import overhead as overhead_text
from polybench.export import sweep as sweep_text
from polybench.export.layers_rows import Sort
from polybench.page import render
from polybench.plots import draw, image, parts
from polybench.plots.provenance import provenance
from polybench.report.saved_studies import Store, results_folder


class SweepResult(Records):
    """A finished sweep. `document` is the whole record."""

    def __init__(self, document: SweepDocument) -> None:
        self.document = document

    def rows(self) -> list[dict[str, Any]]:
        """One dictionary for each cell at each point, in SI units."""
        return [
            {**point.values, **msgspec.to_builtins(cell), "oversubscribed": point.oversubscribed}
            for point in self.document.points
            for cell in point.cells
        ]

    def save(self, results: Path | None = None) -> Path:
        """Write the document to the results folder, where `polybench report` finds it."""
        store = Store(results_folder(results))
        store.ensure_writable()
        return store.save(self.document)

    def to_json(self) -> str:
        """The document of the public interface."""
        return sweep_text.render(self.document, "json")

    def to_html(self) -> str:
        """The page of `polybench report`, a file that needs nothing else; needs the extra `report`."""
        return render([self.document])

    def plot(self) -> Any:
        """A plotly Figure: images a second over what was varied; needs plotly (extra `plot`)."""
        return image.figure(draw("scaling", self.document), provenance(self.document))

    def __str__(self) -> str:
        return sweep_text.render(self.document, "table")

    def _repr_markdown_(self) -> str:
        return sweep_text.render(self.document, "markdown")


class OverheadResult(Records):
    """Fixed costs of steps. `document` is the whole record."""

    def __init__(self, document: OverheadDocument) -> None:
        self.document = document

    def rows(self) -> list[dict[str, Any]]:
        """One dictionary a cell, in SI units."""
        return [
            {name: value for name, value in msgspec.to_builtins(engine).items() if name != "points"}
            for engine in self.document.engines
        ]

    def save(self, results: Path | None = None) -> Path:
        """Write the document to the results folder, where `polybench show` finds it."""
        store = Store(results_folder(results))
        store.ensure_writable()
        return store.save(self.document)

    def to_json(self) -> str:
        """The document of the public interface."""
        return overhead_text.render(self.document, "json")

    def plot(self) -> Any:
        """A plotly Figure: step time over batch size, with the fitted line; needs plotly (extra `plot`)."""
        return image.figure(draw("overhead", self.document), provenance(self.document))

    def __str__(self) -> str:
        return overhead_text.render(self.document, "table")

    def _repr_markdown_(self) -> str:
        return overhead_text.render(self.document, "markdown")


class LimitResult(Records):
    """The roofs of a machine. `document` is the whole record."""

    def __init__(self, document: LimitDocument) -> None:
        self.document = document

    def rows(self) -> list[dict[str, Any]]:
        """One dictionary a roof, in SI units."""
        return [msgspec.to_builtins(roof) for roof in self.document.roofs]

    def plot(self) -> Any:
        """A plotly Figure: the roofs, and what they allow each layer; needs plotly (extra `plot`)."""
        return image.figure(draw("roofs", self.document), provenance(self.document))

    def __str__(self) -> str:
        return limit_text.render(self.document, "table")

    def _repr_markdown_(self) -> str:
        return limit_text.render(self.document, "markdown")


class LayersResult(Records):
    """Times of layers. `document` is the whole record, as `--format json` has it."""

    def __init__(self, document: LayersDocument) -> None:
        self.document = document

    def rows(self) -> list[dict[str, Any]]:
        """One dictionary for each part of each layer in each cell, in SI units."""
        return layers_text.records(self.document)

    def save(self, results: Path | None = None) -> Path:
        """Write the document to the results folder, where `explain` finds it."""
        store = Store(results_folder(results))
        store.ensure_writable()
        return store.save(self.document)

    def to_json(self) -> str:
        """The document of the public interface."""
        return json_of(self.document).decode()

    def to_markdown(self, sort: Sort = "network") -> str:
        """The table, engines side by side."""
        return layers_text.render(self.document, "markdown", sort)

    def to_pandas(self) -> Any:
        """The rows as a pandas DataFrame, indexed by cell, layer and part; needs pandas."""
        return data_frame(self.rows()).set_index(["cell", "layer", "part"])

    def plot(self, sort: Sort = "network") -> Any:
        """A plotly Figure: a bar for each part of each layer in each cell; needs plotly (extra `plot`)."""
        return image.figure(parts.draw(self.document, sort), provenance(self.document))

    def roofline(self) -> Any:
        """A plotly Figure: the layers below the machine's measured roofs; needs plotly (extra `plot`).

        Raises:
            BadInput: no roof is kept for these engines on this machine; `limit` measures one.
        """
        return image.figure(draw("roofline", self.document), provenance(self.document))

    def __str__(self) -> str:
        return layers_text.render(self.document, "table")

    def _repr_markdown_(self) -> str:  # what notebooks show
        return self.to_markdown()


class DiffResult(Records):
    """Two studies compared. `document` is the whole record, as `--format json` has it."""

    def __init__(self, document: DiffDocument) -> None:
        self.document = document

    def rows(self) -> list[dict[str, Any]]:
        """One dictionary a cell: its verdict, the ratio with its interval, and what changed."""
        return [msgspec.to_builtins(row) for row in self.document.rows]

    def to_json(self) -> str:
        """The document of the public interface."""
        return diff_text.render(self.document, "json")

    def to_pandas(self) -> Any:
        """The rows as a pandas DataFrame, cells as its index; needs pandas."""
        return data_frame(self.rows()).set_index("cell")

    def __str__(self) -> str:
        return diff_text.render(self.document, "table")

    def _repr_markdown_(self) -> str:  # what notebooks show
        return diff_text.render(self.document, "markdown")


class MergeResult(Records):
    """One workload on several machines. `document` is the whole record, as `--format json` has it."""

    def __init__(self, document: MergeDocument) -> None:
        self.document = document

    def rows(self) -> list[dict[str, Any]]:
        """One dictionary for each cell on each machine, in SI units."""
        return [msgspec.to_builtins(row) for row in self.document.rows]

    def to_json(self) -> str:
        """The document, with its machines."""
        return merge_text.render(self.document, "json")

    def __str__(self) -> str:
        return merge_text.render(self.document, "table")

    def _repr_markdown_(self) -> str:  # what notebooks show
        return merge_text.render(self.document, "markdown")


class HistoryResult(Records):
    """Cells over time. `document` is the whole record, as `--format json` has it."""

    def __init__(self, document: HistoryDocument) -> None:
        self.document = document

    def rows(self) -> list[dict[str, Any]]:
        """One dictionary for each study of each series: the series, and the point, in SI units."""
        return [
            {name: value for name, value in msgspec.to_builtins(series).items() if name not in _PARTS}
            | msgspec.to_builtins(point)
            for series in self.document.series
            for point in series.points
        ]

    def steps(self) -> list[dict[str, Any]]:
        """One dictionary for each step of a series: where it begins, its ratio, and what changed."""
        return [
            {"cell": series.cell, **msgspec.to_builtins(step)}
            for series in self.document.series
            for step in series.steps
        ]

    def to_json(self) -> str:
        """The document of the public interface."""
        return history_text.render(self.document, "json")

    def plot(self) -> Any:
        """A plotly Figure: step times over time, and their levels; needs plotly (extra `plot`)."""
        return image.figure(draw("history", self.document), provenance(self.document))

    def __str__(self) -> str:
        return history_text.render(self.document, "table")

    def _repr_markdown_(self) -> str:
        return f"```\n{self}```"


_PARTS = ("points", "steps")
"""Of a series, which are no part of a row."""


class ExplanationResult:
    """Why rows of a study differ. `document` is the whole record, as `--format json` has it."""

    def __init__(self, document: ExplanationDocument) -> None:
        self.document = document

    def to_json(self) -> str:
        """The document, with all entries of its accounts."""
        return explanation_text.render(self.document, "json")

    def __str__(self) -> str:
        return explanation_text.render(self.document, "table")

    def _repr_markdown_(self) -> str:  # what notebooks show
        return explanation_text.render(self.document, "markdown")
