"""What a worker is raced against: programs that train the same network, and live as long as the worker.

`plain` is the script of `--describe`, with a loop at its end that repeats its steps for every line that it
reads: from the same weights each time, as the blocks of a worker, since what a step takes may depend on the
numbers in it. `independent` is a program of `programs/`, which shares no line with polybench or its scripts;
it has random images and weights of its own. `bench` is the Julia package's function of that name, for flux.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from _study import Inputs

from polybench.core.spec import Cell
from polybench.engines.flux.julia.finding import check, find
from polybench.engines.flux.julia.package import package_folder
from polybench.plain import plain_command, plain_script
from polybench.wire.environment import heap_environment, inherited

OPPONENTS = ("plain", "independent")
BENCH = "bench"
_PROGRAMS = Path(__file__).parent / "programs"
_INDEPENDENT = {"flux": "independent_flux.jl", "torch": "independent_torch.py", "tf": "independent_tf.py"}

_KEEP = {
    "torch": "kept, drawn = [one.clone() for one in model.state_dict().values()], torch.get_rng_state()",
    "tf": "kept = [variable.numpy() for variable in model.variables]",
    "keras": "kept = [variable.numpy() for variable in model.variables]",
    "flux": "import Random; kept, drawn = deepcopy((model, state)), copy(Random.default_rng())",
}
"""What a plain script does before its training begins, so that it can begin again: dropout's masks, too."""

_RESTART_KERAS = """
    for variable, value in zip(model.variables, kept, strict=True):
        variable.assign(value)
    for variable in optimizer.variables:
        if variable is not optimizer.learning_rate:
            variable.assign(np.zeros(variable.shape))
"""
_RESTART = {
    "torch": """
    torch.set_rng_state(drawn)
    with torch.no_grad():
        for tensor, value in zip(model.state_dict().values(), kept, strict=True):
            tensor.copy_(value)
    for state in optimizer.state.values():
        for value in state.values():
            if torch.is_tensor(value):
                value.zero_()
""",
    "tf": _RESTART_KERAS,
    "keras": f"""
    optimizer = model.optimizer
{_RESTART_KERAS}
""",
}
_AGAIN_PYTHON = """
for _ in sys.stdin:
    {restart}
    for batch in batches[:UNTIMED_STEPS]:
        loss = train_step(*batch)
    seconds = []
    for batch in batches[UNTIMED_STEPS:]:
        begin = time.perf_counter()
        loss = train_step(*batch)
        seconds.append(time.perf_counter() - begin)
    print(json.dumps({{"step_seconds": seconds, "losses": [float(loss)]}}), flush=True)
"""
_AGAIN_JULIA = """
for _ in eachline(stdin)
    copy!(Random.default_rng(), drawn)
    local seconds, losses = train!(deepcopy(kept)..., batches)
    timed = join(seconds[(UNTIMED_STEPS + 1):end], ", ")
    println("{\\"step_seconds\\": [", timed, "], \\"losses\\": [", losses[end], "]}")
    flush(stdout)
end
"""
_TRAINING_BEGINS = re.compile(r"^(seconds, )?losses = ", re.MULTILINE)


class Opponent:
    """A live program; `pid` is its own."""

    def __init__(self, name: str, process: subprocess.Popen[str], log: Path) -> None:
        self.pid = process.pid
        self._name, self._process, self._log = name, process, log

    def block(self) -> list[float]:
        """Seconds of the steps of one more block; of an independent program, their median alone."""
        assert self._process.stdin
        with contextlib.suppress(BrokenPipeError):  # `answer` tells how it ended
            self._process.stdin.write("\n")
            self._process.stdin.flush()
        return self.answer()

    def answer(self) -> list[float]:
        """Of the block that it is in."""
        assert self._process.stdout
        line = self._process.stdout.readline()
        if not line:
            sys.exit(f"{self._name} ended with {self._process.wait()}:\n{self._log.read_text()}")
        said = json.loads(line)
        seconds: list[float] = said.get("step_seconds") or [said["median_step_seconds"]]
        return seconds


@contextlib.contextmanager
def opponent(which: str, given: Inputs, cell: Cell, steps: int) -> Iterator[Opponent]:
    """Start one; it has trained nothing yet, or is about to begin with a block of its own.

    Raises:
        Unavailable: what runs it is not on this machine.
    """
    command = {"plain": _plain, "independent": _independent, BENCH: _bench}[which](given, cell, steps)
    environment = inherited(os.environ) | heap_environment(given.plan.study.heap)
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
            start_new_session=True,  # as a worker: where the kernel shares out the CPU by session, it is fair
        ) as process,
    ):
        try:
            yield Opponent(f"the {which} program of {cell.name}", process, log)
        finally:
            process.kill()


def _plain(given: Inputs, cell: Cell, steps: int) -> list[str]:
    text = plain_script(cell, given.plan.workload, steps)
    assert text is not None, f"{cell.name} has no plain script"
    script, command = plain_command(cell, given.plan.workload, given.scratch)
    script.write_text(_repeated(text, cell.engine))
    return [*command, str(given.start), str(given.data)]


def _repeated(text: str, engine: str) -> str:
    """The script, which trains again from its beginning whenever it reads a line."""
    if engine not in _KEEP:
        sys.exit(f"the plain script of {engine} is not written to begin again; {', '.join(_KEEP)} are")
    begin = _TRAINING_BEGINS.search(text)
    assert begin, f"the plain script of {engine} trains where nobody finds it"
    again = _AGAIN_JULIA if engine == "flux" else _AGAIN_PYTHON.format(restart=_RESTART[engine].strip())
    return f"{text[: begin.start()]}{_KEEP[engine]}\n{text[begin.start() :]}{again}"


def _independent(given: Inputs, cell: Cell, steps: int) -> list[str]:
    workload, program = given.plan.workload, str(_PROGRAMS / _INDEPENDENT[cell.engine])
    arguments = [workload.model, str(workload.batch_size), str(workload.threads), str(steps)]
    if not program.endswith(".jl"):
        return [sys.executable, program, *arguments]
    return _julia(workload.threads, program, *arguments)


def _bench(given: Inputs, _cell: Cell, steps: int) -> list[str]:
    workload = given.plan.workload
    arguments = (workload.model, str(workload.batch_size), str(steps), str(given.data))
    program = str(_PROGRAMS / "bench_flux.jl")
    return _julia(workload.threads, program, str(package_folder()), *arguments)


def _julia(threads: int, program: str, *arguments: str) -> list[str]:
    check(julia := find())
    options = [f"--project={julia.project}", "--startup-file=no", f"--threads={threads}"]
    return [julia.executable, *options, program, *arguments]
