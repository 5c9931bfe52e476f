"""Writes what programs of Flux and Lux have of Optimisers.jl: rules, learning rates, clipping; and their batches.

Optimisers.jl has the canonical formulas, but its velocities have the learning rate as a factor.
"""

from __future__ import annotations

from collections.abc import Iterator

from polybench.engines.flux.julia_text import Call, number, text
from polybench.engines.job import Job
from polybench.networks.optimizers import ADAM_BETAS, CLIP_EPSILON, RMSPROP_DECAY, RMSPROP_EPSILON, Optimizer


def rule(optimizer: Optimizer) -> str:
    """Return the expression of the rule, with the variable `rate` if there is a schedule."""
    rate = "rate" if optimizer.has_schedule else number(optimizer.learning_rate)
    decay, betas = number(optimizer.weight_decay), optimizer.betas or ADAM_BETAS
    pair = f"({', '.join(map(number, betas))})"
    if optimizer.name == "adamw":
        return f"AdamW({rate}, {pair}, {decay})"
    match optimizer.name:
        case "momentum" | "nesterov":
            found = f"{optimizer.name.capitalize()}({rate}, {number(optimizer.momentum or 0.0)})"
        case "adam":
            found = f"Adam({rate}{'' if betas == ADAM_BETAS else f', {pair}'})"
        case "rmsprop":
            found = f"RMSProp({rate}, {number(RMSPROP_DECAY)}, {number(RMSPROP_EPSILON)})"
        case _:
            found = f"Descent({rate})"
    return f"OptimiserChain(WeightDecay({decay}), {found})" if optimizer.weight_decay else found


def has_exceptions(optimizer: Optimizer) -> bool:
    """Return True if not all arrays decay."""
    return optimizer.name == "adamw" and bool(optimizer.weight_decay)


def exceptions(tree: str, package: str) -> Iterator[str]:
    """Yield lines that turn the decay of AdamW off, in a tree of its states."""
    yield "    # Biases, weights of norms and class tokens do not decay."
    yield f"    fmap({tree}; exclude = node -> node isa Optimisers.Leaf) do leaf"
    yield f"        ndims(first(leaf.state)) > 1 || {package}.adjust!(leaf; lambda = 0.0)"
    yield "        return leaf"
    yield "    end"


def learning_rate(optimizer: Optimizer) -> Iterator[str]:
    """Yield the lines of the learning rate of a step, which is `optimizer.learning_rate_at`."""
    rate = number(optimizer.learning_rate)
    yield "function learning_rate(step)"
    if optimizer.warmup_steps:
        warmup = optimizer.warmup_steps
        yield f"    step < {warmup} && return {rate} * (step + 1) / {warmup + 1}"
    if optimizer.cosine_steps:
        low, warmup = number(optimizer.min_learning_rate), optimizer.warmup_steps
        since = f"(step - {warmup})" if warmup else "step"
        yield f"    progress = min(1.0, {since} / {optimizer.cosine_steps - warmup})"
        start, span = (f"{low} + ", f"({rate} - {low})") if optimizer.min_learning_rate else ("", rate)
        yield f"    return {start}0.5 * (1 + cos(pi * progress)) * {span}"
    else:
        for before, later in optimizer.lr_schedule:
            yield f"    step < {before} && return {rate}"
            rate = number(later)
        yield f"    return {rate}"
    yield "end"


def set_rate(optimizer: Optimizer, tree: str, package: str, *before: str) -> Iterator[str]:
    """Yield the lines of the function that changes the learning rate of a tree of states, with statements before."""
    yield "# Set the learning rate of the next step."
    yield "function set_rate!(state, rate)"
    yield "    rate == state.rate && return nothing"
    yield from (f"    {statement}" for statement in before)
    yield f"    {package}.adjust!({tree}, rate)"
    if optimizer.momentum is not None:
        velocity = "last(leaf.state)" if optimizer.weight_decay else "leaf.state"
        yield "    # The velocity has the rate as a factor."
        yield f"    fmap({tree}; exclude = node -> node isa Optimisers.Leaf) do leaf"
        yield f"        {velocity} .*= rate / state.rate"
        yield "        return leaf"
        yield "    end"
    yield "    state.rate = rate"
    yield "    return nothing"
    yield "end"


def clip(optimizer: Optimizer) -> str:
    """Return the function that clips a gradient, and what it needs."""
    return _CLIP.replace("LARGEST", number(optimizer.gradient_clip))


_CLIP = f"""# Multiply the gradients by one factor, so that the norm of all is at most LARGEST.
function clip(optimizer, gradient)
    sums = IdDict()
    add_gradients!(sums, optimizer, gradient)
    norm = sqrt(sum(array -> sum(abs2, array), values(sums)))
    factor = min(1, DTYPE(LARGEST) / (norm + DTYPE({number(CLIP_EPSILON)})))
    return fmap(one -> one isa AbstractArray ? factor .* one : one, gradient)
end

# Layers that share an array have one leaf and several gradients, whose sum counts.
function add_gradients!(sums, leaf::Optimisers.Leaf, gradient)
    gradient === nothing && return nothing
    sums[leaf] = haskey(sums, leaf) ? sums[leaf] + gradient : gradient
    return nothing
end

function add_gradients!(sums, branch::Union{{Tuple, NamedTuple}}, gradient)
    gradient === nothing && return nothing
    foreach(key -> add_gradients!(sums, branch[key], getfield(gradient, key)), keys(branch))
    return nothing
end

add_gradients!(sums, other, gradient) = nothing"""


def load(job: Job, onehotbatch: str, move: str = "") -> str:
    """Return the function that makes a batch of canonical arrays.

    `onehotbatch` is its function for labels, `move` that which moves arrays to another device.
    """
    model = job.model
    name = f"{model.input_kind}s"
    shape = f"({', '.join(['width', 'height', 'channel', 'batch'] if name == 'images' else ['time', 'batch'])})"
    labels = "(time, batch)" if model.label_shape else "(batch)"
    inputs = f"convert(Array{{DTYPE}}, {name})"
    if model.vocabulary_size is not None:
        described, inputs = f"# Count tokens {shape} from 1", f"Int.({name}) .+ 1"
    elif name == "images":
        described = f"# Convert images {shape} in 0..1"
    else:
        described = "# Convert sequences (features, time, batch)"
    batch = f"{inputs}, {onehotbatch}(labels, 0:{model.classes - 1})"
    return "\n".join([
        f"{described}, and one-hot encode labels {labels}.",
        text(f"load({name}, labels) = ", Call(move, [f"({batch})"]) if move else batch),
    ])  # fmt: skip
