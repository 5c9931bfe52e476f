"""Remote runs of a study: prints a study's table for one machine, or one table over several machines."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from polybench.cli.execute import StudyOutput, find_checkpoint
from polybench.cli.live import progress_on_stderr
from polybench.cli.options import MEASUREMENT_PANEL, RARE
from polybench.cli.output import (
    OutputOptions,
    check_writable,
    echo,
    exit_code,
    own_arguments,
    print_and_exit,
    repeats_warnings_of,
    width,
)
from polybench.errors import BadInput
from polybench.machine import interrupts
from polybench.render import check_format, render
from polybench.schema.metadata import NO_METADATA, StudyFileMetadata
from polybench.schema.options import SINGLE_MACHINE, MachineGroup, Study, check_machine_groups

if TYPE_CHECKING:
    from polybench.cluster.driver import ClusterResult
    from polybench.runner.checkpoint import ClusterRun
    from polybench.schema.study import StudyDocument

    Measure = Callable[..., ClusterResult]


TargetOption = Annotated[
    str | None,
    typer.Option(
        "--on",
        metavar="TARGET",
        help="Where to measure: ray://HOST:PORT or auto (the Ray cluster that runs on this machine), slurm,"
        " or local (another process). If a study file lists several machines, each measures the whole study.",
        rich_help_panel=MEASUREMENT_PANEL,
        show_default="this process",
    ),
    RARE,
]
"""`--on` of commands that measure a study."""

UploadOption = Annotated[
    bool,
    typer.Option(
        "--upload",
        help="With --on ray://...: upload this polybench to nodes that lack it or have another version.",
        rich_help_panel=MEASUREMENT_PANEL,
    ),
    RARE,
]
"""`--upload`, of commands with `--on`."""


def reject_upload(on: str | None, *, upload: bool) -> None:
    """Raise BadInput for --upload without --on."""
    if upload and on is None:
        raise BadInput("--upload: expected a cluster to upload polybench to: add --on ray://HOST:PORT")


def check_cluster(study: Study, machines: Sequence[MachineGroup], on: str, *, upload: bool) -> None:
    """Check for a dry run what the run would check, without contacting the cluster."""
    from polybench.cluster.executor import check_target

    check_target(on, upload=upload)
    check_machine_groups(study, machines or SINGLE_MACHINE)


def run_on_cluster(
    study: Study,
    machines: Sequence[MachineGroup],
    on: str,
    options: OutputOptions,
    *,
    metadata: StudyFileMetadata = NO_METADATA,
    upload: bool = False,
    strict: bool = False,
    recheck: bool = False,
) -> NoReturn:
    """Measure on each machine, or on any one if `machines` is empty; print and exit with the code."""
    from polybench.cluster.run import run_on_cluster
    from polybench.runner.checkpoint import ClusterRun
    from polybench.runner.prepare import new_header

    reject_explain(options, "the study")
    cluster_run = ClusterRun(
        study=study,
        groups=tuple(machines) or SINGLE_MACHINE,
        on=on,
        upload=upload,
        strict=strict,
        parity_check="all" if recheck else "new",
    )
    header = new_header(own_arguments(), options.name(metadata), anonymous=options.anonymous)
    _execute(partial(run_on_cluster, cluster_run, header=header), cluster_run, options)


def resume_cluster_run(
    id: str, options: OutputOptions, *, on: str | None = None, upload: bool = False, strict: bool = False
) -> NoReturn:
    """Resume the cluster run with this ID, and print it like `run_on_cluster`."""
    from polybench.cluster.run import resume_on_cluster
    from polybench.runner.checkpoint import CheckpointStore
    from polybench.storage.store import Store, results_folder

    measure = partial(resume_on_cluster, id, target=on, upload=upload, strict=strict, anonymous=options.anonymous)
    store = Store(results_folder(options.results))
    _execute(measure, CheckpointStore(store.folder).read(id).run, options)


def find_cluster_checkpoint(study: Study, machines: Sequence[MachineGroup], options: OutputOptions) -> str:
    """Return the ID of the newest interrupted cluster run with the same settings; raises BadInput without one."""
    from polybench.runner.checkpoint import select_machines

    reject_explain(options, "the study")
    return find_checkpoint(study, options, "cluster", select_machines(tuple(machines) or SINGLE_MACHINE))


def reject_explain(options: OutputOptions, what: str) -> None:
    """Raise BadInput for --explain in a remote run, because it would time layers on this machine."""
    if options.explain:
        raise BadInput(
            f"--explain: {what} is measured remotely (--on), but --explain would time layers on this machine:"
            " leave it out, and run polybench explain ID afterwards"
        )


def _execute(measure: Measure, cluster_run: ClusterRun, options: OutputOptions) -> NoReturn:
    if len(cluster_run.groups) == 1:
        output = StudyOutput(options)
        with interrupts.defer_signals():  # until the result is printed
            with output.progress() as progress:
                result = measure(progress, store=output.store).only_document
            output.print(result, progress)
    if options.columns:
        raise BadInput(
            "--columns: not available for a table over machines: leave it out; each machine's study is saved"
        )
    check_format(options.format)
    _print_all(measure, cluster_run, options)


def _print_all(measure: Measure, cluster_run: ClusterRun, options: OutputOptions) -> NoReturn:
    from polybench.cluster.run import cluster_table
    from polybench.storage.store import Store, results_folder

    check_writable(options.output)
    folder = Store(results_folder(options.results))
    store, saved = folder if options.save else None, folder.summaries()
    with interrupts.defer_signals():
        with progress_on_stderr(
            quiet=options.quiet, verbose=options.verbose, repeats_warnings=repeats_warnings_of(options)
        ) as progress:
            result = measure(progress, store=store)
        documents = [machine.document for machine in result.machines if machine.document is not None]
        table = cluster_table(result, cluster_run.study, partial(echo, err=True), saved)
        progress.flush_warnings([warning for document in documents for warning in document.warnings])
        text = render(table, options.format, width=width(options.output))
        message = f"saved as {', '.join(document.id for document in documents)}"
        hint = result.unfinished_id and f"resume with: polybench resume {result.unfinished_id}"
        print_and_exit(text, options, store, message, *_exit_codes(result, documents), hint=hint)


def _exit_codes(result: ClusterResult, documents: Sequence[StudyDocument]) -> list[int]:
    codes = [exit_code(document) for document in documents]
    if result.interrupted or 130 in codes:
        return [130]
    if 1 in codes or any(machine.document is None for machine in result.machines):
        return [1]
    return [0 if 0 in codes else 4]
