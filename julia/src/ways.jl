"""
Ways to run the same training: which of Flux's functions makes a step, and when the garbage collector runs.
"""
struct Way{Step, Collector} end

"""
    Way(variants...)

`train` takes `Flux.train!` where a plain training has `withgradient` and `update!`; `gc_every_step` asks for a full collection
after each step, inside its time; `gc_off` allows none during timed steps. Other names change nothing here.
"""
function Way(variants::AbstractString...)
    collectors = filter(in(("gc_every_step", "gc_off")), variants)
    length(collectors) > 1 && throw(ArgumentError("\"gc_every_step\" and \"gc_off\" exclude each other"))
    return Way{"train" in variants ? :train : :update, isempty(collectors) ? :auto : Symbol(only(collectors))}()
end

"""
    train!(way, model, state, batches, loss)

A step on each of the batches; the last one's loss, or `loss` where there are none.
"""
function train!(way::Way{:update}, model, state, batches, loss)
    for batch in batches
        # Zygote's gradient is not inferred, for no user of Flux; the loop around it is.
        loss = train_step!(model, state, batch)::typeof(loss)
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
