"""`polybench sweep`: one workload over batch sizes, threads, depths, image sizes or loader workers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from polybench.cli.execute import print_plan
from polybench.cli.option_parsers import parse_integers
from polybench.cli.options import MEASUREMENT, WORKLOAD, WORKLOAD_PANEL
from polybench.cli.output_options import OutputOptions
from polybench.cli.signature import with_options
from polybench.cli.sweep_runner import run_and_print_sweep
from polybench.cli.terminal import echo
from polybench.render import RECORD_FORMATS
from polybench.schema import units
from polybench.schema.options import Study

AXES = ("batch_size", "threads", "loader_workers")
"""Options of `compare` that accept a list here."""
_MODEL_NAME_AXES = ("depth", "resolution")
"""Axes that are part of a model's name."""
SINGLE_STUDY_OPTIONS = (
    "epochs",
    "accuracy",
    "target_accuracy",
    "injected_delays",
    "recheck",
    "strict",
    "quick",
    "dry_run",
)
OUTPUT_FIELDS = ("output", "results", "save", "anonymous", "quiet", "verbose")
SHARED_FIELDS = [name for name in WORKLOAD | MEASUREMENT if name not in (*AXES, *SINGLE_STUDY_OPTIONS)]
"""Options that a sweep shares with a single study."""

Format = Annotated[str, typer.Option("--format", help=f"Format: {', '.join(RECORD_FORMATS)}.")]
Resume = Annotated[
    bool,
    typer.Option("--resume", help="Resume the newest interrupted run with the same settings; see polybench resume."),
]


@with_options(*SHARED_FIELDS, "baseline", "prices", *OUTPUT_FIELDS)
def sweep(
    study: Study,
    options: OutputOptions,
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
    loader_workers: Annotated[
        str | None,
        typer.Option(help="Numbers of workers of the input pipeline: 0,1,2.", rich_help_panel=WORKLOAD_PANEL),
    ] = None,
    resume: Resume = False,
    format: Format = "table",
) -> None:
    """Measure every combination of the given values as a study; --budget covers all of them together.

    Example: polybench sweep --engines torch,tf --batch-size 1,8,32,128 --processes 3
    """
    from polybench.runner.sweep_checkpoint import SweepSpec

    given = {
        "batch_size": batch_size,
        "threads": threads,
        "depth": depth,
        "resolution": resolution,
        "loader_workers": loader_workers,
    }
    values = {name: parse_integers(text, name) for name, text in given.items() if text is not None}
    fixed = {
        name: integers[0] for name, integers in values.items() if len(integers) == 1 and name not in _MODEL_NAME_AXES
    }
    axes = {name: integers for name, integers in values.items() if name not in fixed}
    spec = SweepSpec(msgspec.structs.replace(study, **fixed), axes)
    run_and_print_sweep(spec, options._replace(format=format), resume=resume)


def print_points(study: Study, axes: Mapping[str, Sequence[int]], results: Path | None) -> None:
    """Print the plan of each point of a sweep."""
    from polybench.planning.grid import points

    for point in points(study, axes):
        echo(f"{units.format_point(point.values)}:", err=True)
        print_plan(point.study, results)
