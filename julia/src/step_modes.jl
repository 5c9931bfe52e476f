"""
A way to run the same steps: the function that makes a training step, the time of garbage collection, and the pass: `:training`
or `:forward`, which only computes logits.
"""
struct StepMode{Step, GC, Pass, T <: AbstractFloat}
    "The largest norm of all gradients together; 0 for any."
    gradient_clip::T
    label_smoothing::T
end

"""Alternatives to `withgradient` with Zygote followed by `update!`."""
const STEP_FUNCTIONS = ("train", "enzyme", "mooncake", "reactant")
const GC_POLICIES = ("gc_every_step", "gc_off")
const PASSES = ("forward",)

"""
    StepMode(variants...; gradient_clip = 0.0f0, label_smoothing = 0.0f0)

Select a step function and a garbage collection policy by names of variants; other names have no effect here.

`train` uses `Flux.train!` instead of `withgradient` and `update!`. `enzyme` and `mooncake` compute the gradient with these
packages, and `reactant` compiles the whole step. Their methods are in `ext/` and need the packages. `forward` selects the forward
pass. `gc_every_step` runs a full collection after each step, within its time; `gc_off` disables collections during timed steps.
"""
StepMode(variants::AbstractString...; gradient_clip = 0.0f0, label_smoothing = 0.0f0) = StepMode{
    select_one(variants, STEP_FUNCTIONS, :update), select_one(variants, GC_POLICIES, :auto),
    select_one(variants, PASSES, :training), typeof(gradient_clip),
}(gradient_clip, label_smoothing)

function select_one(variants, choices, default::Symbol)
    found = filter(in(choices), variants)
    length(found) > 1 && throw(ArgumentError("$(join(repr.(found), " and ")) exclude each other"))
    return isempty(found) ? default : Symbol(only(found))
end

"""
    device_for(mode, device)

Return the device that stores networks and batches in this mode.
"""
device_for(::StepMode, device::Device) = device

"""
    test_mode(mode)

Return the argument of `Flux.testmode!` for training: `:auto` if layers detect the gradient themselves, as with Zygote.
"""
test_mode(::StepMode) = :auto
test_mode(::Union{StepMode{:enzyme}, StepMode{:mooncake}, StepMode{:reactant}}) = false

"""
    prepare_model(mode, chain)

Wrap the chain for differentiation in this mode: the chain itself, or the chain with storage for its gradient.
"""
prepare_model(::Union{StepMode{:update}, StepMode{:train}}, chain) = chain
prepare_model(::Union{StepMode{:mooncake}, StepMode{:reactant}}, chain) = Flux.trainmode!(chain)

"""
    relu_at_zero(trainer)

Compute this mode's derivative of `relu` at 0, where it is undefined, by an experiment on the CPU.
"""
function relu_at_zero(trainer)
    T = typeof(trainer.loss)
    x, targets, model = ones(T, 1, 1), Flux.onehotbatch([0], 0:1), Chain(Dense(zeros(T, 2, 1), zeros(T, 2), Flux.relu))
    # Both logits are 0, so the gradient of the second is that of the loss, 1 / 2, times the derivative.
    _, gradients = Flux.withgradient(m -> Flux.logitcrossentropy(m(x), targets), differentiated(trainer.mode, model)...)
    return Float64(2 * gradients[1].layers[1].bias[2])
end

"""
    differentiated(mode, model)

Return what `Flux.withgradient` takes after the function: the model, and before it the type of a differentiation other than Zygote's.
"""
differentiated(::StepMode, model) = (model,)
differentiated(::StepMode{:enzyme}, model) = (EnzymeCore.Duplicated(model),)
differentiated(::StepMode{:mooncake}, model) = (AutoMooncake(), model)

"""
    initial_state(mode, rule, model)

Return the optimizer's initial state.
"""
initial_state(::StepMode, rule, model) = decay_matrices_only!(Flux.setup(rule, unwrap(model)))

"""
    unwrap(model)

Return the chain that `prepare_model` wrapped.
"""
unwrap(model) = model

"""
    with_gradient(mode, model, images, labels)

Return the loss and its gradient; the gradient has the structure of the unwrapped chain.
"""
with_gradient(::Union{StepMode{:update}, StepMode{:train}, StepMode{:enzyme}}, model, images, labels) =
    value_and_gradient(Flux.withgradient(cross_entropy(images, labels), model))

"""
    targets(mode, labels)

Return the one-hot labels, smoothed if requested: 1 - s + s / classes for the label, s / classes for every other class.
"""
targets(mode::StepMode, labels) =
    iszero(mode.label_smoothing) ? labels : Flux.label_smoothing(labels, mode.label_smoothing)

"""
    clip(mode, state, gradient)

Return the gradient, clipped if requested.
"""
clip(mode::StepMode, state, gradient) =
    iszero(mode.gradient_clip) ? gradient : clip_by_global_norm(state, gradient, mode.gradient_clip)

cross_entropy(images, labels) = model -> Flux.logitcrossentropy(model(images), labels)
value_and_gradient((value, gradients)) = value, gradients[1]

"""
    train_step!(mode, model, state, batch)

Run one step, and return its loss, which is computed before the update.
"""
function train_step!(mode::StepMode, model, state, batch)
    loss, gradient = with_gradient(mode, model, batch.images, targets(mode, batch.labels))
    Flux.update!(state, unwrap(model), clip(mode, state, gradient))
    return loss
end

"""
    is_forward_pass(mode)

Return whether steps only compute logits.
"""
is_forward_pass(::StepMode{<:Any, <:Any, Pass}) where {Pass} = Pass === :forward

"""
    forward!(mode, forward, batches)

Compute the logits of each batch, and return the last ones.
"""
function forward!(mode::StepMode, forward, batches)
    logits = nothing
    for batch in batches
        logits = forward(batch.images)
        after_step(mode)
    end
    return logits
end

"""
    train!(mode, model, state, batches, loss)

Run one step per batch, and return the last loss, or `loss` if there are no batches.
"""
function train!(mode::StepMode, model, state, batches, loss)
    for batch in batches
        # The type of Zygote's gradient is never inferred; that of this loop is.
        loss = train_step!(mode, model, state, batch)::typeof(loss)
        after_step(mode)
    end
    return loss
end

function train!(mode::StepMode{:train}, model, state, batches, loss)
    last_loss = Ref(loss)
    data = ((batch.images, targets(mode, batch.labels)) for batch in with_after_step(mode, batches))
    Flux.train!(model, data, state) do m, images, labels
        value = Flux.logitcrossentropy(m(images), labels)
        ignore_derivatives(() -> (last_loss[] = value; nothing))  # `train!` does not return it
        return value
    end
    return last_loss[]
end

after_step(::StepMode) = nothing
after_step(::StepMode{<:Any, :gc_every_step}) = GC.gc()

"""
    with_after_step(mode, batches)

Return an iterator that calls `after_step` between batches and after the last one, because `Flux.train!` contains the loop.
"""
with_after_step(::StepMode, batches) = batches
with_after_step(mode::StepMode{<:Any, :gc_every_step}, batches) = AfterStepIterator(mode, batches)

struct AfterStepIterator{M, B}
    mode::M
    batches::B
end

Base.IteratorSize(::Type{<:AfterStepIterator}) = Base.SizeUnknown()
Base.iterate(iterator::AfterStepIterator) = iterate(iterator.batches)
function Base.iterate(iterator::AfterStepIterator, state)
    after_step(iterator.mode)
    return iterate(iterator.batches, state)
end

"""
    disable_gc(mode)

Disable garbage collection before timed steps, in the mode `gc_off`.
"""
disable_gc(::StepMode) = nothing
disable_gc(::StepMode{<:Any, :gc_off}) = (GC.enable(false); nothing)

"""
    enable_gc(mode)

Enable garbage collection after timed steps, and collect the garbage of the steps. Returns the seconds of that collection, which are
not part of any step.
"""
enable_gc(::StepMode) = 0.0
function enable_gc(::StepMode{<:Any, :gc_off})
    before, _ = gc_stats()
    GC.enable(true)
    GC.gc(false)
    return first(gc_stats()) - before
end
