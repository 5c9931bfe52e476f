"""Writes the Lux program that the engine times: a network and its training step, as users of Lux write them.

The network is that of `network_code`; rules and learning rates are those of Flux's programs. This module does not
start Julia.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from polybench.engines.flux.julia.discovery import LUX_PROGRAM_PACKAGES
from polybench.engines.flux.julia_text import Call, Expression, number, text
from polybench.engines.flux.lux.network_code import LuxNetworkCode
from polybench.engines.flux.main_part import network, training
from polybench.engines.flux.optimizer_code import clip, exceptions, has_exceptions, learning_rate, load, rule, set_rate
from polybench.engines.job import Job
from polybench.engines.shared.main_part import MainPart
from polybench.networks.model import Model
from polybench.networks.optimizers import Optimizer
from polybench.networks.source_text import comment, literal


def emit(job: Job, main: MainPart | None = None) -> str:
    """Return the program of a job; raises EngineUnavailable for a layer that Lux lacks.

    It has the constants and functions of Flux's program (`engines/flux/emitter.py`). Its state has Lux's `TrainState`,
    which each step replaces; that of a forward pass has model, parameters and states. `tensors` takes either.
    """
    given_masks = job.dropout == "given"
    code = LuxNetworkCode(job.model.layers, job.model.input_shape, given_masks=given_masks)
    is_forward_pass = job.workload.is_forward_pass
    sections = [
        code.text(job.model.summary),
        code.tensors(),
        *code.masks(),
        *_setup(job, code.ties()),
        *([] if is_forward_pass else _optimizer(job.workload.optimizer)),
        load(job, "onehotbatch"),
        *(_forward_pass() if is_forward_pass else _training_step(job, has_masks=given_masks and job.model.is_random)),
        *([main.text] if main is not None else []),
    ]
    body = "\n\n".join(sections)
    return "\n".join([*_top(job, body, main), "", body, ""])


def emit_training(job: Job, steps: int, *, clock: bool = False) -> str:
    """Return the program with a main part that trains and times `steps` steps; with `clock`, see `training`."""
    return emit(job, training(job, steps, LUX_PROGRAM_PACKAGES, clock=clock))


def emit_network(job: Job) -> str:
    """Return the program with a main part that makes `model`, `parameters` and `states`, with the weights of the .npz
    file beside it.
    """
    return emit(job, network("(; model, parameters, states) = state.train_state"))


def _top(job: Job, body: str, main: MainPart | None) -> Iterator[str]:
    """Yield the imports and constants."""
    yield comment(f"{job.model.name.partition('~')[0]} in Lux.")
    yield from ["#", *main.usage.splitlines()] if main is not None and main.usage else []
    yield ""
    yield from [*main.first, ""] if main is not None and main.first else []
    yield from sorted([*_libraries(body), *(main.libraries if main is not None else [])])
    yield ""
    yield f"const DTYPE = {'Float64' if job.dtype == 'float64' else 'Float32'}"
    yield f'const DEVICE = "{job.device}"'
    yield f"const SEED = {job.seed}"


def _libraries(body: str) -> list[str]:
    """Return the imports of a program."""
    gelu = sorted(set(re.findall(r"gelu_\w+", body)))
    return [
        "using Lux",
        "using OneHotArrays",
        "using Random",
        *(["using Lux.Functors: fmap"] if "fmap(" in body else []),
        *([f"using Lux.NNlib: {', '.join(gelu)}"] if gelu else []),
        *(["using Optimisers", "using Zygote"] if "AutoZygote" in body else []),
    ]


def _setup(job: Job, ties: list[tuple[str, str]]) -> Iterator[str]:
    """Yield the state of a training, and the functions that make it and start again."""
    is_forward_pass = job.workload.is_forward_pass
    has_schedule = not is_forward_pass and job.workload.optimizer.has_schedule
    made: list[Expression] = [Call("make_train_state", ["model", "parameters", "states"])]
    variables, restart = "state.train_state", []
    fields = ["    train_state::Training.TrainState"]
    if is_forward_pass:
        fields, variables = ["    model::M", "    parameters::P", "    states::S"], "state"
        made = ["model", "parameters", "Lux.testmode(states)"]
    else:
        restart = ["    (; model, parameters, states) = state.train_state"]
        arguments = "model, parameters, states"
        if has_schedule:
            fields += ["    step::Int", "    rate::Float64"]
            made = [Call("make_train_state", ["model", "parameters", "states", "rate"]), "0", "rate"]
            restart.append("    state.step, state.rate = step, learning_rate(step)")
            arguments += ", state.rate"
        restart.append(f"    state.train_state = make_train_state({arguments})")
    yield "\n".join(["struct State{M, P, S}" if is_forward_pass else "mutable struct State", *fields, "end"])
    yield "\n".join([
        "# Return the start of a training, from these weights (arrays by name) if given.",
        "function setup(weights = nothing)",
        "    Random.seed!(SEED)",
        "    model = network()",
        "    variables = Lux.setup(Random.default_rng(), model)",
        "    parameters, states = (DTYPE == Float64 ? f64 : f32)(variables)",
        *_shared(ties),
        *(["    rate = learning_rate(0)"] if has_schedule else []),
        text("    state = ", Call("State", made)),
        "    weights === nothing || reset!(state, weights)",
        "    return state",
        "end",
    ])  # fmt: skip
    yield "\n".join([
        "# Start again from these weights, in place.",
        "function reset!(state, weights, step = 0)",
        f"    for (name, array) in tensors({variables})",
        "        array .= weights[name]",
        "    end",
        *restart,
        "    Random.seed!(SEED)",
        "    return nothing",
        "end",
    ])  # fmt: skip
    yield "\n".join([
        "# Copy the weights and running statistics to arrays by name.",
        f"weights(state) = Dict(name => Array(array) for (name, array) in tensors({variables}))",
    ])  # fmt: skip


def _shared(ties: list[tuple[str, str]]) -> Iterator[str]:
    """Yield the lines that give layers the array of another one."""
    if not ties:
        return
    shared: dict[str, list[str]] = {}
    for owner, path in ties:
        shared.setdefault(owner, [owner]).append(path)
    groups = [f"({', '.join(map(literal, paths))})" for paths in shared.values()]
    sharing = f"({', '.join(groups)}{',' if len(groups) == 1 else ''})"
    yield text("    parameters = ", Call("Lux.Experimental.share_parameters", ["parameters", sharing]))


def _optimizer(optimizer: Optimizer) -> Iterator[str]:
    """Yield the functions that make the state of a training and change its learning rate."""
    parameters = ["model", "parameters", "states", *(["rate"] if optimizer.has_schedule else [])]
    made = Call("Training.TrainState", ["model", "parameters", "states", rule(optimizer)])
    function = f"function make_train_state({', '.join(parameters)})"
    if has_exceptions(optimizer):
        changed = exceptions("train_state.optimizer_state", "Optimisers")
        yield "\n".join([function, text("    train_state = ", made), *changed, "    return train_state", "end"])
    else:
        yield "\n".join([function, text("    return ", made), "end"])
    if optimizer.has_schedule:
        yield "\n".join(learning_rate(optimizer))
        yield "\n".join(set_rate(optimizer, "optimizer", "Optimisers", "optimizer = state.train_state.optimizer_state"))
    if optimizer.gradient_clip:
        yield clip(optimizer)


def _forward_pass() -> Iterator[str]:
    yield "\n".join([
        "function forward_pass(state, batch)",
        "    logits, _ = state.model(first(batch), state.parameters, state.states)",
        "    return logits",
        "end",
    ])  # fmt: skip


def _training_step(job: Job, *, has_masks: bool) -> Iterator[str]:
    """Yield the loss, and the step that uses it."""
    yield _loss(job.model)
    optimizer = job.workload.optimizer
    has_schedule = optimizer.has_schedule
    arguments = ["AutoZygote()", "compute_loss", "(inputs, targets)", "state.train_state"]
    if optimizer.gradient_clip:
        step = text("    gradients, loss, _, train_state = ", Call("Training.compute_gradients", arguments))
        clipped = Call("clip", ["train_state.optimizer_state", "gradients"])
        update = text("    state.train_state = ", Call("Training.apply_gradients!", ["train_state", clipped]))
    else:
        step = text("    _, loss, _, train_state = ", Call("Training.single_train_step!", arguments))
        update = "    state.train_state = train_state"
    yield "\n".join([
        "# Train on a batch; return the loss before the update.",
        f"function train_step!(state, (inputs, targets{', masks' if has_masks else ''}))",
        *(["    set_masks!(state, masks)"] if has_masks else []),
        *(["    set_rate!(state, learning_rate(state.step))"] if has_schedule else []),
        step,
        update,
        *(["    state.step += 1"] if has_schedule else []),
        "    return loss",
        "end",
    ])  # fmt: skip


def _loss(model: Model) -> str:
    """Return `compute_loss`. Lux smooths labels by the size of the axis before the last, which may be the time."""
    smoothing = model.label_smoothing
    if not smoothing:
        return "const compute_loss = CrossEntropyLoss(; logits = Val(true))"
    if not model.label_shape:
        return f"const compute_loss = CrossEntropyLoss(; logits = Val(true), label_smoothing = {number(smoothing)})"
    return "\n".join([
        "function compute_loss(model, parameters, states, (inputs, targets))",
        "    logits, states = model(inputs, parameters, states)",
        f"    smoothed = DTYPE({number(1 - smoothing)}) .* targets .+ DTYPE({number(smoothing / model.classes)})",
        "    return CrossEntropyLoss(; logits = Val(true))(logits, smoothed), states, (;)",
        "end",
    ])  # fmt: skip
