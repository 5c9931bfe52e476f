"""The plain programs: the timed training, as a framework's user writes it, without polybench.

`polybench scripts` prints them; benchmarks/process_overhead.py compares polybench with them. An engine has
one script that trains, `train_*`, and a file per network, which replaces the line that imports
`lenet`; a study's settings replace the script's constants. No file has the name of the framework that it imports:
next to a `torch.py`, `import torch` would find that file.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping
from importlib import resources
from pathlib import Path

from polybench.engines import ENGINES
from polybench.engines.flux.julia.discovery import PACKAGES, SCRIPT_PACKAGES, check, find
from polybench.engines.flux.julia.environment import threads
from polybench.networks.optimizers import Optimizer
from polybench.schema.options import WARMUP_STEPS_PER_BLOCK, Configuration, Workload

STEPS = 58
"""Timed steps of a script if the study does not fix them."""

# ADD A NETWORK: its name, and a file per engine.
NETWORKS = ("lenet", "resnet32", "dlframeworks-cnn")
_SCRIPTS = {
    "flux": "train_flux.jl",
    "torch": "train_torch.py",
    "tf": "train_tf.py",
    "jax": "train_jax.py",
    "keras": "train_keras.py",
}
TOKEN_MODELS = ("imdb-bilstm",)
"""Networks with token inputs; the scripts `train_sequence_*` train them."""
_NETWORK_FILES_OF = {"keras": "tf"}
"""Engine whose network files a script uses if it has none of its own."""
_VARIANTS = {
    "flux": tuple(name for name, variant in ENGINES["flux"].variants.items() if variant.changes_thread_pools),
    "torch": ("channels_last", "compile", "foreach"),
    "tf": ("eager", "xla"),
    "keras": ("jax", "torch"),
}
"""Variants that are a constant of the script."""
_TOKEN_VARIANTS = {"flux": _VARIANTS["flux"]}


def make_script(configuration: Configuration, workload: Workload, steps: int) -> str | None:
    """Return the script that trains this configuration's network and times `steps` steps; None if unsupported."""
    if unsupported_reason(configuration, workload, steps):
        return None
    optimizer, of_tokens = workload.optimizer, workload.model in TOKEN_MODELS
    constants: dict[str, object] = {
        "LEARNING_RATE": optimizer.learning_rate,
        "UNTIMED_STEPS": WARMUP_STEPS_PER_BLOCK,
        "STEPS": steps,
    }
    if not of_tokens:
        constants["MOMENTUM"] = optimizer.momentum
    if configuration.engine == "flux":
        julia_threads, blas_threads = threads(workload.threads, configuration.variants)
        constants |= {"JULIA_THREADS": julia_threads, "BLAS_THREADS": blas_threads}
    else:
        constants["THREADS"] = workload.threads
    if configuration.engine != "keras":
        constants |= {"DEVICE": configuration.device, "TF32": workload.precision == "tf32"}
    elif not of_tokens:
        constants["BACKEND"] = configuration.variant or "tensorflow"
    if configuration.engine in ("torch", "tf"):
        constants |= {switch.upper(): switch in configuration.variants for switch in _variants(configuration, workload)}
    return render(script_file_for(configuration, workload), workload.model, constants)


def script_file_for(configuration: Configuration, workload: Workload) -> str:
    """Return the file that trains this configuration's network; "" without one."""
    script = _SCRIPTS.get(configuration.engine, "")
    return script.replace("train_", "train_sequence_") if workload.model in TOKEN_MODELS else script


def _variants(configuration: Configuration, workload: Workload) -> tuple[str, ...]:
    """Return the variants that the configuration's script supports."""
    return (_TOKEN_VARIANTS if workload.model in TOKEN_MODELS else _VARIANTS).get(configuration.engine, ())


def unsupported_reason(configuration: Configuration, workload: Workload, steps: int = 1) -> str:
    """Return the setting of this configuration that scripts do not support; "" if all are supported."""
    optimizer = workload.optimizer
    plain = _plain_adam if workload.model in TOKEN_MODELS else _plain_momentum
    in_float32 = ("fp32",) if configuration.engine == "keras" else ("fp32", "tf32")
    missing = {
        f"the engine {configuration.engine}": configuration.engine not in _SCRIPTS,
        f"the variant {configuration.variant}": not set(configuration.variants)
        <= set(_variants(configuration, workload)),
        f"the network {workload.model}": workload.model not in (*NETWORKS, *TOKEN_MODELS),
        f"{workload.replicas} replicas": workload.replicas > 1,
        f"the precision {workload.precision}": workload.precision not in in_float32,
        f"{configuration.engine} on {configuration.device}": configuration.engine in ("flux", "keras")
        and configuration.device != "cpu",
        f"these settings of the optimizer {optimizer.name}": not plain(optimizer, WARMUP_STEPS_PER_BLOCK + steps),
    }
    return next((setting for setting, is_missing in missing.items() if is_missing), "")


def make_command(configuration: Configuration, workload: Workload, folder: Path) -> tuple[Path, list[str]]:
    """Return the path for a configuration's script, and the command that runs it, without its arguments.

    Raises:
        EngineUnavailable: the interpreter is not on this machine.
    """
    script = folder / f"script{Path(_SCRIPTS[configuration.engine]).suffix}"
    if script.suffix == ".py":
        return script, [sys.executable, str(script)]
    check(julia := find(), (*PACKAGES, *SCRIPT_PACKAGES))
    julia_threads, _ = threads(workload.threads, configuration.variants)
    options = [f"--project={julia.project}", "--startup-file=no", f"--threads={julia_threads}"]
    return script, [julia.executable, *options, str(script)]


def extension(configuration: Configuration) -> str:
    """Return the file extension of the configuration's script."""
    return Path(_SCRIPTS[configuration.engine]).suffix


def _plain_momentum(optimizer: Optimizer, steps: int) -> bool:
    """True if scripts support this optimizer: any rate and momentum, without other settings.

    A rate that changes after these steps is ignored.
    """
    plain = Optimizer("momentum", optimizer.learning_rate, optimizer.momentum, lr_schedule=optimizer.lr_schedule)
    return optimizer.name == "momentum" and optimizer == plain and len(optimizer.constant_rate_segments(0, steps)) == 1


def _plain_adam(optimizer: Optimizer, steps: int) -> bool:
    """True if the scripts for tokens support this optimizer."""
    plain = Optimizer("adam", optimizer.learning_rate, lr_schedule=optimizer.lr_schedule)
    return optimizer == plain and len(optimizer.constant_rate_segments(0, steps)) == 1


def render(script: str, network: str, constants: Mapping[str, object]) -> str:
    """Return a script with another network and other values of its constants.

    Raises:
        KeyError: the script does not have a constant.
    """
    name, suffix = script.removeprefix("train_").removeprefix("sequence_").split(".")
    network_of = read_script(f"{network.replace('-', '_')}_{_NETWORK_FILES_OF.get(name, name)}.{suffix}")
    text = _insert_network(read_script(script), network_of, suffix == "jl")
    text = text.replace("Train `lenet`", f"Train `{network}`", 1)
    # Julia's literals of strings, numbers and booleans are those of JSON.
    literal = json.dumps if script.endswith(".jl") else repr
    return replace_constants(text, {constant: literal(value) for constant, value in constants.items()})


def replace_constants(text: str, constants: Mapping[str, str]) -> str:
    """Replace constants of a script by literals of its language.

    Raises:
        KeyError: the script does not have a constant.
    """
    for constant, value in constants.items():
        text, found = re.subn(rf"^((?:const )?{constant}) = .*$", rf"\g<1> = {value}", text, flags=re.MULTILINE)
        if not found:
            raise KeyError(constant)
    return text


def _insert_network(script: str, network: str, julia: bool) -> str:
    """Replace the line that imports or includes a network by the network's file."""
    if julia:
        before, after = re.split(r'include\("\w+_flux\.jl"\)\n', script)
        return before + network + after
    before, after = re.split(r"\nfrom polybench\.scripts\.\w+ import [\w, ]+\n", script)
    # Two empty lines end the imports; the script may already have some of them.
    head, _, body = network.partition("\n\n\n")
    imports = [line for line in head.splitlines() if re.match("import |from ", line)]
    return before + "".join(f"{line}\n" for line in imports if line not in before) + f"\n\n{body}\n{after}"


def read_script(name: str) -> str:
    """Read a file of this folder."""
    return resources.files(__package__).joinpath(name).read_text("utf-8")
