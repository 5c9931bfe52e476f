"""
Steps that Reactant compiles as a whole, by `Flux.trainstep!`. Written from the sources of Flux 0.16.11 (`src/train.jl`,
`ext/FluxReactantExt.jl`), MLDataDevices 1.17.10 and Reactant 0.2.280, and tested with fakes (`test/reactant.jl`). It has never
been run with Reactant itself.
"""
module PolyBenchReactantExt

using PolyBench: PolyBench, CPU, Device, StepMode
using PolyBench.Flux: AutoEnzyme, Flux, MLDataDevices
using Reactant: Reactant

"""The CPU with Reactant's arrays."""
struct ReactantCPU <: Device end

PolyBench.device_for(::StepMode{:reactant}, ::CPU) = ReactantCPU()

# With `nothing`, elements keep their type: the parity check needs Float64.
PolyBench.to_device(::ReactantCPU, x) = MLDataDevices.reactant_device(nothing; force = true)(x)

# Nothing to wait for: reading a step's loss waits for the executable that also computes the new weights.
PolyBench.synchronize(::ReactantCPU) = nothing
PolyBench.allocated(f, ::ReactantCPU) = PolyBench.allocated(f, CPU())
PolyBench.device_peak_bytes(::ReactantCPU) = nothing
PolyBench.device_reserved_bytes(::ReactantCPU) = nothing
# No generator to seed: polybench rejects networks with dropout.
PolyBench.seed!(::ReactantCPU, ::Int) = nothing

PolyBench.train_step!(::StepMode{:reactant}, _, model, state, loss, batch) = Flux.trainstep!(loss, model, batch, state)

# In place: Flux caches compiled steps by the identity of the model.
PolyBench.fresh_model(::StepMode{:reactant}, run) = Flux.loadmodel!(run.model, run.initial)

function PolyBench.loss_and_gradients(::StepMode{:reactant}, program::Module, model, images, labels)
    loss, gradient = Reactant.@jit traced_gradient(program.compute_loss, model, images, labels)
    return Reactant.to_number(loss), PolyBench.replace_arrays(model, gradient)
end

function traced_gradient(compute_loss, model, images, labels)
    loss, gradients = Flux.withgradient(m -> compute_loss(m, images, labels), AutoEnzyme(), model)
    return loss, gradients[1]
end

PolyBench.infer(::ReactantCPU, model, x) = Array(Reactant.@jit model(x))

end
