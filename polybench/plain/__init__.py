"""The plain scripts: what is timed, as a framework's user writes it, without anything of polybench.

Readers see them with `--describe`; benchmarks/process_overhead.py races polybench against them. An engine has
one script that trains, `train_*`, and a file for each network, which takes the place of the line that imports
`lenet`; a study's settings replace the script's constants. None is named like the framework that it imports:
beside a `tensorflow.py`, `import tensorflow` would find that.
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
from polybench.engines import ENGINES
from polybench.engines.flux.julia.bounds import PACKAGES, SCRIPTS
from polybench.engines.flux.julia.environment import threads
from polybench.engines.flux.julia.finding import check, find

STEPS = 58
"""Timed steps of a script if the study leaves them to the measured speed."""

# ADD A NETWORK: its name, and a file for each engine.
NETWORKS = ("lenet", "resnet32", "rosetta")
_SCRIPTS = {
    "flux": "train_flux.jl",
    "torch": "train_pytorch.py",
    "tf": "train_tensorflow.py",
    "jax": "train_jax.py",
    "keras": "train_keras.py",
}
OF_TOKENS = ("imdb-bilstm",)
"""Networks that take tokens, which the scripts `train_tokens_*` train."""
_NETWORKS_OF = {"keras": "tensorflow"}
"""Whose networks a script takes that has none of its own."""
_VARIANTS = {
    "flux": tuple(name for name, variant in ENGINES["flux"].variants.items() if variant.pools),
    "torch": ("channels_last", "compile", "foreach"),
    "tf": ("eager", "xla"),
    "keras": ("jax", "torch"),
}
"""Those that are a constant in the script."""
_VARIANTS_OF_TOKENS = {"flux": _VARIANTS["flux"]}


def plain_script(cell: Cell, workload: Workload, steps: int) -> str | None:
    """The script that trains this cell's network and times `steps` steps; None if there is none."""
    if why_none(cell, workload, steps):
        return None
    optimizer, of_tokens = workload.optimizer, workload.model in OF_TOKENS
    constants: dict[str, object] = {
        "LEARNING_RATE": optimizer.learning_rate,
        "UNTIMED_STEPS": UNTIMED_STEPS,
        "STEPS": steps,
    }
    if not of_tokens:
        constants["MOMENTUM"] = optimizer.momentum
    if cell.engine == "flux":
        julia_threads, blas_threads = threads(workload.threads, cell.variants)
        constants |= {"JULIA_THREADS": julia_threads, "BLAS_THREADS": blas_threads}
    else:
        constants["THREADS"] = workload.threads
    if cell.engine != "keras":
        constants |= {"DEVICE": cell.device, "TF32": workload.precision == "tf32"}
    elif not of_tokens:
        constants["BACKEND"] = cell.variant or "tensorflow"
    if cell.engine in ("torch", "tf"):
        constants |= {switch.upper(): switch in cell.variants for switch in _variants(cell, workload)}
    return render(script_of(cell, workload), workload.model, constants)


def script_of(cell: Cell, workload: Workload) -> str:
    """The file that trains this cell's network; "" where there is none."""
    script = _SCRIPTS.get(cell.engine, "")
    return script.replace("train_", "train_tokens_") if workload.model in OF_TOKENS else script


def _variants(cell: Cell, workload: Workload) -> tuple[str, ...]:
    """Those that the cell's script has."""
    return (_VARIANTS_OF_TOKENS if workload.model in OF_TOKENS else _VARIANTS).get(cell.engine, ())


def why_none(cell: Cell, workload: Workload, steps: int = 1) -> str:
    """For what there is no script that takes so many steps, of this cell; "" where there is one."""
    optimizer = workload.optimizer
    plain = _plain_adam if workload.model in OF_TOKENS else _plain_momentum
    in_float32 = ("fp32",) if cell.engine == "keras" else ("fp32", "tf32")
    lacking = {
        f"the engine {cell.engine}": cell.engine not in _SCRIPTS,
        f"the variant {cell.variant}": not set(cell.variants) <= set(_variants(cell, workload)),
        f"the network {workload.model}": workload.model not in (*NETWORKS, *OF_TOKENS),
        f"{workload.replicas} replicas": workload.replicas > 1,
        f"the precision {workload.precision}": workload.precision not in in_float32,
        f"{cell.engine} on {cell.device}": cell.engine in ("flux", "keras") and cell.device != "cpu",
        f"the optimizer {optimizer.name} as it is set": not plain(optimizer, UNTIMED_STEPS + steps),
    }
    return next((what for what, lacks in lacking.items() if lacks), "")


def plain_command(cell: Cell, workload: Workload, folder: Path) -> tuple[Path, list[str]]:
    """Where to write a cell's plain script, and the command that runs it, without the script's arguments.

    Raises:
        Unavailable: what runs it is not on this machine.
    """
    script = folder / f"plain_script{Path(_SCRIPTS[cell.engine]).suffix}"
    if script.suffix == ".py":
        return script, [sys.executable, str(script)]
    check(julia := find(), (*PACKAGES, *SCRIPTS))
    julia_threads, _ = threads(workload.threads, cell.variants)
    options = [f"--project={julia.project}", "--startup-file=no", f"--threads={julia_threads}"]
    return script, [julia.executable, *options, str(script)]


def extension(cell: Cell) -> str:
    """Of the name of a file with its script: ".py"."""
    return Path(_SCRIPTS[cell.engine]).suffix


def _plain_momentum(optimizer: Optimizer, steps: int) -> bool:
    """Whether this is the optimizer that the scripts have: with any rate and momentum, and nothing else.

    Nothing is made of a rate that changes only after these steps.
    """
    plain = Optimizer("momentum", optimizer.learning_rate, optimizer.momentum, schedule=optimizer.schedule)
    return optimizer.name == "momentum" and optimizer == plain and len(optimizer.stretches(0, steps)) == 1


def _plain_adam(optimizer: Optimizer, steps: int) -> bool:
    """The same of the scripts for tokens."""
    plain = Optimizer("adam", optimizer.learning_rate, schedule=optimizer.schedule)
    return optimizer == plain and len(optimizer.stretches(0, steps)) == 1


def render(script: str, network: str, constants: Mapping[str, object]) -> str:
    """The script of this file name with another network, and with other values for its constants.

    Raises:
        KeyError: the script has no such constant.
    """
    name, suffix = script.removeprefix("train_").removeprefix("tokens_").split(".")
    network_of = text_of(f"{network.replace('-', '_')}_{_NETWORKS_OF.get(name, name)}.{suffix}")
    text = _with_network(text_of(script), network_of, suffix == "jl")
    text = text.replace("Train `lenet`", f"Train `{network}`", 1)
    # JSON writes texts, numbers and truth values as Julia does.
    literal = json.dumps if script.endswith(".jl") else repr
    return with_constants(text, {constant: literal(value) for constant, value in constants.items()})


def with_constants(text: str, constants: Mapping[str, str]) -> str:
    """A script with other values, written as its language does, for its constants.

    Raises:
        KeyError: the script has no such constant.
    """
    for constant, value in constants.items():
        text, found = re.subn(
            rf"^((?:const )?{constant}) = .*$", rf"\g<1> = {value}", text, flags=re.MULTILINE
        )
        if not found:
            raise KeyError(constant)
    return text


def _with_network(script: str, network: str, julia: bool) -> str:
    """The script with the network's file in place of the line that imports or includes it."""
    if julia:
        before, after = re.split(r'include\("\w+_flux\.jl"\)\n', script)
        return before + network + after
    before, after = re.split(r"\nfrom polybench\.plain\.\w+ import [\w, ]+\n", script)
    # Two empty lines end the imports; the script has some of them itself.
    head, _, body = network.partition("\n\n\n")
    imports = [line for line in head.splitlines() if re.match("import |from ", line)]
    return before + "".join(f"{line}\n" for line in imports if line not in before) + f"\n\n{body}\n{after}"


def text_of(name: str) -> str:
    """A file of this folder."""
    return resources.files(__package__).joinpath(name).read_text("utf-8")
