"""Writes the Flux program that the engine times: a network and its training step, as users of Flux write them.

The network is that of `network_code`, the optimizer that of `optimizer_code`. This module does not start Julia.
"""

from __future__ import annotations

from collections.abc import Iterator

from polybench.engines.flux.julia_text import Call, number, text
from polybench.engines.flux.main_part import network, training
from polybench.engines.flux.network_code import NetworkCode
from polybench.engines.flux.optimizer_code import clip, exceptions, has_exceptions, learning_rate, load, rule, set_rate
from polybench.engines.flux.validation import validate
from polybench.engines.job import Job
from polybench.engines.shared.main_part import MainPart
from polybench.engines.source import Source
from polybench.networks.optimizers import Optimizer
from polybench.networks.source_text import comment, literal


def emit(job: Job, main: MainPart | None = None) -> str:
    """Return the program of a job; raises EngineUnavailable for what Flux lacks.

    `DTYPE`, `DEVICE` and `SEED` are at its top. Its functions are `network`, `tensors`, `setup`, `reset!`, `load`,
    `compute_loss`, `train_step!` (with the variant `train` `train_steps!`, for a forward pass only `forward_pass`), and
    `weights`; with given dropout masks also `set_masks!`, and a batch has them as its third part. Arrays by name have
    the canonical layout in Julia's order, which is that of Python with the axes reversed. `main` is its main part.
    """
    validate(job)
    given_masks = job.dropout == "given"
    code = NetworkCode(job.model.layers, job.model.input_shape, given_masks=given_masks)
    has_masks = given_masks and code.has_dropout
    sections = [
        "\n".join(_top(job, main)),
        code.text(job.model.summary),
        code.tensors(),
        *code.masks(),
        *_setup(job),
        *([] if job.workload.is_forward_pass else _optimizer(job.workload.optimizer)),
        load(job, "Flux.onehotbatch"),
        *(_forward_pass() if job.workload.is_forward_pass else _training_step(job, has_masks=has_masks)),
        _WEIGHTS,
        *([main.text] if main is not None else []),
    ]
    return "\n\n".join(sections) + "\n"


def emit_training(job: Job, steps: int, *, clock: bool = False) -> str:
    """Return the program with a main part that trains and times `steps` steps; with `clock`, see `training`."""
    return emit(job, training(job, steps, clock=clock))


def emit_network(job: Job) -> str:
    """Return the program with a main part that makes `model`, with the weights of the .npz file beside it."""
    return emit(job, network("model = state.model"))


def _top(job: Job, main: MainPart | None) -> Iterator[str]:
    """Yield the imports and constants."""
    yield comment(f"{job.model.name.partition('~')[0]} in Flux.")
    yield from ["#", *main.usage.splitlines()] if main is not None and main.usage else []
    yield ""
    yield from [*main.first, ""] if main is not None and main.first else []
    yield from sorted(["using Flux", "using Random", *(main.libraries if main is not None else [])])
    yield ""
    yield f"const DTYPE = {'Float64' if job.dtype == 'float64' else 'Float32'}"
    yield f'const DEVICE = "{job.device}"'
    yield f"const SEED = {job.seed}"


def _setup(job: Job) -> Iterator[str]:
    """Yield the state of a training, and the functions that make it and start again."""
    is_forward_pass = job.workload.is_forward_pass
    has_schedule = not is_forward_pass and job.workload.optimizer.has_schedule
    made = "(DTYPE == Float64 ? f64 : f32)(network())"
    fields, start, restart = ["    model::M"], ["model"], []
    if is_forward_pass:
        made = f"Flux.testmode!({made})"
    else:
        fields = ["    const model::M", "    optimizer::O"]
        start.append("make_optimizer(model)")
        restart.append("    state.optimizer = make_optimizer(state.model)")
    if has_schedule:
        fields += ["    step::Int", "    rate::Float64"]
        start[1:] = ["make_optimizer(model, learning_rate(0))", "0", "learning_rate(0)"]
        restart = [
            "    state.step, state.rate = step, learning_rate(step)",
            "    state.optimizer = make_optimizer(state.model, state.rate)",
        ]
    kind = "struct State{M}" if is_forward_pass else "mutable struct State{M, O}"
    yield "\n".join([kind, *fields, "end"])
    yield "\n".join([
        "# Return the start of a training, from these weights (arrays by name) if given.",
        "function setup(weights = nothing)",
        "    Random.seed!(SEED)",
        f"    model = {made}",
        text("    state = ", Call("State", start)),
        "    weights === nothing || reset!(state, weights)",
        "    return state",
        "end",
    ])  # fmt: skip
    yield "\n".join([
        "# Start again from these weights, in place.",
        "function reset!(state, weights, step = 0)",
        "    for (name, array) in tensors(state.model)",
        "        array .= weights[name]",
        "    end",
        *restart,
        "    Random.seed!(SEED)",
        "    return nothing",
        "end",
    ])  # fmt: skip


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
    yield "\n".join(_loss(job.model.label_smoothing))
    optimizer = job.workload.optimizer
    parts = f"(inputs, targets{', masks' if has_masks else ''})"
    before = ["    set_masks!(state, masks)"] if has_masks else []
    if optimizer.has_schedule:
        before.append("    set_rate!(state, learning_rate(state.step))")
    after = ["    state.step += 1"] if optimizer.has_schedule else []
    if "train" in job.variants:
        yield from _train_steps(parts, [*before, *after])
        return
    gradient = "clip(state.optimizer, gradients[1])" if optimizer.gradient_clip else "gradients[1]"
    yield "\n".join([
        "# Train on a batch; return the loss before the update.",
        f"function train_step!(state, {parts})",
        *before,
        "    loss, gradients = Flux.withgradient(state.model) do model",
        "        return compute_loss(model, inputs, targets)",
        "    end",
        f"    Flux.update!(state.optimizer, state.model, {gradient})",
        *after,
        "    return loss",
        "end",
    ])  # fmt: skip


def _loss(smoothing: float) -> Iterator[str]:
    if not smoothing:
        yield "compute_loss(model, inputs, targets) = Flux.logitcrossentropy(model(inputs), targets)"
        return
    yield "function compute_loss(model, inputs, targets)"
    yield f"    smoothed = Flux.label_smoothing(targets, DTYPE({number(smoothing)}))"
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
weights(state) = Dict(name => Array(array) for (name, array) in tensors(state.model))"""


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
