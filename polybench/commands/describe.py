"""`--describe`: the plain script of each cell, so that readers see what is timed, and can run it."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from polybench.commands.terminal import echo
from polybench.core.errors import BadInput, Unavailable
from polybench.core.spec import UNTIMED_STEPS, Cell, Study

if TYPE_CHECKING:
    from polybench.plain.folder import Script
    from polybench.planning.plan import Plan


def describe(study: Study, folder: Path | None) -> None:
    """Print the script of each cell, or write all of them into a folder with what they need.

    A cell that has none is a line that says so. Of what is printed, everything else is a comment: the output
    for a single cell runs as it is.

    Raises:
        BadInput: the study has an input pipeline; the folder cannot be written.
    """
    from polybench.plain import STEPS
    from polybench.planning.plan import resolve

    if study.input == "pipeline":
        raise BadInput("--describe has scripts with preloaded data only; leave out --input pipeline")
    plan = resolve(study)
    steps = study.steps or STEPS
    scripts = {cell: _script(plan, cell, steps) for cell in plan.cells if cell.repeat == 1}
    for cell, script in scripts.items():
        if script is None:
            echo(f"# {cell.name}: {_why_none(plan, cell)}\n")
        elif folder is None:
            _print(plan, cell, script, steps)
    found = [script for script in scripts.values() if script is not None]
    if folder is not None and found:
        _write(plan, found, steps, folder)


def _script(plan: Plan, cell: Cell, steps: int) -> Script | None:
    from polybench.plain import extension, plain_script
    from polybench.plain.folder import Script

    text = plain_script(cell, plan.workload_of(cell), steps)
    if text is None:
        return None
    name = cell.name.replace("/", "_").replace(":", "")
    return Script(f"{name}{extension(cell)}", text, [*_before(plan), *_program(plan, cell)])


def _program(plan: Plan, cell: Cell) -> list[str]:
    """What runs the cell's script: its environment's own Python or Julia, if it has one."""
    from polybench.plain import plain_command
    from polybench.planning.environments import place_of
    from polybench.planning.plan import row

    place = place_of(cell, row(cell), plan.study.env)
    try:
        _, [program, *options, _] = plain_command(cell, plan.workload, Path())
    except Unavailable:  # Julia is on another machine
        program, options = "julia", []
    if place.project is not None:
        options = [option for option in options if not option.startswith("--project")]
        options.append(f"--project={place.project}")
    return [place.python or program, *options]


def _why_none(plan: Plan, cell: Cell) -> str:
    from polybench.plain import NETWORKS, OF_TOKENS, why_none
    from polybench.plain.layer import KINDS
    from polybench.planning.follow_ups import command_line

    networks = (*NETWORKS, *OF_TOKENS)
    text = f"no plain script for {why_none(cell, plan.workload_of(cell))}"
    if plan.model.name in networks:
        return text
    study = plan.study
    asked = Study(study.engines, study.devices, env=study.env, model=study.model, data=study.data)
    layers = command_line("layers", asked, "--script", "FOLDER")
    said = f"{text}; they are written by hand, for {', '.join(networks)}"
    return f"{said}; of the layer that loses most, if it is one of {KINDS}: {layers}"


def _print(plan: Plan, cell: Cell, script: Script, steps: int) -> None:
    study = plan.study
    if plan.model.unit != "image":
        echo("# Sequences are in no file that it reads; to have one: --describe FOLDER\n")
    elif study.data == "synthetic":
        echo("# Synthetic images are in no file; to have one: --describe FOLDER\n")
    inputs = [
        "polybench", "weights", "--model", plan.model.name, "--seed", str(study.seed),
        "--batch-size", str(plan.workload.batch_size), "--steps", str(UNTIMED_STEPS + steps),
        "--data", study.data, "--output", "START.npz",
    ]  # fmt: skip
    common = "heap and cores" if plan.cpus else "heap"
    echo(f"# {cell.name}\n# Its START.npz: {shlex.join(inputs)}")
    if cell.environment is not None:
        echo(f"# Its environment: {study.env[cell.environment]}")
    echo(f"# To have the {common} of polybench's workers, run it with: {shlex.join(_before(plan)[1:])}")
    echo(script.text)


def _before(plan: Plan) -> list[str]:
    """What stands before the command of a script, in a shell."""
    from polybench.wire.environment import heap_environment

    heap = [f"{name}={value}" for name, value in heap_environment(plan.study.heap).items()]
    return ["env", *heap, *(["taskset", "-c", ",".join(map(str, plan.cpus))] if plan.cpus else [])]


def _write(plan: Plan, scripts: list[Script], steps: int, folder: Path) -> None:
    from polybench.data.batches import batch_stream
    from polybench.measuring.scratch import scratch_folder
    from polybench.models.initial_weights import initial_weights
    from polybench.plain.folder import RUN, write_folder
    from polybench.planning.shared_files import dataset_of

    study, model = plan.study, plan.model
    try:
        no_folder = folder.exists() and not folder.is_dir()
    except OSError as error:
        raise BadInput(f"--describe {folder}: {error.strerror}; name another folder") from error
    if no_folder:
        raise BadInput(f"--describe {folder}: that is no folder; name another one")
    with scratch_folder() as scratch:
        dataset = dataset_of(study, model, scratch)
        batches = batch_stream(
            len(dataset.labels), plan.workload.batch_size, study.seed, UNTIMED_STEPS + steps
        )
        write_folder(folder, dataset, batches, initial_weights(model, study.seed), scripts)
    said = f"{', '.join(script.file for script in scripts)} in {folder}, on {dataset.name}"
    echo(f"{said}; run all: {shlex.quote(str(folder / RUN))}", err=True)
