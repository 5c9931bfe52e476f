"""The plain programs: the timed training, as a framework's user writes it, without polybench.

They are the programs of an engine's emitter, with a main part.

`polybench export --train` prints the programs; benchmarks/process_overhead.py compares polybench with them. No file has
the name of the framework that it imports: next to a `torch.py`, `import torch` would find that file.
"""

from __future__ import annotations

import sys
from pathlib import Path

from polybench.engines import ENGINES
from polybench.engines.flux import emitter as flux
from polybench.engines.flux.julia.discovery import LUX_PROGRAM_PACKAGES, PACKAGES, SCRIPT_PACKAGES, check, find
from polybench.engines.flux.julia.environment import threads
from polybench.engines.job import Job
from polybench.engines.program import emitter as program
from polybench.engines.source import Source
from polybench.errors import EngineUnavailable
from polybench.networks.model import Model
from polybench.schema.options import Configuration, Workload
from polybench.scripts.emitters import EMITTERS
from polybench.scripts.script_folder import extension

STEPS = 58
"""Timed steps of a script if the study does not fix them."""

_FLUX_VARIANTS = (
    "train",
    *(name for name, variant in ENGINES["flux"].variants.items() if variant.changes_thread_pools),
)
"""Variants of which the program of Flux is the whole; the others need packages, or belong to polybench's own loop."""
_NOT_ALONE = ("cudagraph", "keras_fit")
"""Variants without a main part: the first step of one trains several times, and the other has no single steps."""
_CPU_ONLY = ("keras", "flux", "lux")


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

    With `clocked`, it prints when each phase of its start has ended. Every script needs the `model`.
    """
    if unsupported_reason(configuration, workload, model) or model is None:
        return None
    return EMITTERS[configuration.engine].emit_training(
        _job(configuration, workload, model, seed), steps, clock=clocked
    )


def make_start(source: Source, job: Job, steps: int) -> str:
    """Return the script that starts a user's program alone, and prints when each phase of its start has ended."""
    if source.is_julia:
        return flux.emit_start(source, job, steps, str(find().project))
    return program.emit_start(source, job, steps)


def _job(configuration: Configuration, workload: Workload, model: Model, seed: int = 0) -> Job:
    return Job(model, workload, configuration.device, "float32", configuration.variants, seed=seed)


def unsupported_reason(configuration: Configuration, workload: Workload, model: Model | None = None) -> str:
    """Return the setting of this configuration that scripts do not support; "" if all are supported."""
    engine, device = configuration.engine, configuration.device
    variants = {*configuration.variants}
    has_variant = variants <= {*_FLUX_VARIANTS} if engine == "flux" else variants.isdisjoint(_NOT_ALONE)
    missing = {
        "the forward pass": workload.is_forward_pass,
        f"the engine {engine}": engine not in EMITTERS,
        f"{workload.replicas} replicas": workload.replicas > 1,
        f"the variant {configuration.variant}": not has_variant,
        f"{engine} on {device}": engine in _CPU_ONLY and device != "cpu",
        f"the network {workload.model}": model is None,
    }
    if (reason := next((setting for setting, is_missing in missing.items() if is_missing), "")) or model is None:
        return reason
    try:
        EMITTERS[engine].emit_training(_job(configuration, workload, model), 1)
    except EngineUnavailable as error:
        return f"the network {workload.model}: {error.reason}"
    return ""


def make_command(configuration: Configuration, workload: Workload, folder: Path) -> tuple[Path, list[str]]:
    """Return the path for a configuration's script, and the command that runs it, without its arguments.

    Raise EngineUnavailable if the interpreter is not on this machine.
    """
    script = folder / f"script{extension(configuration.engine)}"
    if script.suffix == ".py":
        return script, [sys.executable, str(script)]
    own = LUX_PROGRAM_PACKAGES if configuration.engine == "lux" else ()
    check(julia := find(), (*PACKAGES, *SCRIPT_PACKAGES, *own))
    julia_threads, _ = threads(workload.threads, configuration.variants)
    options = [f"--project={julia.project}", "--startup-file=no", f"--threads={julia_threads}"]
    environment = [f"{name}={value}" for name, value in julia.variables.items()]
    return script, [*(["env", *environment] if environment else []), julia.executable, *options, str(script)]
