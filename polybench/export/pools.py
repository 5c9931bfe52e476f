"""The matrix of two pools of threads as text: Julia's down, BLAS's across."""

from __future__ import annotations

from polybench.core import units
from polybench.core.document.sweep import PoolMatrix
from polybench.export.records import laid_out

_BEST = " (best)"


def block(matrix: PoolMatrix, *, markdown: bool) -> str:
    """A title and a table; empty where no cell had these sizes."""
    title, header, lines = matrix_of(matrix)
    return f"{title}\n\n{laid_out(header, lines, left=1, markdown=markdown)}"


def matrix_of(matrix: PoolMatrix) -> tuple[str, list[str], list[list[str]]]:
    """Its title, the header, and a row for each number of Julia's threads."""
    blas = sorted({one.blas for one in matrix.sizes})
    times = {(one.julia, one.blas): units.seconds(one.seconds_per_step) for one in matrix.sizes}
    times[matrix.best.julia, matrix.best.blas] += _BEST
    lines = [
        [str(julia), *(times.get((julia, across), "") for across in blas)]
        for julia in sorted({one.julia for one in matrix.sizes})
    ]
    at = "".join(f", {axis.replace('_', ' ')} {units.count(value)}" for axis, value in matrix.values.items())
    title = f"{matrix.cell}{at}: step time by threads of Julia (down) and of BLAS (across)"
    return title, ["Julia", *(f"BLAS {across}" for across in blas)], lines
