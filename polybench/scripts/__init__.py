"""The plain programs: the timed training, as a framework's user writes it, without polybench.

Those in Python are the programs that the engines run, with a main part. Those of Flux have templates: one for networks
written by hand, one for any other network, whose layers `flux_code` writes, and one for a single layer (`layer_*`).
Lines `#: if NAMES` and `#: end` enclose sections for some networks only; a study's settings replace the constants.

`polybench export --train` prints them; benchmarks/process_overhead.py compares polybench with them. No file has the
name of the framework that it imports: next to a `torch.py`, `import torch` would find that file.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Mapping, Set
from importlib import resources
from pathlib import Path
from typing import Any

from polybench.engines import ENGINES
from polybench.engines.flux.julia.discovery import PACKAGES, SCRIPT_PACKAGES, check, find
from polybench.engines.flux.julia.environment import threads
from polybench.engines.jax import emitter as jax
from polybench.engines.job import Job
from polybench.engines.keras import emitter as keras
from polybench.engines.tf import emitter as tf
from polybench.engines.torch import emitter as torch
from polybench.errors import BadInput, EngineUnavailable
from polybench.networks.initial_weights import initial_weights
from polybench.networks.model import Model
from polybench.networks.optimizers import Optimizer
from polybench.networks.source_text import escape, literal
from polybench.schema.options import WARMUP_STEPS_PER_BLOCK, Configuration, Workload
from polybench.scripts.network_code import write_code

STEPS = 58
"""Timed steps of a script if the study does not fix them."""

# ADD A NETWORK written by hand: its name, and a section in `train_flux.jl`.
NETWORKS = ("lenet", "resnet32", "dlframeworks-cnn")
TOKEN_MODELS = ("imdb-bilstm",)
"""Networks with token inputs."""
_EMITTERS: Mapping[str, Callable[..., str]] = {
    "torch": torch.emit_training,
    "tf": tf.emit_training,
    "jax": jax.emit_training,
    "keras": keras.emit_training,
}
"""Functions of a job, a number of steps and `clock` that write the program of an engine with a main part."""
_TEMPLATES = {"flux": "train_flux.jl"}
_ANY_NETWORK = {"flux": "train_any_flux.jl"}
_VARIANTS = {"flux": tuple(name for name, variant in ENGINES["flux"].variants.items() if variant.changes_thread_pools)}
"""Variants that are a constant of the script."""
_ANY_NETWORK_OPTIMIZERS = ("sgd", "momentum", "nesterov", "adam", "adamw")


def make_script(
    configuration: Configuration,
    workload: Workload,
    steps: int,
    model: Model | None = None,
    seed: int = 0,
    *,
    clocked: bool = False,
) -> str | None:
    """Return the script that trains this configuration's network and times `steps` steps; None if unsupported.

    With `clocked`, it prints when each phase of its start has ended.

    Those of `_EMITTERS` need the `model`, as do networks without a section in `_TEMPLATES`; these also need a file of
    weights beside the script, which `script_weights` returns.
    """
    if unsupported_reason(configuration, workload, steps, model):
        return None
    if configuration.engine in _EMITTERS and model is not None:
        return _EMITTERS[configuration.engine](_job(configuration, workload, model, seed), steps, clock=clocked)
    engine, of_tokens = configuration.engine, workload.model in TOKEN_MODELS
    clock = "clock" if clocked else ""
    constants: dict[str, object] = {
        "LEARNING_RATE": workload.optimizer.learning_rate,
        "UNTIMED_STEPS": WARMUP_STEPS_PER_BLOCK,
        "STEPS": steps,
    }
    julia_threads, blas_threads = threads(workload.threads, configuration.variants)
    constants |= {"JULIA_THREADS": julia_threads, "BLAS_THREADS": blas_threads}
    constants |= {"DEVICE": configuration.device, "TF32": workload.precision == "tf32"}
    if model is not None and needs_weights(configuration, workload):
        text = _any_network(configuration, workload, model, constants, clock)
    else:
        if not of_tokens:
            constants["MOMENTUM"] = workload.optimizer.momentum
        sections = {engine, workload.model, "tokens" if of_tokens else "images", clock}
        text = render(_TEMPLATES[engine], sections, constants)
    return text.replace("Train `lenet`", f"Train `{escape(workload.model.partition('~')[0])}`", 1)


def _job(configuration: Configuration, workload: Workload, model: Model, seed: int = 0) -> Job:
    return Job(model, workload, configuration.device, "float32", configuration.variants, seed=seed)


def _any_network(
    configuration: Configuration, workload: Workload, model: Model, constants: dict[str, object], clock: str
) -> str:
    engine, optimizer = configuration.engine, workload.optimizer
    sections = {engine, optimizer.name, "images" if len(model.input_shape) == 3 else "tokens", clock}
    if model.label_smoothing:  # Flux rejects 0
        constants["LABEL_SMOOTHING"] = model.label_smoothing
        sections.add("smoothing")
    if "images" in sections:
        constants["SHAPE"] = model.input_shape
    constants["CLASSES"] = model.classes
    constants["WEIGHT_DECAY"] = optimizer.weight_decay
    for section, settings in _settings_of(optimizer).items():
        sections.add(section)
        constants |= settings
    code = write_code(model, initial_weights(model, 0), engine)
    return render(_ANY_NETWORK[engine], sections, constants).replace("# <network>\n", code.network)


def _settings_of(optimizer: Optimizer) -> Mapping[str, Mapping[str, object]]:
    """Return the constants of an optimizer's optional settings by the section that uses them."""
    settings: dict[str, Mapping[str, object]] = {}
    if optimizer.momentum is not None:
        settings["velocity"] = {"MOMENTUM": optimizer.momentum}
    if optimizer.betas is not None:
        settings["betas"] = {"BETAS": optimizer.betas}
    if optimizer.gradient_clip:
        settings["clip"] = {"GRADIENT_CLIP": optimizer.gradient_clip}
    if optimizer.cosine_steps:
        settings["cosine"] = {
            "WARMUP_STEPS": optimizer.warmup_steps,
            "COSINE_STEPS": optimizer.cosine_steps,
            "MIN_LEARNING_RATE": optimizer.min_learning_rate,
        }
    return settings


def needs_weights(configuration: Configuration, workload: Workload) -> bool:
    """Return True if the script reads its weights from a file beside it."""
    return configuration.engine not in _EMITTERS and workload.model not in (*NETWORKS, *TOKEN_MODELS)


def script_weights(configuration: Configuration, model: Model, weights: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the arrays of the .npz file beside a script, in the framework's own layout."""
    return write_code(model, weights, configuration.engine).arrays


def unsupported_reason(
    configuration: Configuration, workload: Workload, steps: int = 1, model: Model | None = None
) -> str:
    """Return the setting of this configuration that scripts do not support; "" if all are supported."""
    if configuration.engine in _EMITTERS:
        return _unsupported_by_emitter(configuration, workload, model)
    optimizer, is_any = workload.optimizer, needs_weights(configuration, workload)
    templates = _ANY_NETWORK if is_any else _TEMPLATES
    if is_any:
        is_plain = optimizer.name in _ANY_NETWORK_OPTIMIZERS
    else:
        name = "adam" if workload.model in TOKEN_MODELS else "momentum"
        is_plain = optimizer.name == name and not optimizer.weight_decay and not optimizer.gradient_clip
    has_cosine = is_any and bool(optimizer.cosine_steps)
    rates = optimizer.constant_rate_segments(0, WARMUP_STEPS_PER_BLOCK + steps)  # a later change has no effect
    missing = {
        "the forward pass": workload.is_forward_pass,
        f"the engine {configuration.engine}": configuration.engine not in _TEMPLATES,
        f"the network {workload.model} in {configuration.engine}": configuration.engine not in templates,
        f"the network {workload.model}": is_any and model is None,
        f"the variant {configuration.variant}": not set(configuration.variants)
        <= set(_VARIANTS.get(configuration.engine, ())),
        f"{workload.replicas} replicas": workload.replicas > 1,
        f"the precision {workload.precision}": workload.precision not in ("fp32", "tf32"),
        f"{configuration.engine} on {configuration.device}": configuration.engine == "flux"
        and configuration.device != "cpu",
        f"these settings of the optimizer {optimizer.name}": not is_plain or (len(rates) > 1 and not has_cosine),
    }
    if reason := next((setting for setting, is_missing in missing.items() if is_missing), ""):
        return reason
    try:
        if is_any and model is not None:
            write_code(model, initial_weights(model, 0), configuration.engine)
    except BadInput as error:
        return f"the network {workload.model}: {error}"
    return ""


_NOT_ALONE = ("cudagraph", "keras_fit")
"""Variants without a main part: the first step of one trains several times, and the other has no single steps."""


def _unsupported_by_emitter(configuration: Configuration, workload: Workload, model: Model | None) -> str:
    missing = {
        "the forward pass": workload.is_forward_pass,
        f"{workload.replicas} replicas": workload.replicas > 1,
        f"the variant {configuration.variant}": not {*configuration.variants}.isdisjoint(_NOT_ALONE),
        f"keras on {configuration.device}": configuration.engine == "keras" and configuration.device != "cpu",
        f"the network {workload.model}": model is None,
    }
    if (reason := next((setting for setting, is_missing in missing.items() if is_missing), "")) or model is None:
        return reason
    try:
        _EMITTERS[configuration.engine](_job(configuration, workload, model), 1)
    except EngineUnavailable as error:
        return f"the network {workload.model}: {error.reason}"
    return ""


def make_command(configuration: Configuration, workload: Workload, folder: Path) -> tuple[Path, list[str]]:
    """Return the path for a configuration's script, and the command that runs it, without its arguments.

    Raise EngineUnavailable if the interpreter is not on this machine.
    """
    script = folder / f"script{extension(configuration)}"
    if script.suffix == ".py":
        return script, [sys.executable, str(script)]
    check(julia := find(), (*PACKAGES, *SCRIPT_PACKAGES))
    julia_threads, _ = threads(workload.threads, configuration.variants)
    options = [f"--project={julia.project}", "--startup-file=no", f"--threads={julia_threads}"]
    environment = [f"{name}={value}" for name, value in julia.variables.items()]
    return script, [*(["env", *environment] if environment else []), julia.executable, *options, str(script)]


def extension(configuration: Configuration) -> str:
    """Return the file extension of the configuration's script."""
    return ".jl" if configuration.engine == "flux" else ".py"


def render(template: str, sections: Set[str], constants: Mapping[str, object], **code: str) -> str:
    """Return a program from the file `template` of this folder with the sections of these names only.

    Its constants become the values of `constants` and the expressions of `code`; KeyError if it lacks one.
    """
    text = _select_sections(resources.files(__package__).joinpath(template).read_text("utf-8"), sections)
    # Julia's literals of numbers and booleans are those of JSON.
    number = json.dumps if template.endswith(".jl") else repr
    values = {name: literal(value) if isinstance(value, str) else number(value) for name, value in constants.items()}
    for constant, value in (values | code).items():
        line = re.compile(rf"^((?:const )?{constant}) = .*$", re.MULTILINE)
        text, found = line.subn(lambda match, value=value: f"{match[1]} = {value}", text)  # type: ignore[misc]
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
