"""`polybench show`: a saved study, printed again."""

from __future__ import annotations

from typing import Annotated

import typer

from polybench.commands import options as o
from polybench.commands.outcome import columns as chosen
from polybench.commands.outcome import emit, ensure_writable
from polybench.core.names import pick
from polybench.export import FORMATS
from polybench.export.rendering import rendered


def show(
    study: Annotated[str, typer.Argument(metavar="ID", help="An ID, a unique prefix of one, or `last`.")],
    columns: o.Columns = None,
    published: o.Published = False,
    format: o.Format = "table",
    output: o.Output = None,
    results: o.Results = None,
) -> None:
    """Print a saved study in any format; nothing is measured.

    Example: polybench show last --format markdown
    """
    from polybench.report.saved_studies import Store, results_folder

    metrics = chosen(columns)
    pick(format, FORMATS, "format")
    ensure_writable(output)
    document = Store(results_folder(results)).load(study)
    emit(rendered(document, format, metrics, published=published), output)
