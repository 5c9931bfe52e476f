"""The tables of the README and the docs, from the code: `make readme` (`python -m tests.readme`) writes them.

A table stands between its two markers, in one of these files; a test fails where it is not the one made here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from importlib import import_module
from pathlib import Path

from polybench.core.model import Model
from polybench.core.optimizers import FORMULAS
from polybench.engines import ENGINES, EngineRow
from polybench.export import FORMATS
from polybench.metrics import GROUPS, METRICS
from polybench.metrics.base import Metric
from polybench.models import MODELS, NAMES
from tests.matrix_table import matrix
from tests.ran_table import ran

_ROOT = Path(__file__).parents[1]
PAGES = (_ROOT / "README.md", *sorted((_ROOT / "docs").glob("*.md")))


def markdown(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table with a line for each row."""
    header_line, *lines = (
        "|" + "|".join(f" {cell} " if cell else " " for cell in row) + "|" for row in (header, *rows)
    )
    return "\n".join([header_line, "|---" * len(header) + "|", *lines])


def formats() -> str:
    rows = ((f"`{name}`", row.audience, _first_line(row.module)) for name, row in FORMATS.items())
    return markdown(("`--format`", "for", "is"), rows)


def columns() -> str:
    """By group; those without one come last."""
    groups = {f"`{name}`": members for name, members in GROUPS.items() if name != "all"}
    grouped = {name for members in groups.values() for name in members}
    groups["no group"] = tuple(name for name in METRICS if name not in grouped)
    rows = ((title, ", ".join(_column(METRICS[name]) for name in names)) for title, names in groups.items())
    return markdown(("group", "columns"), rows)


def networks() -> str:
    rows = []
    for shown, model in zip(NAMES, MODELS.values(), strict=True):
        number = f"{model.parameters():,}" + ("" if shown == model.name else f" (`{model.name}`)")
        rows.append((f"`{shown}`", f"{_input(model)}, {model.classes} classes", number, model.summary))
    return markdown(("`--model`", "input", "trained parameters", "what it is"), rows)


def _input(model: Model) -> str:
    """One image or sequence, in words."""
    if model.vocabulary is not None:
        return f"{model.input_shape[0]} tokens of {model.vocabulary:,}"
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
"""By the name in the markers."""


def with_tables(text: str) -> str:
    """The text with each table between its markers, where it has them.

    Raises:
        ValueError: a table does not end.
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
    said = ", ".join(filter(None, (metric.unit, metric.note)))
    return f"`{metric.name}`" + (f" ({said})" if said else "")


def _variants(row: EngineRow) -> str:
    names = (f"`{name}`" + " (CUDA only)" * one.cuda_only for name, one in row.variants.items())
    return ", ".join(names)


if __name__ == "__main__":
    for page in PAGES:
        page.write_text(with_tables(page.read_text("utf-8")), "utf-8")
