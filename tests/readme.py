"""Writes the tables of the README and the docs from the code: `make readme` (`python -m tests.readme`).

A table is between two markers in one of these files; a test fails if it is outdated.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from importlib import import_module
from pathlib import Path

from polybench.engines import ENGINES, EngineSpec
from polybench.metrics import GROUPS, METRICS
from polybench.metrics.base import Metric
from polybench.networks import MODEL_NAMES, MODELS
from polybench.networks.model import Model
from polybench.networks.optimizers import FORMULAS
from polybench.render import FORMATS
from tests.matrix_table import matrix
from tests.tested_on_table import ran

_ROOT = Path(__file__).parents[1]
PAGES = (_ROOT / "README.md", *sorted((_ROOT / "docs").glob("*.md")))


def markdown(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table with a line per row."""
    header_line, *lines = (
        "|" + "|".join(f" {configuration} " if configuration else " " for configuration in row) + "|"
        for row in (header, *rows)
    )
    return "\n".join([header_line, "|---" * len(header) + "|", *lines])


def formats() -> str:
    rows = ((f"`{name}`", row.audience, _first_line(row.module)) for name, row in FORMATS.items())
    return markdown(("`--format`", "for", "is"), rows)


def columns() -> str:
    """Return columns by group; those without a group come last."""
    groups = {f"`{name}`": members for name, members in GROUPS.items() if name != "all"}
    grouped = {name for members in groups.values() for name in members}
    groups["no group"] = tuple(name for name in METRICS if name not in grouped)
    rows = ((title, ", ".join(_column(METRICS[name]) for name in names)) for title, names in groups.items())
    return markdown(("group", "columns"), rows)


def networks() -> str:
    rows = []
    for name, model in zip(MODEL_NAMES, MODELS.values(), strict=True):
        number = f"{model.parameters():,}" + ("" if name == model.name else f" (`{model.name}`)")
        rows.append((f"`{name}`", f"{_input(model)}, {model.classes} classes", number, model.summary))
    return markdown(("`--model`", "input", "trained parameters", "what it is"), rows)


def _input(model: Model) -> str:
    """Describe one image or sequence."""
    if model.vocabulary_size is not None:
        return f"{model.input_shape[0]} tokens of {model.vocabulary_size:,}"
    if len(model.input_shape) == 2:
        time, features = model.input_shape
        return f"{time} characters of {features}"
    channels, height, width = model.input_shape
    return f"{height} x {width}" + (", grey" if channels == 1 else "")


def optimizers() -> str:
    return markdown(("name", "formula"), ((f"`{name}`", formula) for name, formula in FORMULAS.items()))


def engines() -> str:
    rows = (
        (f"`{name}`", row.summary, _variants(row), f"`{row.extra}`" if row.extra else "")
        for name, row in ENGINES.items()
    )
    return markdown(("engine", "what is timed", "variants", "extra"), rows)


TABLES: dict[str, Callable[[], str]] = {
    "columns": columns,
    "formats": formats,
    "networks": networks,
    "optimizers": optimizers,
    "engines": engines,
    "matrix": matrix,
    "ran": ran,
}
"""Functions by the name in the markers."""


def with_tables(text: str) -> str:
    """Replace each table between its markers.

    Raises:
        ValueError: an end marker is missing.
    """
    for name, table in TABLES.items():
        begin, end = f"<!-- {name}: written by make readme -->\n", f"<!-- end of {name} -->\n"
        before, begun, rest = text.partition(begin)
        _, ended, after = rest.partition(end)
        if not begun:
            continue
        if not ended:
            raise ValueError(f"there is no {end!r}")
        text = f"{before}{begin}{table()}\n{end}{after}"
    return text


def _first_line(module: str) -> str:
    return str(import_module(module).__doc__).splitlines()[0].rstrip(".")


def _column(metric: Metric) -> str:
    details = ", ".join(filter(None, (metric.unit, metric.description)))
    return f"`{metric.name}`" + (f" ({details})" if details else "")


def _variants(row: EngineSpec) -> str:
    names = (f"`{name}`" + " (CUDA only)" * one.cuda_only for name, one in row.variants.items())
    return ", ".join(names)


if __name__ == "__main__":
    for page in PAGES:
        page.write_text(with_tables(page.read_text("utf-8")), "utf-8")
