"""`polybench show`: a saved study, printed again."""

from __future__ import annotations

from typing import Annotated

import typer

from polybench.commands import options as o
from polybench.commands.outcome import columns as chosen
from polybench.commands.outcome import ensure_writable
from polybench.commands.outcome import show as print_study
from polybench.core.names import pick
from polybench.export import FORMATS


def show(
    study: Annotated[str, typer.Argument(metavar="ID", help="An ID, a unique prefix of one, or `last`.")],
    columns: o.Columns = None,
    format: o.Format = "table",
    output: o.Output = None,
    results: o.Results = None,
) -> None:
    """Print a saved study in any format; nothing is measured.

    Example: polybench show last --format markdown
    """
    from polybench.store import Store, results_folder

    metrics = chosen(o.split_names(columns) if columns else None)
    module = pick(format, FORMATS, "format")
    ensure_writable(output)
    print_study(Store(results_folder(results)).load(study), module, metrics, output)
