# Tests of the extension for Reactant without Reactant: alone, or in runtests.jl. The fake `trainstep!` has the signature and the
# batch type of Flux 0.16.11 (src/train.jl), `reactant_device` those of MLDataDevices 1.17.10. Nothing is compiled.
using Flux, PolyBench, Test

module Reactant
    macro jit(call)  # src/Compiler.jl: compiles the call and runs it
        return esc(call)
    end
    to_number(x::Number) = x  # src/Tracing.jl
end

module NewerFlux
    using Flux: Flux
    const moved, steps = Ref(0), Ref(0)
    function reactant_device(eltype = missing; force::Bool = false, client = missing, device = missing, sharding = missing)
        force && eltype === nothing || error("the parity check needs float64")
        return x -> (moved[] += 1; x)
    end
    function trainstep!(loss, model, batch::Tuple, opt_state)
        steps[] += 1
        value, gradients = Flux.withgradient(m -> loss(m, batch...), model)
        Flux.update!(opt_state, model, gradients[1])
        return value
    end
end

isdefined(Main, :train_lenet) || include("fake_extension.jl")
include_extension(
    "Reactant", "MLDataDevices.reactant_device" => "Main.NewerFlux.reactant_device", "Flux.trainstep!" => "Main.NewerFlux.trainstep!",
    "AutoEnzyme()" => "Main.Flux.AutoZygote()",
)

@testset "a step compiled by Reactant equals the default step" begin
    run, losses = train_lenet("reactant")
    @test NewerFlux.moved[] == 1 + 3 * 2  # the model, and the arrays of the batches
    @test losses == last(train_lenet(""))
    @test NewerFlux.steps[] == 3
    model = run.model
    PolyBench.reset!(run)
    @test run.model === model  # whose step is compiled
    @test PolyBench.run_steps!(run, 0, 1) > 0 && PolyBench.last_loss(run) == losses[1]
    device = PolyBench.device_for(PolyBench.StepMode("reactant"), PolyBench.CPU())
    @test !(device isa PolyBench.CPU)
    @test PolyBench.allocated(() -> zeros(100), device)[2] == ()
    @test PolyBench.device_peak_bytes(device) === PolyBench.device_reserved_bytes(device) === nothing
    @test snapshot("reactant") == snapshot()
end
