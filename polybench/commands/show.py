"""`polybench show`: a saved document, printed again."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from polybench.commands.outcome import columns, emit, ensure_writable
from polybench.commands.presentation import Presentation
from polybench.commands.saved import told
from polybench.commands.series import refuse_options
from polybench.commands.signature import takes
from polybench.commands.terminal import width
from polybench.commands.watchable import ensure_watchable, write_watchable
from polybench.core.document.history import HistoryDocument
from polybench.core.document.study import StudyDocument
from polybench.core.names import pick
from polybench.export import FORMATS, RECORD_FORMATS
from polybench.export.rendering import rendered

if TYPE_CHECKING:
    from polybench.report.saved_documents import SomeDocument


@takes("columns", "published", "format", "output", "results", "tensorboard", "mlflow", "anonymous", "quiet")
def show(
    study: Annotated[
        str,
        typer.Argument(
            metavar="ID",
            help=(
                "An ID, a unique prefix of one, `last`, `sweep-last` or `overhead-last`; or the file of a"
                " document (JSON)."
            ),
        ),
    ],
    how: Presentation,
) -> None:
    """Print a saved study in any format, a sweep, an overhead or another document in those of its command.

    Nothing is measured.

    Example: polybench show last --format markdown
    """
    from polybench.report.saved_documents import document_of
    from polybench.report.saved_studies import Store, results_folder

    ensure_watchable(how)
    document = document_of(study, Store(results_folder(how.results)))
    if not isinstance(document, StudyDocument):
        _show_record(document, study, how)
        return
    metrics = columns(how.columns)
    pick(how.format, FORMATS, "format")
    document = told(document, how)
    ensure_writable(how.output)
    write_watchable(document, how)
    line = width(how.output)
    emit(rendered(document, how.format, metrics, published=how.published, width=line), how.output)


def _show_record(document: SomeDocument, name: str, how: Presentation) -> None:
    """As the command prints it that makes such documents."""
    from polybench.export import history, layers, limit, overhead, sweep
    from polybench.report.saved_documents import called, kind_of

    renderers: dict[str, Callable[[Any, str], str]] = {
        "sweep": partial(sweep.render, published=how.published),
        "overhead": overhead.render,
        "layers": layers.render,
        "limit": limit.render,
        "history": history.render,
    }
    kind = kind_of(document)
    given = {
        "--columns": how.columns,
        "--tensorboard": how.tensorboard,
        "--mlflow": how.mlflow,
        "--published": how.published and kind != "sweep",
    }
    refuse_options(given, f"{name} is {called(kind)}")
    formats = ("table", "json") if isinstance(document, HistoryDocument) else RECORD_FORMATS
    pick(how.format, dict.fromkeys(formats), "format")
    document = told(document, how)
    ensure_writable(how.output)
    emit(renderers[kind](document, how.format), how.output)
