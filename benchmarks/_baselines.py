"""Baselines for a worker: programs that train the same network and stay alive as long as the worker.

`plain` is the program of `polybench export --train`, with a loop at its end that repeats its steps for every line on
standard input. It restarts from the same weights each time, like a worker's timing blocks, because the time of a
step can depend on its numbers. `independent` is a program of `programs/`, which shares no code with polybench and
has its own random images and weights. `nanogpt` is the network of nanoGPT's author, from the folder that the variable
NANOGPT names, for `char-gpt` and torch. `bench` is the function of the Julia package, for flux.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from _study import Inputs

from polybench.engines.flux.julia.discovery import check, find
from polybench.engines.flux.julia.environment import own_environment
from polybench.protocol.environment import inherited_env_vars, malloc_env_vars
from polybench.schema.options import Configuration
from polybench.scripts import make_command, make_script

BASELINES = ("plain", "independent")
BENCH = "bench"
NANOGPT = "nanogpt"
_PROGRAMS = Path(__file__).parent / "programs"
_INDEPENDENT = {
    "flux": "independent_flux.jl",
    "torch": "independent_torch.py",
    "tf": "independent_tf.py",
    "jax": "independent_jax.py",
}

_AGAIN = """
    initial = weights(state)
    for _ in sys.stdin:
        reset(state, initial)
        first, *_ = [train_step(state, batch) for batch in batches[:UNTIMED_STEPS]]
        seconds = []
        for batch in timed:
            begin = time.perf_counter()
            loss = train_step(state, batch)
            # <wait>
            seconds.append(time.perf_counter() - begin)
        print(json.dumps({"step_seconds": seconds, "losses": [float(first), float(loss)]}), flush=True)
"""
_AGAIN_JULIA = r"""
    initial = weights(state)
    for _ in eachline(stdin)
        reset!(state, initial)
        seconds, losses = Float64[], DTYPE[]
        for batch in batches
            begun = time_ns()
            loss = train_step!(state, batch)
            push!(seconds, (time_ns() - begun) / 1.0e9)
            push!(losses, loss)
        end
        timed = join(seconds[(UNTIMED_STEPS + 1):end], ", ")
        println("{\"step_seconds\": [$timed], \"losses\": [$(first(losses)), $(last(losses))]}")
        flush(stdout)
    end
    return nothing
end

main(ARGS...)
"""


class Baseline:
    """A live program and its process ID."""

    def __init__(self, name: str, process: subprocess.Popen[str], log: Path) -> None:
        self.pid = process.pid
        self._name, self._process, self._log = name, process, log

    def block(self) -> list[float]:
        """Seconds of the steps of another block; an independent program returns only their median."""
        assert self._process.stdin
        with contextlib.suppress(BrokenPipeError):  # `answer` reports how it ended
            self._process.stdin.write("\n")
            self._process.stdin.flush()
        return self.answer()

    def answer(self) -> list[float]:
        """Losses of the last block."""
        assert self._process.stdout
        line = self._process.stdout.readline()
        if not line:
            sys.exit(f"{self._name} ended with {self._process.wait()}:\n{self._log.read_text()}")
        said = json.loads(line)
        seconds: list[float] = said.get("step_seconds") or [said["median_step_seconds"]]
        return seconds


@contextlib.contextmanager
def start_baseline(which: str, given: Inputs, configuration: Configuration, steps: int) -> Iterator[Baseline]:
    """Start a program; it has trained nothing yet, or starts with a first block.

    Raises:
        EngineUnavailable: its interpreter is not on this machine.
    """
    make = {"plain": _plain, "independent": _independent, NANOGPT: _nanogpt, BENCH: _bench}[which]
    command = make(given, configuration, steps)
    environment = inherited_env_vars(os.environ) | malloc_env_vars(given.plan.study.malloc)
    log = given.scratch / f"{which}.log"
    with (
        log.open("w") as errors,
        subprocess.Popen(
            command,
            env={**environment, "PYTHONUNBUFFERED": "1", "TF_CPP_MIN_LOG_LEVEL": "2"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            start_new_session=True,  # like a worker: a fair share if the kernel schedules by session
        ) as process,
    ):
        try:
            yield Baseline(f"the {which} program of {configuration.name}", process, log)
        finally:
            process.kill()


def _plain(given: Inputs, configuration: Configuration, steps: int) -> list[str]:
    text = make_script(configuration, given.plan.workload, steps, given.plan.model, given.plan.study.seed)
    assert text is not None, f"{configuration.name} has no plain script"
    script, command = make_command(configuration, given.plan.workload, given.scratch)
    script.write_text(_repeated(text, configuration.engine))
    return [*command, str(given.start), str(given.data)]


def _repeated(text: str, engine: str) -> str:
    """Return the program with a loop that restarts the training for each line on standard input."""
    start = "    seconds, losses = " if engine == "flux" else "    losses = ["
    beginning, found, _ = text.partition(start)
    assert found, f"the program of {engine} has no line that starts the training"
    if engine == "flux":
        return f"{beginning.rstrip()}{_AGAIN_JULIA}"
    wait = "jax.block_until_ready((state, loss))" if engine == "jax" else ""
    again = _AGAIN.replace("# <wait>", wait)
    return f"{beginning}    timed = batches[UNTIMED_STEPS : UNTIMED_STEPS + STEPS]{again}"


def _independent(given: Inputs, configuration: Configuration, steps: int) -> list[str]:
    workload, program = given.plan.workload, str(_PROGRAMS / _INDEPENDENT[configuration.engine])
    arguments = [workload.model, str(workload.batch_size), str(workload.threads), str(steps)]
    if not program.endswith(".jl"):
        return [sys.executable, program, *arguments]
    return _julia(workload.threads, program, *arguments)


def _nanogpt(given: Inputs, _configuration: Configuration, steps: int) -> list[str]:
    workload, program = given.plan.workload, _PROGRAMS / "nanogpt_torch.py"
    folder = os.environ.get("NANOGPT", "")
    if not Path(folder, "model.py").exists():
        sys.exit(f"no model.py in NANOGPT={folder!r}: expected the folder of a copy of nanoGPT: set NANOGPT")
    return [sys.executable, str(program), folder, *map(str, (workload.batch_size, workload.threads, steps))]


def _bench(given: Inputs, _cell: Configuration, steps: int) -> list[str]:
    workload = given.plan.workload
    arguments = (workload.model, str(workload.batch_size), str(steps), str(given.data))
    program = str(_PROGRAMS / "bench_flux.jl")
    return _julia(workload.threads, program, *arguments)


def _julia(threads: int, program: str, *arguments: str) -> list[str]:
    check(julia := find())
    options = [f"--project={own_environment(julia).project}", "--startup-file=no", f"--threads={threads}"]
    return [julia.executable, *options, program, *arguments]
