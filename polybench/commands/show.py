"""`polybench show`: a saved study, printed again."""

from __future__ import annotations

from typing import Annotated

import typer

from polybench.commands.outcome import columns, emit, ensure_writable
from polybench.commands.presentation import Presentation
from polybench.commands.saved import told
from polybench.commands.signature import takes
from polybench.commands.terminal import width
from polybench.commands.watchable import ensure_watchable, write_watchable
from polybench.core.names import pick
from polybench.export import FORMATS
from polybench.export.rendering import rendered


@takes("columns", "published", "format", "output", "results", "tensorboard", "mlflow", "anonymous", "quiet")
def show(
    study: Annotated[str, typer.Argument(metavar="ID", help="An ID, a unique prefix of one, or `last`.")],
    how: Presentation,
) -> None:
    """Print a saved study in any format; nothing is measured.

    Example: polybench show last --format markdown
    """
    from polybench.report.saved_studies import Store, results_folder

    metrics = columns(how.columns)
    pick(how.format, FORMATS, "format")
    ensure_watchable(how)
    document = told(Store(results_folder(how.results)).load(study), how)
    ensure_writable(how.output)
    write_watchable(document, how)
    line = width(how.output)
    emit(rendered(document, how.format, metrics, published=how.published, width=line), how.output)
