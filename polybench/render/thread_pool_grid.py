"""Step times over the sizes of two thread pools, Julia's and BLAS's, as text."""

from __future__ import annotations

from polybench.render.tables import format_table
from polybench.schema import units
from polybench.schema.measurements import ThreadPoolGrid

_BEST = " (best)"


def format_grid(grid: ThreadPoolGrid, *, markdown: bool) -> str:
    """Format a title and a table."""
    title, titles, rows = grid_table(grid)
    return f"{title}\n\n{format_table(titles, rows, text_columns=1, markdown=markdown)}"


def grid_table(grid: ThreadPoolGrid) -> tuple[str, list[str], list[list[str]]]:
    """Build the title, the column titles, and a row for each number of Julia threads."""
    blas_sizes = sorted({sizes.blas for sizes in grid.sizes})
    times = {(sizes.julia, sizes.blas): units.format_seconds(sizes.step_seconds) for sizes in grid.sizes}
    times[grid.best.julia, grid.best.blas] += _BEST
    rows = [
        [str(julia), *(times.get((julia, blas), "") for blas in blas_sizes)]
        for julia in sorted({sizes.julia for sizes in grid.sizes})
    ]
    point = "".join(
        f", {axis.replace('_', ' ')} {units.format_count(value)}" for axis, value in grid.parameters.items()
    )
    title = f"{grid.configuration}{point}: step time by Julia threads (rows) and BLAS threads (columns)"
    return title, ["Julia", *(f"BLAS {blas}" for blas in blas_sizes)], rows
