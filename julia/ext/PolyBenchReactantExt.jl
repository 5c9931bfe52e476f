"""
Steps that Reactant compiles as a whole, by `Flux.trainstep!`. Held against the sources of Flux 0.16.11 (`src/train.jl`,
`ext/FluxReactantExt.jl`), MLDataDevices 1.17.10 and Reactant 0.2.280, and run with stand-ins for them (`test/reactant.jl`); it
has not run with Reactant itself yet.
"""
module PolyBenchReactantExt

using PolyBench: PolyBench, CPU, Device, Way
using PolyBench.Flux: AutoEnzyme, Flux, MLDataDevices
using Reactant: Reactant

"""Reactant's arrays on the CPU."""
struct ReactantArrays <: Device end

PolyBench.made_for(::Way{:reactant}, ::CPU) = ReactantArrays()

# With `nothing` elements keep their type: Float64 is what the parity check needs.
PolyBench.place(::ReactantArrays, x) = MLDataDevices.reactant_device(nothing; force = true)(x)

# A step's loss is read back to the host, and comes out of the same executable as the new weights.
PolyBench.synchronize(::ReactantArrays) = nothing
PolyBench.allocated(f, ::ReactantArrays) = PolyBench.allocated(f, CPU())
PolyBench.device_peak_bytes(::ReactantArrays) = nothing
PolyBench.device_reserved_bytes(::ReactantArrays) = nothing
# Nothing draws: what has dropout of its own is refused.
PolyBench.seed!(::ReactantArrays, ::Int) = nothing

# One function for all steps: Flux looks compiled ones up by its identity.
loss(model, images, labels) = Flux.logitcrossentropy(model(images), labels)

PolyBench.train_step!(::Way{:reactant}, model, state, batch) =
    Flux.trainstep!(loss, model, (batch.images, batch.labels), state)

function PolyBench.with_gradient(::Way{:reactant}, model, images, labels)
    value, gradient = Reactant.@jit traced_gradient(model, images, labels)
    return Reactant.to_number(value), gradient
end

traced_gradient(model, images, labels) =
    PolyBench.value_and_gradient(Flux.withgradient(m -> loss(m, images, labels), AutoEnzyme(), model))

PolyBench.infer(::ReactantArrays, model, x) = Array(Reactant.@jit model(x))

end
