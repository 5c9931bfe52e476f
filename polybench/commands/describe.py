"""`--describe`: the plain script of each cell, so that readers see what is timed."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from polybench.commands.terminal import echo
from polybench.core.errors import BadInput
from polybench.core.spec import UNTIMED_STEPS, Study

if TYPE_CHECKING:
    from polybench.planning.plan import Plan

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

    plan = resolve(study)
    steps = study.steps or STEPS
    if study.data == "synthetic":
        echo("# Synthetic images are in no file: give the scripts the real ones.\n")
    inputs = [
        "polybench", "weights", "--model", plan.model.name, "--seed", str(study.seed),
        "--batch-size", str(plan.workload.batch_size), "--steps", str(UNTIMED_STEPS + steps),
        "--data", study.data, "--output", "START.npz",
    ]  # fmt: skip
    common = "heap and cores" if plan.cpus else "heap"
    for cell in plan.cells:
        if cell.repeat > 1:
            continue
        script = plain_script(cell, plan.workload_of(cell), steps)
        if script is None:
            echo(f"# {cell.name}: no plain script for this engine, variant, model, optimizer or precision\n")
        else:
            echo(f"# {cell.name}\n# Its START.npz: {shlex.join(inputs)}")
            if cell.environment is not None:
                echo(f"# Its environment: {plan.study.env[cell.environment]}")
            echo(f"# To have the {common} of polybench's workers, run it with: {_before(plan)}")
            echo(script)


def _before(plan: Plan) -> str:
    """What stands before the command of a script, in a shell."""
    from polybench.wire.environment import heap_environment

    heap = [f"{name}={value}" for name, value in heap_environment(plan.study.heap).items()]
    return shlex.join([*heap, *(["taskset", "-c", ",".join(map(str, plan.cpus))] if plan.cpus else [])])
