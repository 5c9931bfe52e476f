"""`polybench sweep`: one workload over batch sizes, threads, depths, image sizes or pipeline workers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from polybench.commands.execute import print_plan
from polybench.commands.options import HOW, WHAT
from polybench.commands.presentation import Presentation
from polybench.commands.series import execute_series
from polybench.commands.signature import takes
from polybench.commands.terminal import echo
from polybench.commands.texts import parse_integers
from polybench.core import units
from polybench.core.spec import Study
from polybench.export import RECORD_FORMATS

AXES = ("batch_size", "threads", "workers")
"""Options of `compare` that take several values here."""
_IN_THE_NAME = ("depth", "resolution")
"""Axes that are part of a model's name."""
NOT_FOR_SERIES = ("epochs", "accuracy", "until", "handicaps", "recheck", "strict", "quick", "dry_run")
OUT = ("output", "results", "save", "anonymous", "quiet", "verbose")
SHARED = [name for name in WHAT | HOW if name not in (*AXES, *NOT_FOR_SERIES)]
"""Options that a series of studies has like a single one."""

Format = Annotated[str, typer.Option("--format", help=f"{', '.join(RECORD_FORMATS)}.")]
Resume = Annotated[bool, typer.Option("--resume", help="Go on where this was stopped; see polybench resume.")]


@takes(*SHARED, "baseline", "prices", *OUT)
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
    resume: Resume = False,
    format: Format = "table",
) -> None:
    """Measure every combination of the values, each as a study of its own; --budget is for all together.

    Example: polybench sweep --engines torch,tf --batch-size 1,8,32,128 --processes 3
    """
    from polybench.measuring.sweep_checkpoint import Series

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
    series = Series(msgspec.structs.replace(study, **fixed), axes)
    execute_series(series, how._replace(format=format), resume=resume)


def print_points(study: Study, axes: Mapping[str, Sequence[int]], results: Path | None) -> None:
    """What would be measured at each point, and about how long that takes."""
    from polybench.planning.grid import points

    for point in points(study, axes):
        echo(f"{units.point(point.values)}:", err=True)
        print_plan(point.study, results)
