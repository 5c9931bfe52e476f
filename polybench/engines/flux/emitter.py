"""Writes the Flux program that the engine times: a network and its training step, as users of Flux write them.

The network is that of `network_code`, the optimizer that of `optimizer_code`. This module does not start Julia.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from polybench.engines.flux.julia_text import Call, number, text
from polybench.engines.flux.main_part import network, training
from polybench.engines.flux.network_code import NetworkCode
from polybench.engines.flux.optimizer_code import clip, exceptions, has_exceptions, learning_rate, load, rule, set_rate
from polybench.engines.flux.validation import validate
from polybench.engines.job import Job
from polybench.engines.shared.main_part import MainPart
from polybench.engines.source import Source
from polybench.networks.layers import Layer, Shape
from polybench.networks.optimizers import Optimizer
from polybench.networks.source_text import comment, literal


def emit(job: Job, main: MainPart | None = None) -> str:
    """Return the program of a job; raises EngineUnavailable for what Flux lacks.

    `DTYPE`, `DEVICE` and `SEED` are at its top, on a GPU and with Reactant also `to_device`. Its functions are
    `network`, `tensors`, `setup`, `reset!`, `load`, `compute_loss`, `train_step!` (with the variant `train`
    `train_steps!`, for a forward pass only `forward_pass`), and `weights`; with given dropout masks also `set_masks!`,
    and a batch has them as its third part. Arrays by name have the canonical layout in Julia's order, which is that of
    Python with the axes reversed. `main` is its main part.
    """
    validate(job)
    given_masks = job.dropout == "given"
    code = NetworkCode(job.model.layers, job.model.input_shape, given_masks=given_masks)
    has_masks = given_masks and job.model.is_random
    sections = [
        "\n".join(_top(job, main)),
        code.text(job.model.summary),
        code.tensors(),
        *code.masks(),
        *_setup(job),
        *([] if job.workload.is_forward_pass else _optimizer(job.workload.optimizer)),
        load(job, "Flux.onehotbatch", "to_device" if is_moved(job) else ""),
        *(_forward_pass() if job.workload.is_forward_pass else _training_step(job, has_masks=has_masks)),
        _WEIGHTS % ("cpu(state.model)" if is_moved(job) else "state.model"),
        *([main.text] if main is not None else []),
    ]
    return "\n\n".join(sections) + "\n"


def emit_training(job: Job, steps: int, *, clock: bool = False) -> str:
    """Return the program with a main part that trains and times `steps` steps; with `clock`, see `training`."""
    return emit(job, training(job, steps, clock=clock))


def emit_network(job: Job) -> str:
    """Return the program with a main part that makes `model`, with the weights of the .npz file beside it."""
    return emit(job, network("model = state.model"))


def emit_layers(layers: Sequence[Layer], shape: Shape, title: str, *, dtype: str = "float32", summary: str = "") -> str:
    """Return a program that has `network` and `tensors` only; `shape` is that of the input of one example."""
    code = NetworkCode(layers, shape)
    body = "\n\n".join([code.text(summary), code.tensors()])
    constants = [f"const DTYPE = {dtype.capitalize()}"] if "DTYPE" in body else []
    return "\n\n".join([comment(title), "using Flux", *constants, body]) + "\n"


def _top(job: Job, main: MainPart | None) -> Iterator[str]:
    """Yield the imports and constants."""
    yield comment(f"{job.model.name.partition('~')[0]} in Flux.")
    yield from ["#", *main.usage.splitlines()] if main is not None and main.usage else []
    yield ""
    yield from [*main.first, ""] if main is not None and main.first else []
    yield from sorted(["using Flux", "using Random", *_packages(job), *(main.libraries if main is not None else [])])
    yield ""
    yield f"const DTYPE = {'Float64' if job.dtype == 'float64' else 'Float32'}"
    yield f'const DEVICE = "{job.device}"'
    yield f"const SEED = {job.seed}"
    yield from _device(job)


def is_moved(job: Job) -> bool:
    """Return True if the arrays of a program are not Julia's own."""
    return job.device != "cpu" or _backend(job) == "reactant"


def _backend(job: Job) -> str:
    """Return the variant that computes gradients in place of Zygote; "" for Zygote, and without gradients."""
    found = [] if job.workload.is_forward_pass else [name for name in _PACKAGES if name in job.variants]
    return found[0] if found else ""


_PACKAGES = {"enzyme": "using Enzyme: Duplicated", "mooncake": "using Mooncake", "reactant": "using Reactant"}
"""The import of each variant that computes gradients in place of Zygote."""


def _packages(job: Job) -> Iterator[str]:
    """Yield the imports of a device and a backend."""
    yield from ["using CUDA", "using cuDNN"] if job.device != "cpu" else []
    yield from [_PACKAGES[_backend(job)]] if _backend(job) else []


_MATH_MODES = {
    "float64": ("# Without tensor cores, which have no Float64.", "CUDA.math_mode!(CUDA.PEDANTIC_MATH)"),
    "fp32": (
        "# Exact products; cuDNN needs the variable NVIDIA_TF32_OVERRIDE=0 as well.",
        "CUDA.math_mode!(CUDA.DEFAULT_MATH)",
    ),
    "tf32": (
        "# TensorFloat-32, for which cuDNN.jl also allows Float16.",
        "CUDA.math_mode!(CUDA.FAST_MATH; precision = :TensorFloat32)",
    ),
}
"""The arithmetic of a GPU by precision. In CUDA.jl 5.11 the mode decides for products, but in cuDNN.jl 1.4 both
`DEFAULT_MATH` and `PEDANTIC_MATH` allow TensorFloat-32 in convolutions, so workers start with the variable.
"""


def _device(job: Job) -> Iterator[str]:
    """Yield the statements that select a device, and the function that moves arrays there with the type they have."""
    if job.device != "cpu":
        mode = "float64" if job.dtype == "float64" else job.workload.precision
        yield from ["", f"CUDA.device!({job.device.partition(':')[2] or 0})", *_MATH_MODES[mode]]
        yield "const to_device = gpu_device(nothing, nothing; force = true)"
    elif is_moved(job):
        yield from ["", "const to_device = MLDataDevices.reactant_device(nothing; force = true)"]


def _setup(job: Job) -> Iterator[str]:
    """Yield the state of a training, and the functions that make it and start again."""
    fields, start, restart = _state(job)
    seed = ["    Random.seed!(SEED)", *(["    CUDA.seed!(SEED)"] if job.device != "cpu" else [])]
    kinds = [field[-1] for field in fields if re.search("::[A-Z]$", field)]
    kind = "struct" if job.workload.is_forward_pass else "mutable struct"
    yield "\n".join([f"{kind} State{{{', '.join(kinds)}}}", *fields, "end"])
    yield "\n".join([
        "# Return the start of a training, from these weights (arrays by name) if given.",
        "function setup(weights = nothing)",
        *seed,
        f"    model = {_model(job)}",
        text("    state = ", Call("State", start)),
        "    weights === nothing || reset!(state, weights)",
        "    return state",
        "end",
    ])  # fmt: skip
    yield "\n".join([
        "# Start again from these weights, in place.",
        "function reset!(state, weights, step = 0)",
        *(["    model = cpu(state.model)"] if is_moved(job) else []),
        f"    for (name, array) in tensors({'model' if is_moved(job) else 'state.model'})",
        "        array .= weights[name]",
        "    end",
        *(["    Flux.loadmodel!(state.model, to_device(model))"] if is_moved(job) else []),
        *restart,
        *seed,
        "    return nothing",
        "end",
    ])  # fmt: skip


def _model(job: Job) -> str:
    """Return the expression of the model of a state."""
    made = "(DTYPE == Float64 ? f64 : f32)(network())"
    if job.workload.is_forward_pass:
        made = f"Flux.testmode!({made})"
    elif _backend(job):  # layers detect the gradients of Zygote only
        made = f"Flux.trainmode!({made})"
    return f"to_device({made})" if is_moved(job) else made


def _state(job: Job) -> tuple[list[str], list[str], list[str]]:
    """Return the fields of the state, their first values, and the statements that start again."""
    if job.workload.is_forward_pass:
        return ["    model::M"], ["model"], []
    fields, start = ["    const model::M"], ["model"]
    if _backend(job) == "enzyme":
        fields += ["    # The model, and the memory of its gradient.", "    const duplicated::D"]
        start.append("Duplicated(model)")
    fields.append("    optimizer::O")
    if not job.workload.optimizer.has_schedule:
        restart = ["    state.optimizer = make_optimizer(state.model)"]
        return fields, [*start, "make_optimizer(model)"], restart
    fields += ["    step::Int", "    rate::Float64"]
    restart = [
        "    state.step, state.rate = step, learning_rate(step)",
        "    state.optimizer = make_optimizer(state.model, state.rate)",
    ]
    return fields, [*start, "make_optimizer(model, learning_rate(0))", "0", "learning_rate(0)"], restart


def _optimizer(optimizer: Optimizer) -> Iterator[str]:
    """Yield the functions that make the optimizer and change its learning rate."""
    parameters = "model, rate" if optimizer.has_schedule else "model"
    made = Call("Flux.setup", [rule(optimizer), "model"])
    if has_exceptions(optimizer):
        lines = [text("    optimizer = ", made), *exceptions("optimizer", "Flux"), "    return optimizer", "end"]
        yield "\n".join([f"function make_optimizer({parameters})", *lines])
    else:
        yield text(f"make_optimizer({parameters}) = ", made)
    if optimizer.has_schedule:
        yield "\n".join(learning_rate(optimizer))
        yield "\n".join(set_rate(optimizer, "state.optimizer", "Flux"))
    if optimizer.gradient_clip:
        yield clip(optimizer)


def _forward_pass() -> Iterator[str]:
    yield "forward_pass(state, batch) = state.model(first(batch))"


def _training_step(job: Job, *, has_masks: bool) -> Iterator[str]:
    """Yield the loss, and the step that uses it."""
    yield "\n".join(_loss(job))
    optimizer = job.workload.optimizer
    parts = f"(inputs, targets{', masks' if has_masks else ''})"
    before = ["    set_masks!(state, masks)"] if has_masks else []
    if optimizer.has_schedule:
        before.append("    set_rate!(state, learning_rate(state.step))")
    after = ["    state.step += 1"] if optimizer.has_schedule else []
    if "train" in job.variants:
        yield from _train_steps(parts, [*before, *after])
        return
    yield "\n".join([
        "# Train on a batch; return the loss before the update.",
        f"function train_step!(state, {parts})",
        *before,
        *_step(job),
        *after,
        "    return loss",
        "end",
    ])  # fmt: skip


_DIFFERENTIATED = {"": "state.model", "enzyme": "state.duplicated", "mooncake": "AutoMooncake(), state.model"}
"""What `Flux.withgradient` takes, by backend."""


def _step(job: Job) -> Iterator[str]:
    """Yield the statements that compute the loss, and update the weights."""
    if _backend(job) == "reactant":
        yield "    # One function, which Reactant compiles."
        yield "    batch = (inputs, targets)"
        yield "    loss = Flux.trainstep!(compute_loss, state.model, batch, state.optimizer)"
        return
    gradient = "clip(state.optimizer, gradients[1])" if job.workload.optimizer.gradient_clip else "gradients[1]"
    yield f"    loss, gradients = Flux.withgradient({_DIFFERENTIATED[_backend(job)]}) do model"
    yield "        return compute_loss(model, inputs, targets)"
    yield "    end"
    yield f"    Flux.update!(state.optimizer, state.model, {gradient})"


def _loss(job: Job) -> Iterator[str]:
    if not job.model.label_smoothing:
        yield "compute_loss(model, inputs, targets) = Flux.logitcrossentropy(model(inputs), targets)"
        return
    smoothed = f"Flux.label_smoothing(targets, DTYPE({number(job.model.label_smoothing)}))"
    if job.device != "cpu":  # Zygote would also compute the gradient of the amount, from single elements of an array
        smoothed = f"Flux.ignore_derivatives(() -> {smoothed})"
    yield "function compute_loss(model, inputs, targets)"
    yield f"    smoothed = {smoothed}"
    yield "    return Flux.logitcrossentropy(model(inputs), smoothed)"
    yield "end"


def _train_steps(parts: str, before: list[str]) -> Iterator[str]:
    """Yield the steps of `Flux.train!`, with the lines `before` each of them."""
    data = "started" if before else "batches"
    if before:
        yield "\n".join([f"function start_step!(state, {parts})", *before, "    return inputs, targets", "end"])
    yield "\n".join([
        "# Train on batches; return the last loss before an update.",
        "function train_steps!(state, batches)",
        "    last_loss = Ref{DTYPE}()",
        *(["    started = (start_step!(state, batch) for batch in batches)"] if before else []),
        f"    Flux.train!(state.model, {data}, state.optimizer) do model, inputs, targets",
        "        loss = compute_loss(model, inputs, targets)",
        "        # `Flux.train!` does not return it.",
        "        Flux.ignore_derivatives(() -> (last_loss[] = loss; nothing))",
        "        return loss",
        "    end",
        "    return last_loss[]",
        "end",
    ])  # fmt: skip


_WEIGHTS = """# Copy the weights and running statistics to arrays by name.
weights(state) = Dict(name => Array(array) for (name, array) in tensors(%s))"""


def emit_start(source: Source, job: Job, steps: int, project: str) -> str:
    """Return the script that trains the first steps with a user's program, and prints when each phase has ended.

    Its text is included in a module of its own, as in a worker. `project` has NPZ, which the program's own may lack.
    """
    main = training(job, steps, clock=True)
    path, program = literal(str(source.path)), literal(source.adapted(job.dtype, job.device))
    return "\n".join(
        [
            comment(f"Starts {source.path.name} alone, with a clock."),
            *main.first,
            f"push!(LOAD_PATH, {literal(project)})",
            *main.libraries,
            "module Program end",
            f"task_local_storage(() -> Base.include_string(Program, {program}, {path}), :SOURCE_PATH, {path})",
            f"const DTYPE = {job.dtype.capitalize()}",
            f"setup(weights) = Program.setup({'weights' if source.takes_weights else ''})",
            "load(images, labels) = Program.load(images, labels)",
            "train_step!(state, batch) = Program.train_step!(state, batch)",
            f"{main.text}\n",
        ]
    )
