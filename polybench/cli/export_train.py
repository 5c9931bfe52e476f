"""`polybench export --train`: plain programs that do what is timed, for readers to check and run."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from polybench.cli.output import echo
from polybench.errors import BadInput
from polybench.schema.options import WARMUP_STEPS_PER_BLOCK, Configuration, Study

if TYPE_CHECKING:
    from polybench.planning.plan import Plan
    from polybench.scripts.script_folder import PlainScript


def export_training(study: Study, steps: int, output: Path | None) -> None:
    """Print the program of each configuration, or write all of them into a folder with what they need to run.

    They train this many steps and time all but the first ones. The output for a single configuration is a complete
    program. A configuration that has none is a comment with the reason.
    """
    from polybench.networks.source_text import comment
    from polybench.planning.plan import resolve

    if study.input == "pipeline":
        raise BadInput("--input pipeline: programs exist for preloaded data only: leave it out")
    if steps <= WARMUP_STEPS_PER_BLOCK:
        untimed = WARMUP_STEPS_PER_BLOCK
        raise BadInput(f"--steps {steps}: a program does not time its first {untimed}: try --steps {untimed + 1}")
    plan = resolve(study)
    found = {
        configuration: _script(plan, configuration, steps)
        for configuration in plan.configurations
        if configuration.repeat == 1
    }
    for configuration, script in found.items():
        if script is None:
            echo(f"{comment(f'{configuration.name}: {_unsupported_reason(plan, configuration)}')}\n")
        elif output is None:
            _print(plan, configuration, script, steps)
    written = [script for script in found.values() if script is not None]
    if output is not None and written:
        _write(plan, written, steps, output)


def _script(plan: Plan, configuration: Configuration, steps: int) -> PlainScript | None:
    from polybench.runner.cold_start import plain_script

    script = plain_script(plan, configuration, steps - WARMUP_STEPS_PER_BLOCK)
    return script and script._replace(command=[*_shell_prefix(plan), *script.command])


def _unsupported_reason(plan: Plan, configuration: Configuration) -> str:
    from polybench.scripts import unsupported_reason

    return f"no plain program for {unsupported_reason(configuration, plan.workload_of(configuration), plan.model)}"


def _print(plan: Plan, configuration: Configuration, script: PlainScript, steps: int) -> None:
    from polybench.networks.source_text import comment
    from polybench.scripts.script_folder import INITIAL_STATE

    study = plan.study
    if plan.model.input_kind != "image":
        echo("# It reads sequences from a file; write one with: polybench export --train -o FOLDER\n")
    elif study.data == "synthetic":
        echo("# It reads synthetic images from a file; write one with: polybench export --train -o FOLDER\n")
    command = [
        "polybench", "export", "--weights", "--model", plan.model.name, "--seed", str(study.seed),
        "--batch-size", str(plan.workload.batch_size), "--steps", str(steps),
        "--data", study.data, "--output", INITIAL_STATE,
    ]  # fmt: skip
    settings = "malloc policy and CPUs" if plan.cpus else "malloc policy"
    echo(comment(configuration.name))
    echo(comment(f"{INITIAL_STATE} comes from: {shlex.join(command)}"))
    if configuration.environment is not None:
        echo(comment(f"Its environment: {study.env[configuration.environment]}"))
    echo(comment(f"To use the {settings} of polybench's workers, run it with: {shlex.join(_shell_prefix(plan)[1:])}"))
    echo(script.text)


def _shell_prefix(plan: Plan) -> list[str]:
    """Return the words of a shell command before the interpreter: malloc policy and CPUs."""
    from polybench.protocol.environment import malloc_env_vars

    variables = [f"{name}={value}" for name, value in malloc_env_vars(plan.study.malloc).items()]
    return ["env", *variables, *(["taskset", "-c", ",".join(map(str, plan.cpus))] if plan.cpus else [])]


def _write(plan: Plan, scripts: list[PlainScript], steps: int, folder: Path) -> None:
    from polybench.data.batches import batch_stream
    from polybench.networks.initial_weights import initial_weights
    from polybench.planning.shared_files import dataset_of
    from polybench.runner.scratch import scratch_folder
    from polybench.scripts.script_folder import RUN, write_folder

    study, model = plan.study, plan.model
    try:
        is_file = folder.exists() and not folder.is_dir()
    except OSError as error:
        raise BadInput(f"--output {folder}: {error.strerror}; name another folder") from error
    if is_file:
        raise BadInput(f"--output {folder}: not a folder; name another one")
    with scratch_folder() as scratch:
        dataset = dataset_of(study, model, scratch)
        batches = batch_stream(len(dataset.labels), plan.workload.batch_size, study.seed, steps)
        write_folder(folder, dataset, batches, initial_weights(model, study.seed), scripts)
    files = ", ".join(script.file for script in scripts)
    echo(f"wrote {files} to {folder}, on {dataset.name}; run all: {shlex.quote(str(folder / RUN))}", err=True)
