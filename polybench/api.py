"""polybench from Python: the same options and meanings as on the command line."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, TypedDict, Unpack

import msgspec

from polybench.core.document.overhead import OverheadDocument
from polybench.core.document.study import StudyDocument, to_json
from polybench.core.document.sweep import SweepDocument
from polybench.core.errors import BadInput
from polybench.core.names import split_names
from polybench.core.spec import Study
from polybench.export import overhead as overhead_text
from polybench.export import sweep as sweep_text
from polybench.export.rendering import rendered
from polybench.machine.host import usable_threads
from polybench.measuring.progress import Silent
from polybench.measuring.study import run_study
from polybench.measuring.sweep import run_sweep
from polybench.metrics import metrics_of
from polybench.planning.grid import BATCH_SIZES, points
from polybench.report.overhead import summarize as summarize_overhead
from polybench.report.saved_studies import Store, results_folder
from polybench.report.sweep import summarize as summarize_sweep


class Options(TypedDict, total=False):
    """The fields of core.spec.Study, which has their meanings and defaults.

    Written out, because type checkers know no computed TypedDict; a test holds that fields and types are
    Study's.
    """

    engines: Sequence[str]
    devices: Sequence[str] | None
    model: str
    data: str
    batch_size: int | None
    optimizer: str | None
    learning_rate: float | None
    momentum: float | None
    weight_decay: float | None
    schedule: Sequence[tuple[int, float]] | None
    precision: str | Sequence[str]
    input: str
    workers: int | None
    augment: bool
    threads: int | None
    heap: str
    pin: bool
    seed: int
    processes: int
    rounds: int | None
    steps: int | None
    target: float
    epochs: int | None
    accuracy: bool
    until: dict[str, float]
    budget: float
    patience: float
    timeout: float
    parity: bool
    parity_steps: int
    baseline: str | None
    prices: dict[str, float]
    metrics: bool
    handicaps: dict[str, float]


_LISTS = ("engines", "devices", "precision")
"""Also as text, as on the command line: "torch,tf"."""


class StudyResult:
    """A finished study. `document` is the whole record, as it is saved."""

    def __init__(self, document: StudyDocument) -> None:
        self.document = document

    def rows(self, columns: Sequence[str] = ("all",)) -> list[dict[str, float | str | None]]:
        """One dictionary a cell: its name, its status and the columns' values in SI units."""
        metrics = metrics_of(columns)
        return [
            {
                "cell": result.cell,
                "status": result.status,
                **{metric.name: metric.value(result) for metric in metrics},
            }
            for result in self.document.results
        ]

    def to_json(self) -> str:
        """The document of the public interface."""
        return to_json(self.document).decode()

    def to_markdown(self, columns: Sequence[str] | None = None) -> str:
        """A table with these columns, or with the important ones that fit."""
        return self._render("markdown", columns)

    def to_pandas(self, columns: Sequence[str] = ("all",)) -> Any:
        """The rows as a pandas DataFrame, cells as its index; needs pandas."""
        return _data_frame(self.rows(columns)).set_index("cell")

    def save(self, results: Path | None = None) -> Path:
        """Write the document to the results folder; it is then found by `polybench list` and `show`."""
        store = Store(results_folder(results))
        store.ensure_writable()
        return store.save(self.document)

    def __str__(self) -> str:
        return self._render("table")

    def __repr__(self) -> str:
        return f"<StudyResult {self.document.id}: {', '.join(r.cell for r in self.document.results)}>"

    def _repr_markdown_(self) -> str:  # what notebooks show
        return self.to_markdown()

    def _render(self, name: str, columns: Sequence[str] | None = None) -> str:
        return rendered(self.document, name, None if columns is None else metrics_of(columns))


class SweepResult:
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

    def to_pandas(self) -> Any:
        """The rows as a pandas DataFrame; needs pandas."""
        return _data_frame(self.rows())

    def __str__(self) -> str:
        return sweep_text.render(self.document, "table")

    def _repr_markdown_(self) -> str:
        return sweep_text.render(self.document, "markdown")


class OverheadResult:
    """Fixed costs of steps. `document` is the whole record."""

    def __init__(self, document: OverheadDocument) -> None:
        self.document = document

    def rows(self) -> list[dict[str, Any]]:
        """One dictionary a cell, in SI units."""
        return [
            {name: value for name, value in msgspec.to_builtins(engine).items() if name != "points"}
            for engine in self.document.engines
        ]

    def to_pandas(self) -> Any:
        """The rows as a pandas DataFrame; needs pandas."""
        return _data_frame(self.rows())

    def __str__(self) -> str:
        return overhead_text.render(self.document, "table")

    def _repr_markdown_(self) -> str:
        return overhead_text.render(self.document, "markdown")


def _data_frame(rows: list[dict[str, Any]]) -> Any:
    try:
        return import_module("pandas").DataFrame(rows)
    except ImportError as error:
        raise BadInput("pandas is not installed; pip install pandas, or use rows()") from error


def compare(*, strict: bool = False, quick: bool = False, **options: Unpack[Options]) -> StudyResult:
    """Train the identical network in several engines and compare what it costs.

    Nothing is printed, and nothing is saved before `save()`.

    Args:
        strict: raise when an engine or device is unavailable.
        quick: one process, a timed part of at most 10 s, no verdict.
        options: the fields of `Study`.

    Raises:
        BadInput: an option that no machine could run.
        StrictlyUnavailable: with `strict`.
    """
    study = _study(options)
    if quick:
        study = study.quick()
    return StudyResult(run_study(study, Silent(), store=None, argv=sys.argv, strict=strict))


def sweep(*, axes: Mapping[str, Sequence[int]], **options: Unpack[Options]) -> SweepResult:
    """Measure every combination of values, each as a study of its own, in random order.

    Args:
        axes: of `batch_size`, `threads`, `depth`, `workers`: the values of each.
        options: the fields of `Study` that all have in common; `budget` is for all together.

    Raises:
        BadInput: an option or a value that no machine could run.
    """
    finished = run_sweep(points(_study(options), axes), Silent(), store=None, argv=sys.argv)
    studies = [(one.point.values, one.document) for one in finished]
    return SweepResult(summarize_sweep(axes, studies, sys.argv, usable_threads()))


def overhead(*, batch_sizes: Sequence[int] = BATCH_SIZES, **options: Unpack[Options]) -> OverheadResult:
    """Fit the fixed cost of a step and the cost of a sample over batch sizes.

    Args:
        batch_sizes: at least two.
        options: the fields of `Study`; `budget` is for all together.

    Raises:
        BadInput: an option that no machine could run, or one batch size only.
    """
    if len(set(batch_sizes)) < 2:
        raise BadInput("a line needs two batch sizes")
    finished = run_sweep(
        points(_study(options), {"batch_size": batch_sizes}), Silent(), store=None, argv=sys.argv
    )
    documents = {one.point.values["batch_size"]: one.document for one in finished}
    return OverheadResult(summarize_overhead(documents, sys.argv))


def _study(options: Options) -> Study:
    fields: dict[str, Any] = {
        name: split_names(value) if name in _LISTS and isinstance(value, str) else value
        for name, value in options.items()
    }
    try:
        return msgspec.convert(fields, Study)
    except msgspec.ValidationError as error:
        raise BadInput(str(error)) from error
