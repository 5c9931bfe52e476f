"""The plain programs: the timed training, as a framework's user writes it, without polybench.

`polybench scripts` prints them; benchmarks/process_overhead.py compares polybench with them. A framework has one
template that trains all networks (`train_*`), and a program for a single layer (`layer_*`). Lines `#: if NAMES` and
`#: end` enclose sections for some networks or engines only; a study's settings replace the constants. No file has
the name of the framework that it imports: next to a `torch.py`, `import torch` would find that file.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping, Set
from importlib import resources
from pathlib import Path

from polybench.engines import ENGINES
from polybench.engines.flux.julia.discovery import PACKAGES, SCRIPT_PACKAGES, check, find
from polybench.engines.flux.julia.environment import threads
from polybench.schema.options import WARMUP_STEPS_PER_BLOCK, Configuration, Workload

STEPS = 58
"""Timed steps of a script if the study does not fix them."""

# ADD A NETWORK: its name, and a section in each template.
NETWORKS = ("lenet", "resnet32", "dlframeworks-cnn")
TOKEN_MODELS = ("imdb-bilstm",)
"""Networks with token inputs."""
_TEMPLATES = {
    "flux": "train_flux.jl",
    "torch": "train_torch.py",
    "tf": "train_keras.py",
    "jax": "train_jax.py",
    "keras": "train_keras.py",
}
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
    sections = {configuration.engine, workload.model, "tokens" if of_tokens else "images"}
    text = render(_TEMPLATES[configuration.engine], sections, constants)
    text = text.replace("Train `lenet`", f"Train `{workload.model}`", 1)
    return text.replace("in plain Keras", "in plain TensorFlow", 1) if configuration.engine == "tf" else text


def _variants(configuration: Configuration, workload: Workload) -> tuple[str, ...]:
    """Return the variants that the configuration's script supports."""
    return (_TOKEN_VARIANTS if workload.model in TOKEN_MODELS else _VARIANTS).get(configuration.engine, ())


def unsupported_reason(configuration: Configuration, workload: Workload, steps: int = 1) -> str:
    """Return the setting of this configuration that scripts do not support; "" if all are supported."""
    optimizer = workload.optimizer
    plain = optimizer.name == ("adam" if workload.model in TOKEN_MODELS else "momentum") and not optimizer.weight_decay
    rates = optimizer.constant_rate_segments(0, WARMUP_STEPS_PER_BLOCK + steps)  # a later change has no effect
    in_float32 = ("fp32",) if configuration.engine == "keras" else ("fp32", "tf32")
    missing = {
        "the forward pass": workload.is_forward_pass,
        f"the engine {configuration.engine}": configuration.engine not in _TEMPLATES,
        f"the variant {configuration.variant}": not set(configuration.variants)
        <= set(_variants(configuration, workload)),
        f"the network {workload.model}": workload.model not in (*NETWORKS, *TOKEN_MODELS),
        f"{workload.replicas} replicas": workload.replicas > 1,
        f"the precision {workload.precision}": workload.precision not in in_float32,
        f"{configuration.engine} on {configuration.device}": configuration.engine in ("flux", "keras")
        and configuration.device != "cpu",
        f"these settings of the optimizer {optimizer.name}": not plain or len(rates) > 1,
    }
    return next((setting for setting, is_missing in missing.items() if is_missing), "")


def make_command(configuration: Configuration, workload: Workload, folder: Path) -> tuple[Path, list[str]]:
    """Return the path for a configuration's script, and the command that runs it, without its arguments.

    Raise EngineUnavailable if the interpreter is not on this machine.
    """
    script = folder / f"script{Path(_TEMPLATES[configuration.engine]).suffix}"
    if script.suffix == ".py":
        return script, [sys.executable, str(script)]
    check(julia := find(), (*PACKAGES, *SCRIPT_PACKAGES))
    julia_threads, _ = threads(workload.threads, configuration.variants)
    options = [f"--project={julia.project}", "--startup-file=no", f"--threads={julia_threads}"]
    return script, [julia.executable, *options, str(script)]


def extension(configuration: Configuration) -> str:
    """Return the file extension of the configuration's script."""
    return Path(_TEMPLATES[configuration.engine]).suffix


def render(template: str, sections: Set[str], constants: Mapping[str, object], **code: str) -> str:
    """Return a program from the file `template` of this folder with the sections of these names only.

    Its constants become the values of `constants` and the expressions of `code`; KeyError if it lacks one.
    """
    text = _select_sections(resources.files(__package__).joinpath(template).read_text("utf-8"), sections)
    # Julia's literals of strings, numbers and booleans are those of JSON.
    literal = json.dumps if template.endswith(".jl") else repr
    for constant, value in ({name: literal(value) for name, value in constants.items()} | code).items():
        text, found = re.subn(rf"^((?:const )?{constant}) = .*$", rf"\g<1> = {value}", text, flags=re.MULTILINE)
        if not found:
            raise KeyError(constant)
    return text


def _select_sections(text: str, names: Set[str]) -> str:
    """Drop sections for other names: a section has all of its names, and `a|b` stands for either.

    The next `#: if` also ends a section.
    """
    lines, keep = [], True
    for line in text.splitlines(keepends=True):
        if line.startswith("#: "):
            wanted = line.removeprefix("#: if").split() if line.startswith("#: if") else []
            keep = all(names & set(either.split("|")) for either in wanted)
        elif keep:
            lines.append(line)
    return "".join(lines)
