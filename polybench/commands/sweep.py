"""`polybench sweep`: one workload over batch sizes, threads, depths, image sizes or pipeline workers."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, NoReturn

import msgspec
import typer

from polybench.commands.execute import print_plan
from polybench.commands.live import progress_on_stderr
from polybench.commands.options import HOW, WHAT
from polybench.commands.outcome import end, ensure_writable, exit_code
from polybench.commands.presentation import Presentation
from polybench.commands.signature import takes
from polybench.commands.terminal import echo
from polybench.commands.texts import parse_integers
from polybench.core import interrupts
from polybench.core.document.circumstances import NO_BACKGROUND, Background
from polybench.core.names import pick
from polybench.core.spec import Study
from polybench.export import RECORD_FORMATS

if TYPE_CHECKING:
    from polybench.measuring.sweep import Measured
    from polybench.planning.grid import Point
    from polybench.report.saved_studies import Store

AXES = ("batch_size", "threads", "workers")
"""Options of `compare` that take several values here."""
_IN_THE_NAME = ("depth", "resolution")
"""Axes that are part of a model's name."""
NOT_FOR_SERIES = ("epochs", "accuracy", "until", "handicaps", "strict", "quick", "dry_run")
OUT = ("format", "output", "results", "save", "quiet", "verbose")
SHARED = [name for name in WHAT | HOW if name not in (*AXES, *NOT_FOR_SERIES)]
"""Options that a series of studies has like a single one."""

Format = Annotated[str, typer.Option("--format", help=f"{', '.join(RECORD_FORMATS)}.")]


@takes(*SHARED, *(name for name in OUT if name != "format"))
def sweep(
    study: Study,
    how: Presentation,
    batch_size: Annotated[str | None, typer.Option(help="Several: 1,8,32,128.")] = None,
    threads: Annotated[str | None, typer.Option(help="Several: 1,2,4.")] = None,
    depth: Annotated[
        str | None, typer.Option(help="Of a network NAME-N: --model catdog --depth 2,4.")
    ] = None,
    resolution: Annotated[
        str | None,
        typer.Option(help="Height and width of the images: --model catdog-2 --resolution 64,96,128."),
    ] = None,
    workers: Annotated[str | None, typer.Option(help="Of the input pipeline; several: 0,1,2.")] = None,
    format: Format = "table",
) -> None:
    """Measure every combination of the values, each as a study of its own; --budget is for all together.

    Example: polybench sweep --engines torch,tf --batch-size 1,8,32,128 --processes 3
    """
    given = {
        "batch_size": batch_size,
        "threads": threads,
        "depth": depth,
        "resolution": resolution,
        "workers": workers,
    }
    values = {name: parse_integers(text, name) for name, text in given.items() if text is not None}
    fixed = {name: one[0] for name, one in values.items() if len(one) == 1 and name not in _IN_THE_NAME}
    axes = {name: several for name, several in values.items() if name not in fixed}
    execute_sweep(msgspec.structs.replace(study, **fixed), axes, how, format)


def execute_sweep(
    study: Study,
    axes: Mapping[str, Sequence[int]],
    how: Presentation,
    format: str,
    background: Background = NO_BACKGROUND,
) -> NoReturn:
    """Measure every point of a sweep, print the curves, and end with the exit code."""
    from polybench.export.sweep import render
    from polybench.machine.host import usable_threads
    from polybench.planning.grid import points
    from polybench.report.sweep import summarize

    finished, store = run_points(points(study, axes), how, format)
    studies = [(one.point.values, one.document) for one in finished]
    document = summarize(axes, studies, sys.argv[1:], usable_threads(), background)
    text = render(document, format, published=how.published)
    end(text, how, store, "each point is saved as a study", exit_code_of_all(finished))


def print_points(study: Study, axes: Mapping[str, Sequence[int]]) -> None:
    """What would be measured at each point, and about how long that takes."""
    from polybench.measuring.sweep import in_words
    from polybench.planning.grid import points

    for point in points(study, axes):
        echo(f"{in_words(point.values)}:", err=True)
        print_plan(point.study)


def run_points(
    points: Sequence[Point], how: Presentation, format: str
) -> tuple[list[Measured], Store | None]:
    """Measure them with progress on standard error; each is saved like a study, there."""
    from polybench.measuring.sweep import run_sweep
    from polybench.report.saved_studies import Store, results_folder

    pick(format, dict.fromkeys(RECORD_FORMATS), "format")
    ensure_writable(how.output)
    store = Store(results_folder(how.results)) if how.save else None
    with interrupts.deferred(), progress_on_stderr(quiet=how.quiet, verbose=how.verbose) as progress:
        return run_sweep(points, progress, store=store, argv=sys.argv[1:]), store


def exit_code_of_all(finished: Sequence[Measured]) -> int:
    """The gravest of all studies."""
    codes = [exit_code(one.document) for one in finished]
    return next((code for code in (130, 1, 4) if code in codes), 0) if codes else 4
