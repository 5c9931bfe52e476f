"""The plain scripts: what is timed, as a framework's user writes it, without anything of polybench.

Readers see them with `--describe`; benchmarks/process_overhead.py races polybench against them. A script
runs as it stands; a study's settings replace the constants at its top. None is named like the framework that
it imports: beside a `tensorflow.py`, `import tensorflow` would find that.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping
from importlib import resources
from pathlib import Path

from polybench.core.optimizers import Optimizer
from polybench.core.spec import UNTIMED_STEPS, Cell, Workload
from polybench.julia.environment import threads
from polybench.julia.finding import check, find

_SCRIPTS = {
    ("flux", "lenet"): "lenet_flux.jl",
    ("torch", "lenet"): "lenet_pytorch.py",
    ("tf", "lenet"): "lenet_tensorflow.py",
}
_VARIANTS = {"flux": ("default_threads",), "torch": ("channels_last", "compile"), "tf": ("xla",)}
"""Those that are a constant in the script."""


def plain_script(cell: Cell, workload: Workload, steps: int) -> str | None:
    """The script that trains this cell's network and times `steps` steps; None if there is none."""
    name = _name(cell, workload)
    optimizer = workload.optimizer
    if name is None or workload.precision == "bf16" or not _plain_momentum(optimizer):
        return None
    constants: dict[str, object] = {
        "DEVICE": cell.device,
        "THREADS": workload.threads,
        "TF32": workload.precision == "tf32",
        "LEARNING_RATE": optimizer.learning_rate,
        "MOMENTUM": optimizer.momentum,
        "UNTIMED_STEPS": UNTIMED_STEPS,
        "STEPS": steps,
    }
    if name.endswith(".jl"):
        if cell.device != "cpu":
            return None
        julia_threads, blas_threads = threads(workload.threads, cell.variants)
        del constants["THREADS"]
        return render(name, constants | {"JULIA_THREADS": julia_threads, "BLAS_THREADS": blas_threads})
    switches = _VARIANTS[cell.engine]
    return render(name, constants | {switch.upper(): switch in cell.variants for switch in switches})


def plain_command(cell: Cell, workload: Workload, folder: Path) -> tuple[Path, list[str]]:
    """Where to write a cell's plain script, and the command that runs it, without the script's arguments.

    Raises:
        Unavailable: what runs it is not on this machine.
    """
    name = _name(cell, workload)
    assert name is not None
    script = folder / f"plain_script{Path(name).suffix}"
    if script.suffix == ".py":
        return script, [sys.executable, str(script)]
    check(julia := find())
    julia_threads, _ = threads(workload.threads, cell.variants)
    options = [f"--project={julia.project}", "--startup-file=no", f"--threads={julia_threads}"]
    return script, [julia.executable, *options, str(script)]


def _plain_momentum(optimizer: Optimizer) -> bool:
    """Whether this is the optimizer that the scripts have: with any rate and momentum, and nothing else."""
    plain = Optimizer("momentum", optimizer.learning_rate, optimizer.momentum)
    return optimizer.name == "momentum" and optimizer == plain


def _name(cell: Cell, workload: Workload) -> str | None:
    known = set(cell.variants) <= set(_VARIANTS.get(cell.engine, ()))
    return _SCRIPTS.get((cell.engine, workload.model)) if known else None


def render(name: str, constants: Mapping[str, object]) -> str:
    """The script of this file name with other values for its constants.

    Raises:
        KeyError: the script has no such constant.
    """
    # JSON writes texts, numbers and truth values as Julia does.
    literal = json.dumps if name.endswith(".jl") else repr
    text = resources.files(__package__).joinpath(name).read_text("utf-8")
    for constant, value in constants.items():
        text, found = re.subn(
            rf"^((?:const )?{constant}) = .*$", rf"\g<1> = {literal(value)}", text, flags=re.MULTILINE
        )
        if not found:
            raise KeyError(constant)
    return text
