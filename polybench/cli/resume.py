"""`polybench resume`: resumes an interrupted study, sweep or cluster run."""

from __future__ import annotations

from typing import Annotated

import typer

from polybench.cli.cluster import reject_explain, resume_cluster_run
from polybench.cli.execute import resume_study_by_id
from polybench.cli.output_options import OutputOptions
from polybench.cli.signature import with_options
from polybench.cli.sweep_runner import reject_options, resume_sweep_by_id
from polybench.cli.terminal import echo


@with_options(
    "strict",
    "columns",
    "published",
    "format",
    "output",
    "results",
    "explain",
    "anonymous",
    "quiet",
    "verbose",
)
def resume(
    study: Annotated[
        str,
        typer.Argument(metavar="ID", help="Interrupted study or sweep: its ID, a unique prefix, or `last`."),
    ],
    options: OutputOptions,
    strict: bool,
    discard: Annotated[
        bool,
        typer.Option("--discard", help="Delete the checkpoint instead of resuming; results that are saved stay."),
    ] = False,
) -> None:
    """Resume an interrupted study or sweep; finished measurements are not repeated.

    A run resumes only on the same machine, with the same versions and data. `polybench list` shows what can
    be resumed.

    Example: polybench resume last
    """
    from polybench.runner.resumable import discard as discard_checkpoint
    from polybench.runner.resumable import find_resumable
    from polybench.storage.store import Store, results_folder

    store = Store(results_folder(options.results))
    found = find_resumable(study, store)
    if discard:
        discard_checkpoint(found, store)
        echo(f"deleted the checkpoint of {found.id}; it can no longer be resumed")
        return
    if found.kind == "cluster":
        reject_explain(options, found.id)
        resume_cluster_run(found.id, options, strict=strict)
    if found.kind == "study":
        resume_study_by_id(found.id, options, strict=strict)
    given = {"--strict": strict, "--columns": options.columns, "--explain": options.explain}
    reject_options(given, f"{found.id} is a sweep")
    resume_sweep_by_id(found.id, options)
