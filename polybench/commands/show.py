"""`polybench show`: a saved study, printed again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from polybench.commands.outcome import columns, emit, ensure_writable
from polybench.commands.presentation import Presentation
from polybench.commands.saved import told
from polybench.commands.series import refuse_for_a_sweep
from polybench.commands.signature import takes
from polybench.commands.terminal import width
from polybench.commands.watchable import ensure_watchable, write_watchable
from polybench.core.document.sweep import SWEEP_ID
from polybench.core.names import pick
from polybench.export import FORMATS, RECORD_FORMATS
from polybench.export.rendering import rendered

if TYPE_CHECKING:
    from polybench.report.saved_studies import Store


@takes("columns", "published", "format", "output", "results", "tensorboard", "mlflow", "anonymous", "quiet")
def show(
    study: Annotated[
        str, typer.Argument(metavar="ID", help="An ID, a unique prefix of one, `last` or `sweep-last`.")
    ],
    how: Presentation,
) -> None:
    """Print a saved study in any format, or a saved sweep in those of polybench sweep; nothing is measured.

    Example: polybench show last --format markdown
    """
    from polybench.report.saved_studies import Store, results_folder

    store = Store(results_folder(how.results))
    if study.startswith(SWEEP_ID) and not study.endswith(".json"):
        _show_sweep(study, store, how)
        return
    metrics = columns(how.columns)
    pick(how.format, FORMATS, "format")
    ensure_watchable(how)
    document = told(store.load(study), how)
    ensure_writable(how.output)
    write_watchable(document, how)
    line = width(how.output)
    emit(rendered(document, how.format, metrics, published=how.published, width=line), how.output)


def _show_sweep(name: str, store: Store, how: Presentation) -> None:
    from polybench.export import sweep

    given = {"--columns": how.columns, "--tensorboard": how.tensorboard, "--mlflow": how.mlflow}
    refuse_for_a_sweep(given, name)
    pick(how.format, dict.fromkeys(RECORD_FORMATS), "format")
    document = told(store.load_sweep(name), how)
    ensure_writable(how.output)
    emit(sweep.render(document, how.format, published=how.published), how.output)
