"""Starts the program of each configuration alone on the machine, as in a user's first run.

It is the program of `polybench export --train`, or a user's own, with a clock: what polybench's workers add is not in
these times.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from polybench.data.batches import batch_stream
from polybench.errors import BadInput, ConfigurationFailed, EngineUnavailable
from polybench.log import ProgramStarted
from polybench.machine import interrupts
from polybench.networks.initial_weights import initial_weights
from polybench.planning.environments import resolve_environment
from polybench.planning.plan import Plan, engine_spec
from polybench.planning.schedule import order_of_round
from polybench.protocol.environment import inherited_env_vars
from polybench.protocol.process import last_log_lines
from polybench.runner.configuration_run import ConfigurationRun
from polybench.runner.session import Session
from polybench.schema.options import WARMUP_STEPS_PER_BLOCK, Configuration, is_program
from polybench.schema.result import Startup
from polybench.scripts import make_command, make_script, make_start, unsupported_reason
from polybench.scripts.script_folder import IMAGES, INITIAL_STATE, PlainScript, file_name, write_folder

_TIMED_STEPS = 1
"""After the untimed ones; a program has at least one."""


def starts_alone(plan: Plan, configuration: Configuration) -> bool:
    """Return True if the cold start of a configuration is that of its program, False if none runs on this machine."""
    workload = plan.workload_of(configuration)
    if plan.study.input != "preload":
        return False
    if not is_program(configuration.engine) and unsupported_reason(configuration, workload, model=plan.model):
        return False
    try:
        _interpreter(plan, configuration)
    except EngineUnavailable:  # its worker says what is missing
        return False
    return True


def start_programs(session: Session) -> None:
    """Start each program as often as the study asks for, in turn, and record the phases of each start.

    A program that fails is a warning.
    """
    plan, count = session.plan, session.plan.study.cold_starts
    missing = [
        run for run in session.active_runs if len(run.program_starts) < count and starts_alone(plan, run.configuration)
    ]
    if not missing:
        return
    with session.phase_timer.phase("cold_starts"):
        try:
            programs = _write_programs(session, missing)
        except (BadInput, OSError) as error:  # what was measured remains
            session.warn(f"no cold starts: the programs cannot be written: {error}", names=True)
            return
        for number in range(count):
            for run in order_of_round(missing, plan.study.seed, number, 0):
                if len(run.program_starts) == number:
                    _record_start(session, run, programs[run.configuration.name])
    session.check_log()


class Program(NamedTuple):
    """The command that runs a program in its folder, with all arguments."""

    command: Sequence[str]
    folder: Path


def _write_programs(session: Session, runs: Sequence[ConfigurationRun]) -> dict[str, Program]:
    """Write all programs into a folder with the data, weights and batches of their steps, and return their commands."""
    plan, folder = session.plan, session.scratch / "programs"
    weights = initial_weights(plan.model, plan.study.seed)
    scripts: dict[str, PlainScript] = {}
    for run in runs:
        scripts[run.configuration.name] = program_with_clock(plan, run.configuration)
    dataset, steps = session.files.dataset, WARMUP_STEPS_PER_BLOCK + _TIMED_STEPS
    batches = batch_stream(len(dataset.labels), plan.workload.batch_size, plan.study.seed, steps)
    write_folder(folder, dataset, batches, weights, list(scripts.values()))
    pinned = ["taskset", "-c", ",".join(map(str, plan.cpus))] if plan.cpus else []
    return {
        name: Program([*pinned, *one.command, one.file, INITIAL_STATE, IMAGES], folder) for name, one in scripts.items()
    }


def program_with_clock(plan: Plan, configuration: Configuration) -> PlainScript:
    """Return the program of a configuration that `starts_alone`; it prints the end of each phase of its start."""
    name, command = configuration.name, _interpreter(plan, configuration)
    if (source := plan.programs.get(configuration.engine)) is not None:
        return PlainScript(file_name(name), make_start(source, plan.job(configuration), _TIMED_STEPS), command)
    text = make_script(
        configuration, plan.workload_of(configuration), _TIMED_STEPS, plan.model, plan.study.seed, clocked=True
    )
    assert text is not None, name  # as `starts_alone` says
    return PlainScript(file_name(name), text, command)


def plain_script(plan: Plan, configuration: Configuration, timed_steps: int) -> PlainScript | None:
    """Return a configuration's program with the command that runs it; None without one."""
    workload = plan.workload_of(configuration)
    text = make_script(configuration, workload, timed_steps, plan.model, plan.study.seed)
    if text is None:
        return None
    try:
        command = _interpreter(plan, configuration)
    except EngineUnavailable:  # the program runs on another machine
        command = ["julia"]
    return PlainScript(file_name(configuration.name), text, command)


def _interpreter(plan: Plan, configuration: Configuration) -> list[str]:
    """Return the command that runs a program: Python or Julia, from the configuration's environment if any.

    Raises EngineUnavailable if it is not on this machine.
    """
    environment = resolve_environment(configuration, engine_spec(configuration), plan.study.env)
    _, [program, *options, _] = make_command(configuration, plan.workload, Path())
    if environment.project is not None:
        options = [option for option in options if not option.startswith("--project")]
        options.append(f"--project={environment.project}")
    return [environment.python or program, *options]


def _record_start(session: Session, run: ConfigurationRun, program: Program) -> None:
    name = run.configuration.name
    log = session.logs / f"{file_name(name)}.log"
    session.progress.on_stage(f"starting the program of {name} alone")
    session.idle_wait.wait_until_idle()
    first_run = engine_spec(run.configuration).first_run_environment
    environment = {**inherited_env_vars(os.environ), **run.env_vars, **first_run}
    try:
        started = start_program(program, environment, log, session.plan.study.timeout)
    except (ConfigurationFailed, OSError) as error:
        what = "the program" if is_program(run.configuration.engine) else "the program of polybench export --train"
        run.warn(f"no cold start: {what}, started alone, {error}")
    else:
        run.record(ProgramStarted(configuration=name, startup=started.startup, losses=started.losses))


class Started(NamedTuple):
    """Phases of a start, and the losses of the first steps."""

    startup: Startup
    losses: list[float | None]


def start_program(program: Program, environment: Mapping[str, str], log: Path, timeout: float) -> Started:
    """Run a program to its end, and return what its clock says; its standard error goes to `log`.

    Raises ConfigurationFailed if it fails, or does not end within `timeout` seconds.
    """
    log.parent.mkdir(parents=True, exist_ok=True)  # a resumed study may start no worker before
    begun = time.monotonic()
    with (
        log.open("ab") as errors,
        subprocess.Popen(
            program.command,
            cwd=program.folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=errors,
            start_new_session=True,
        ) as process,
    ):
        try:
            with interrupts.interruptible():
                output, _ = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            raise ConfigurationFailed(f"did not end within {timeout:g} s") from None
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
    if process.returncode:
        last = (last_log_lines(log) or ["it printed no error"])[-1]
        raise ConfigurationFailed(f"ended with code {process.returncode}: {last}")
    return _read_clock(output, begun)


class _Printed(msgspec.Struct):
    """The last line of a program with a clock: the end of each phase, by the system's monotonic clock."""

    clock: list[tuple[str, float]]
    losses: list[float | None]


def _read_clock(output: bytes, begun: float) -> Started:
    try:
        printed = msgspec.json.decode((output.splitlines() or [b""])[-1], type=_Printed)
        ends = [begun, *(end for _, end in printed.clock)]
        seconds = {f"{name}_seconds": end - start for (name, end), start in zip(printed.clock, ends, strict=False)}
        startup = msgspec.convert(seconds, Startup)
    except msgspec.MsgspecError as error:
        raise ConfigurationFailed(f"printed no times of its phases: {error}") from None
    return Started(startup, printed.losses)
