"""`--tensorboard` and `--mlflow`: writes a study to experiment trackers."""

from __future__ import annotations

import shlex
from collections.abc import Callable

from polybench.cli.output_options import OutputOptions
from polybench.cli.terminal import echo
from polybench.schema import units
from polybench.schema.study import StudyDocument


def check_trackers(options: OutputOptions) -> None:
    """Check before measuring that the trackers can be written.

    Raises:
        BadInput: a package is missing, or a tracker cannot be written.
    """
    if options.tensorboard is not None:
        from polybench.render.tensorboard import check_tensorboard

        check_tensorboard(options.tensorboard)
    if options.mlflow is not None:
        from polybench.render.mlflow import check_mlflow

        check_mlflow(options.mlflow)


def write_trackers(study: StudyDocument, options: OutputOptions) -> None:
    """Write the study to the requested trackers; print a warning for those that fail or are interrupted."""
    if (folder := options.tensorboard) is not None:
        from polybench.render import tensorboard

        def write_events() -> str:
            written = tensorboard.write(study, folder)
            return f"{units.plural(len(written), 'run')} for: tensorboard --logdir {shlex.quote(str(folder))}"

        _write(write_events, f"--tensorboard {folder}", options)
    if (uri := options.mlflow) is not None:
        from polybench.render import mlflow

        def write_runs() -> str:
            written = units.plural(mlflow.write(study, uri), "run")
            return f"{written} in the experiment {mlflow.EXPERIMENT} of {uri}"

        _write(write_runs, f"--mlflow {uri}", options)


def _write(write: Callable[[], str], option: str, options: OutputOptions) -> None:
    try:
        message = write()
    except OSError as error:
        echo(f"warning: cannot write to {option}: {error.strerror or error}", err=True)
    except KeyboardInterrupt:
        echo(f"warning: interrupted before everything was written to {option}", err=True)
    else:
        if not options.quiet:
            echo(message, err=True)
