"""`polybench sweep`: one workload over batch sizes, threads, depths, image sizes or loader workers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from polybench.cli.execute import find_checkpoint, print_plan
from polybench.cli.live import progress_on_stderr
from polybench.cli.options import (
    MEASUREMENT,
    WORKLOAD,
    WORKLOAD_PANEL,
    Overrides,
    TableFormat,
    parse_integers,
    with_options,
)
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
from polybench.schema import units
from polybench.schema.options import Study
from polybench.schema.study import StudyDocument

if TYPE_CHECKING:
    from polybench.experiments.sweep import SweepOutcome
    from polybench.planning.grid import SweepSpec

AXES = ("batch_size", "threads", "loader_workers")
"""Options of `compare` that accept a list here."""
SINGLE_STUDY_OPTIONS = (
    "epochs", "accuracy", "target_accuracy", "target_loss", "injected_delays", "recheck", "strict", "dry_run",
)  # fmt: skip
OUTPUT_FIELDS = ("output", "results", "save", "title", "tags", "anonymous", "quiet", "verbose")
SHARED_FIELDS = [name for name in WORKLOAD | MEASUREMENT if name not in (*AXES, *SINGLE_STUDY_OPTIONS)]
"""Options that a sweep shares with a single study."""

Resume = Annotated[
    bool,
    typer.Option("--resume", help="Resume the newest interrupted run with the same settings; see polybench resume."),
]


@with_options(*SHARED_FIELDS, "baseline", "prices", *OUTPUT_FIELDS)
def sweep(
    study: Study,
    options: OutputOptions,
    quick: bool,
    batch_size: Annotated[
        str | None, typer.Option(help="Batch sizes: 1,8,32,128.", rich_help_panel=WORKLOAD_PANEL)
    ] = None,
    threads: Annotated[
        str | None, typer.Option(help="Numbers of threads: 1,2,4.", rich_help_panel=WORKLOAD_PANEL)
    ] = None,
    depth: Annotated[
        str | None,
        typer.Option(help="Depths of a network NAME-N: --model catdog --depth 2,4.", rich_help_panel=WORKLOAD_PANEL),
    ] = None,
    resolution: Annotated[
        str | None,
        typer.Option(
            help="Heights and widths of the images, in pixels: --model catdog-2 --resolution 64,96,128.",
            rich_help_panel=WORKLOAD_PANEL,
        ),
    ] = None,
    length: Annotated[
        str | None,
        typer.Option(
            help="Lengths of the sequences: --model char-gpt --length 64,128,256.", rich_help_panel=WORKLOAD_PANEL
        ),
    ] = None,
    loader_workers: Annotated[
        str | None,
        typer.Option(help="Numbers of workers of the input pipeline: 0,1,2.", rich_help_panel=WORKLOAD_PANEL),
    ] = None,
    resume: Resume = False,
    format: TableFormat = "table",
) -> None:
    """Example: polybench sweep --engines torch,tf --batch-size 1,8,32,128 --processes 3"""
    from polybench.planning.grid import MODEL_NAME_AXES, SweepSpec

    given = {
        "batch_size": batch_size,
        "threads": threads,
        "depth": depth,
        "resolution": resolution,
        "length": length,
        "loader_workers": loader_workers,
    }
    values = {name: parse_integers(text, name) for name, text in given.items() if text is not None}
    fixed = {
        name: integers[0] for name, integers in values.items() if len(integers) == 1 and name not in MODEL_NAME_AXES
    }
    axes = {name: integers for name, integers in values.items() if name not in fixed}
    study = Overrides(**fixed).apply(study)
    spec = SweepSpec(study.quick() if quick else study, axes)
    run_and_print_sweep(spec, options._replace(format=format), resume=resume)


def print_points(study: Study, axes: Mapping[str, Sequence[int]]) -> None:
    """Print the plan of each point of a sweep."""
    from polybench.planning.grid import points

    for point in points(study, axes):
        echo(f"{units.format_point(point.values)}:", err=True)
        print_plan(point.study)


def run_and_print_sweep(spec: SweepSpec, options: OutputOptions, *, resume: bool = False) -> NoReturn:
    """Measure every point, or the rest of an interrupted run of the same sweep; print and exit."""
    from polybench.experiments.sweep import run_sweep
    from polybench.runner.checkpoint import select_sweep

    if not resume:
        spec = spec._replace(study_file=options.name(spec.study_file))
        _execute(partial(run_sweep, spec, argv=own_arguments(), anonymous=options.anonymous), options)
    resume_sweep_by_id(find_checkpoint(spec.study, options, spec.command, select_sweep(spec.axes)), options)


def resume_sweep_by_id(id: str, options: OutputOptions) -> NoReturn:
    """Measure the rest of the sweep with this ID; print and exit."""
    from polybench.experiments.sweep import resume_sweep

    _execute(partial(resume_sweep, id, anonymous=options.anonymous), options)


def reject_options(given: Mapping[str, object], reason: str) -> None:
    """Raise BadInput for the first option that has a value; `reason` begins the message."""
    for option, value in given.items():
        if value:
            raise BadInput(f"{option}: {reason}, which does not have this option: leave it out")


def _execute(measure: Callable[..., SweepOutcome], options: OutputOptions) -> NoReturn:
    from polybench.storage.store import Store, results_folder

    check_format(options.format)
    check_writable(options.output)
    store = Store(results_folder(options.results)) if options.save else None
    with interrupts.defer_signals():
        with progress_on_stderr(
            quiet=options.quiet, verbose=options.verbose, repeats_warnings=repeats_warnings_of(options)
        ) as progress:
            outcome = measure(progress, store=store)
        document = outcome.document
        code = _exit_code([study for _, study in outcome.points])
        hint = "run the command again" if code == 130 else None
        if outcome.resumable_id is not None:
            code, hint = 130, f"resume with: polybench resume {outcome.resumable_id}"
        if document is None:
            echo(f"interrupted; {hint or 'run the command again'}", err=True)
            raise typer.Exit(130)
        for text in document.warnings:
            progress.on_warning(text)
        progress.flush_warnings(document.warnings)
        text = render(document, options.format, width=width(options.output), published=options.published)
        message = f"saved; print it again with: polybench show {document.id}"
        print_and_exit(text, options, store, message, code, hint=hint)


def _exit_code(documents: Sequence[StudyDocument]) -> int:
    """Return the most severe exit code of all studies."""
    codes = [exit_code(document) for document in documents]
    return next((code for code in (130, 1, 4) if code in codes), 0) if codes else 4
