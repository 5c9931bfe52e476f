# The extension for Reactant, without Reactant: alone, or as a part of runtests.jl. `trainstep!` is that of Flux 0.16.11
# (src/train.jl), its signature and what it asks of a batch; `reactant_device` that of MLDataDevices 1.17.10. Nothing is compiled.
using Flux, PolyBench, Test

module Reactant
    macro jit(call)  # src/Compiler.jl: compiles the call and runs it
        return esc(call)
    end
    to_number(x::Number) = x  # src/Tracing.jl
end

module Newer
    using Flux: Flux
    const moved, steps = Ref(0), Ref(0)
    function reactant_device(eltype = missing; force::Bool = false, client = missing, device = missing, sharding = missing)
        force && eltype === nothing || error("what a parity check needs is float64")
        return x -> (moved[] += 1; x)
    end
    function trainstep!(loss, model, batch::Tuple, opt_state)
        steps[] += 1
        value, gradients = Flux.withgradient(m -> loss(m, batch...), model)
        Flux.update!(opt_state, model, gradients[1])
        return value
    end
end

isdefined(Main, :both_ways) || include("stand_in.jl")
include_extension(
    "Reactant", "MLDataDevices.reactant_device" => "Main.Newer.reactant_device", "Flux.trainstep!" => "Main.Newer.trainstep!",
    "AutoEnzyme()" => "Main.Flux.AutoZygote()",
)

@testset "a step that Reactant compiles is the plain one" begin
    plain, same = both_ways("reactant")
    @test !(same.device isa PolyBench.CPU) && Newer.moved[] == 1  # the model; then two batches, and images to classify
    @test trained(same) == trained(plain)
    @test Newer.steps[] == 3 && Newer.moved[] == 1 + 4 + 1
    @test PolyBench.allocated(() -> zeros(100), same.device)[2] == ()
    @test PolyBench.device_peak_bytes(same) === PolyBench.device_reserved_bytes(same) === nothing
end
