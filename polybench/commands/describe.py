"""`--describe`: the plain script of each cell, so that readers see what is timed."""

from __future__ import annotations

import shlex

import typer

from polybench.core.errors import BadInput
from polybench.core.spec import UNTIMED_STEPS, Study

STEPS = 58
"""Timed steps of a script if the study leaves them to the measured speed."""


def print_scripts(study: Study) -> None:
    """For each cell a script that trains the same by hand, or a line that says that there is none.

    Everything else is a comment: the output for a single cell runs as it is.
    """
    if study.input == "pipeline":
        raise BadInput("--describe has scripts with preloaded data only; leave out --input pipeline")
    from polybench.plain import plain_script
    from polybench.planning.plan import resolve
    from polybench.wire.environment import heap_environment

    plan = resolve(study)
    steps = study.steps or STEPS
    if study.data == "synthetic":
        typer.echo("# Synthetic images are in no file: give the scripts the real ones.\n")
    inputs = [
        "polybench", "weights", "--model", plan.model.name, "--seed", str(study.seed),
        "--batch-size", str(plan.workload.batch_size), "--steps", str(UNTIMED_STEPS + steps),
        "--data", study.data, "--output", "START.npz",
    ]  # fmt: skip
    for cell in plan.cells:
        if cell.repeat > 1:
            continue
        script = plain_script(cell, plan.workload_of(cell), steps)
        if script is None:
            typer.echo(
                f"# {cell.name}: no plain script for this engine, variant, model, optimizer or precision\n"
            )
        else:
            heap = shlex.join(f"{name}={value}" for name, value in heap_environment(study.heap).items())
            typer.echo(f"# {cell.name}\n# Its START.npz: {shlex.join(inputs)}")
            typer.echo(f"# To have the heap of polybench's workers, run it with: {heap}\n{script}")
