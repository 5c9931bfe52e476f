"""The plain scripts: what is timed, as a framework's user writes it, without anything of polybench.

Readers see them with `--describe`; benchmarks/process_overhead.py races polybench against them. A script
runs as it stands; a study's settings replace the constants at its top. None is named like the framework that
it imports: beside a `tensorflow.py`, `import tensorflow` would find that.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from importlib import resources

from polybench.core.spec import UNTIMED_STEPS, Cell, Workload

_SCRIPTS = {("torch", "lenet"): "lenet_pytorch.py", ("tf", "lenet"): "lenet_tensorflow.py"}
_VARIANTS = {"torch": ("channels_last", "compile"), "tf": ("xla",)}
"""Those that are a constant in the script."""


def plain_script(cell: Cell, workload: Workload, steps: int) -> str | None:
    """The script that trains this cell's network and times `steps` steps; None if there is none."""
    name = _SCRIPTS.get((cell.engine, workload.model))
    switches = _VARIANTS.get(cell.engine, ())
    optimizer = workload.optimizer
    if name is None or not set(cell.variants) <= set(switches) or workload.precision == "bf16":
        return None
    constants = {
        "DEVICE": cell.device,
        "THREADS": workload.threads,
        "TF32": workload.precision == "tf32",
        "LEARNING_RATE": optimizer.learning_rate,
        "MOMENTUM": optimizer.momentum,
        "UNTIMED_STEPS": UNTIMED_STEPS,
        "STEPS": steps,
    }
    return render(name, constants | {switch.upper(): switch in cell.variants for switch in switches})


def render(name: str, constants: Mapping[str, object]) -> str:
    """The script of this file name with other values for its constants.

    Raises:
        KeyError: the script has no such constant.
    """
    text = resources.files(__package__).joinpath(name).read_text("utf-8")
    for constant, value in constants.items():
        text, found = re.subn(rf"^{constant} = .*$", f"{constant} = {value!r}", text, flags=re.MULTILINE)
        if not found:
            raise KeyError(constant)
    return text
