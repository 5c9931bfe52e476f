"""
Ways to run the same training: which of Flux's functions makes a step, and when the garbage collector runs.
"""
struct Way{Step, Collector} end

"""What makes a step, where it is not `withgradient` with Zygote and then `update!`."""
const STEPS = ("train", "enzyme", "mooncake", "reactant", "lux")
const COLLECTORS = ("gc_every_step", "gc_off")

"""
    Way(variants...)

`train` takes `Flux.train!` where a plain training has `withgradient` and `update!`; with `enzyme` and `mooncake` the gradient
is theirs; `reactant` compiles the whole step, and `lux` is Lux's. Their methods are in `ext/`, and need their packages. `gc_every_step` asks for a
full collection after each step, inside its time; `gc_off` allows none during timed steps. Other names change nothing here.
"""
Way(variants::AbstractString...) = Way{only_one(variants, STEPS, :update), only_one(variants, COLLECTORS, :auto)}()

function only_one(variants, among, otherwise::Symbol)
    found = filter(in(among), variants)
    length(found) > 1 && throw(ArgumentError("$(join(repr.(found), " and ")) exclude each other"))
    return isempty(found) ? otherwise : Symbol(only(found))
end

"""
    made_for(way, device)

The device on which networks and batches are placed in this way.
"""
made_for(::Way, device::Device) = device

"""
    test_mode(way)

What `Flux.testmode!` is told for training: `:auto` where layers see by themselves that a gradient is taken, as with Zygote.
"""
test_mode(::Way) = :auto
test_mode(::Union{Way{:enzyme}, Way{:mooncake}, Way{:reactant}}) = false

"""
    differentiable(way, chain)

What the way takes gradients of: the chain itself, or the chain with a place for its gradient.
"""
differentiable(::Union{Way{:update}, Way{:train}}, chain) = chain
differentiable(::Union{Way{:mooncake}, Way{:reactant}}, chain) = Flux.trainmode!(chain)

"""
    relu_at_zero(trainer)

The derivative of `relu` at 0, where it has none, in the trainer's way; found by an experiment, on the CPU.
"""
function relu_at_zero(trainer)
    T = typeof(trainer.loss)
    model = differentiable(trainer.way, Chain(Dense(zeros(T, 2, 1), zeros(T, 2), Flux.relu)))
    # Both logits are 0, so the gradient of the second is that of the loss, 1 / 2, times the derivative.
    _, gradient = with_gradient(trainer.way, model, ones(T, 1, 1), Flux.onehotbatch([0], 0:1))
    return Float64(2 * gradient.layers[1].bias[2])
end

"""
    fresh_state(way, rule, model)

The optimizer's state at the beginning of a training.
"""
fresh_state(::Way, rule, model) = Flux.setup(rule, chain_of(model))

"""
    chain_of(model)

The chain that `differentiable` was given.
"""
chain_of(model) = model

"""
    with_gradient(way, model, images, labels)

The loss and its gradient, built like the chain that `model` was made of.
"""
with_gradient(::Union{Way{:update}, Way{:train}, Way{:enzyme}}, model, images, labels) =
    value_and_gradient(Flux.withgradient(cross_entropy(images, labels), model))

cross_entropy(images, labels) = model -> Flux.logitcrossentropy(model(images), labels)
value_and_gradient((value, gradients)) = value, gradients[1]

"""
    train_step!(way, model, state, batch)

One step; its loss, before the update.
"""
function train_step!(way::Way, model, state, batch)
    loss, gradient = with_gradient(way, model, batch.images, batch.labels)
    Flux.update!(state, chain_of(model), gradient)
    return loss
end

"""
    before_steps!(model)

Before steps, and in no measurement of them: take the running statistics of the chain, where the model has them elsewhere
while it trains.
"""
before_steps!(_) = nothing

"""
    after_steps!(model)

After them: put the statistics back.
"""
after_steps!(_) = nothing

"""
    train!(way, model, state, batches, loss)

A step on each of the batches; the last one's loss, or `loss` where there are none.
"""
function train!(way::Way, model, state, batches, loss)
    for batch in batches
        # Zygote's gradient is not inferred, for no user of Flux; the loop around it is.
        loss = train_step!(way, model, state, batch)::typeof(loss)
        after_step(way)
    end
    return loss
end

function train!(way::Way{:train}, model, state, batches, loss)
    seen = Ref(loss)
    data = ((batch.images, batch.labels) for batch in followed(way, batches))
    Flux.train!(model, data, state) do m, images, labels
        value = Flux.logitcrossentropy(m(images), labels)
        ignore_derivatives(() -> (seen[] = value; nothing))  # `train!` tells nobody what it was
        return value
    end
    return seen[]
end

after_step(::Way) = nothing
after_step(::Way{<:Any, :gc_every_step}) = GC.gc()

"""
    followed(way, batches)

The batches, with what follows on a step between them and after the last, where `Flux.train!` has the loop.
"""
followed(::Way, batches) = batches
followed(way::Way{<:Any, :gc_every_step}, batches) = Followed(way, batches)

struct Followed{W, B}
    way::W
    batches::B
end

Base.IteratorSize(::Type{<:Followed}) = Base.SizeUnknown()
Base.iterate(one::Followed) = iterate(one.batches)
function Base.iterate(one::Followed, state)
    after_step(one.way)
    return iterate(one.batches, state)
end

"""
    hold(way)

Before timed steps: keep the collector away from them, where the way says so.
"""
hold(::Way) = nothing
hold(::Way{<:Any, :gc_off}) = (GC.enable(false); nothing)

"""
    release(way)

After timed steps: let it collect what they left. Returns its seconds, which belong to no step.
"""
release(::Way) = 0.0
function release(::Way{<:Any, :gc_off})
    before, _ = collected()
    GC.enable(true)
    GC.gc(false)
    return first(collected()) - before
end
