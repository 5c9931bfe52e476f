"""`--tensorboard` and `--mlflow`: a study where people watch their trainings, beside its table."""

from __future__ import annotations

import shlex

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
    """Write what was asked for; what cannot be written is a warning, since the rest can."""
    if how.tensorboard is not None:
        _write_events(study, how)
    if how.mlflow is not None:
        _write_runs(study, how)


def _write_events(study: StudyDocument, how: Presentation) -> None:
    from polybench.export.event_files import write

    assert how.tensorboard is not None
    try:
        written = write(study, how.tensorboard)
    except OSError as error:
        echo(f"warning: cannot write to --tensorboard {how.tensorboard}: {error.strerror}", err=True)
        return
    if not how.quiet:
        echo(f"{len(written)} runs for: tensorboard --logdir {shlex.quote(str(how.tensorboard))}", err=True)


def _write_runs(study: StudyDocument, how: Presentation) -> None:
    from polybench.export.mlflow_runs import EXPERIMENT, write

    assert how.mlflow is not None
    try:
        written = write(study, how.mlflow)
    except OSError as error:
        echo(f"warning: cannot write to --mlflow {how.mlflow}: {error.strerror}", err=True)
        return
    if not how.quiet:
        runs = units.plural(written, "run")
        echo(f"{runs} in the experiment {EXPERIMENT} of {how.mlflow}", err=True)
