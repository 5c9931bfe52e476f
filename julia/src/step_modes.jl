"""
A way to run the same steps: the function that makes a training step, the time of garbage collection, and the pass: `:training`
or `:forward`, which only computes logits.
"""
struct StepMode{Step, GC, Pass} end

"""Alternatives to `withgradient` with Zygote followed by `update!`."""
const STEP_FUNCTIONS = ("train", "enzyme", "mooncake", "reactant")
const GC_POLICIES = ("gc_every_step", "gc_off")
const PASSES = ("forward",)

"""
    StepMode(variants...)

Select a step function and a garbage collection policy by names of variants; other names have no effect here.

`train` uses `Flux.train!` instead of `withgradient` and `update!`. `enzyme` and `mooncake` compute the gradient with these
packages, and `reactant` compiles the whole step. `forward` selects the forward pass. `gc_every_step` runs a full collection after
each step, within its time; `gc_off` disables collections during timed steps.
"""
StepMode(variants::AbstractString...) = StepMode{
    select_one(variants, STEP_FUNCTIONS, :update), select_one(variants, GC_POLICIES, :auto),
    select_one(variants, PASSES, :training),
}()

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
test_mode(_) = :auto
test_mode(::Union{StepMode{:enzyme}, StepMode{:mooncake}, StepMode{:reactant}}) = false

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
    differentiated(way, model)

Return what `Flux.withgradient` takes after the function: the model, and before it the type of a differentiation other than Zygote's.
`way` is a `StepMode`, or such a type.
"""
differentiated(::StepMode, model) = (model,)
differentiated(::StepMode{:enzyme}, model) = (EnzymeCore.Duplicated(model),)
differentiated(::StepMode{:mooncake}, model) = (AutoMooncake(), model)
differentiated(way::AbstractADType, model) = (way, model)

"""
    is_forward_pass(mode)

Return whether steps only compute logits.
"""
is_forward_pass(::StepMode{<:Any, <:Any, Pass}) where {Pass} = Pass === :forward

after_step(_) = nothing
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
disable_gc(_) = nothing
disable_gc(::StepMode{<:Any, :gc_off}) = (GC.enable(false); nothing)

"""
    enable_gc(mode)

Enable garbage collection after timed steps, and collect the garbage of the steps. Returns the seconds of that collection, which are
not part of any step.
"""
enable_gc(_) = 0.0
function enable_gc(::StepMode{<:Any, :gc_off})
    before, _ = gc_stats()
    GC.enable(true)
    GC.gc(false)
    return first(gc_stats()) - before
end
