"""`--tensorboard` and `--mlflow`: a study where people watch their trainings, beside its table."""

from __future__ import annotations

import shlex
from collections.abc import Callable

from polybench.commands.presentation import Presentation
from polybench.commands.terminal import echo
from polybench.core import units
from polybench.core.document.study import StudyDocument


def ensure_watchable(how: Presentation) -> None:
    """Find out before measuring what would prevent writing.

    Raises:
        BadInput: a package is not there, or nothing can be written.
    """
    if how.tensorboard is not None:
        from polybench.export.event_files import ensure_tensorboard

        ensure_tensorboard(how.tensorboard)
    if how.mlflow is not None:
        from polybench.export.mlflow_runs import ensure_mlflow

        ensure_mlflow(how.mlflow)


def write_watchable(study: StudyDocument, how: Presentation) -> None:
    """Write what was asked for; what cannot be written, or is stopped, is a warning: the rest is done."""
    if (folder := how.tensorboard) is not None:
        from polybench.export import event_files

        def events() -> str:
            written = event_files.write(study, folder)
            return f"{len(written)} runs for: tensorboard --logdir {shlex.quote(str(folder))}"

        _write(events, f"--tensorboard {folder}", how)
    if (uri := how.mlflow) is not None:
        from polybench.export import mlflow_runs

        def runs() -> str:
            written = units.plural(mlflow_runs.write(study, uri), "run")
            return f"{written} in the experiment {mlflow_runs.EXPERIMENT} of {uri}"

        _write(runs, f"--mlflow {uri}", how)


def _write(write: Callable[[], str], option: str, how: Presentation) -> None:
    try:
        said = write()
    except OSError as error:
        echo(f"warning: cannot write to {option}: {error.strerror or error}", err=True)
    except KeyboardInterrupt:
        echo(f"warning: stopped before all was written to {option}", err=True)
    else:
        if not how.quiet:
            echo(said, err=True)
