# Checks the package with JET without running it: calls without a matching method, undefined names.
# Alone: julia --project=. julia/test/jet.jl, in an environment with PolyBench and JET.
using JET, PolyBench, Test

isdefined(Main, :make_trainer) || include("small_trainer.jl")

@testset "JET" begin
    options = (; target_modules = (PolyBench,))
    JET.test_package(PolyBench; options...)

    trainer = make_trainer()
    batches, chain = data(trainer), PolyBench.model(:lenet).program.network()
    batch = (zeros(Float32, 32, 32, 3, 4), PolyBench.Flux.onehotbatch(zeros(Int, 4), 0:9))

    # Not `bench(:lenet)`: it selects its device by name, and JET does not see the methods of the CUDA extension.
    for (call, arguments) in (
            PolyBench.run_steps! => (trainer, batches, 0, 1),
            PolyBench.loss_and_gradients => (trainer, batches, 0),
            PolyBench.step_operations => (trainer, batches),
            PolyBench.host_info => (),
            bench => (chain, PolyBench.cross_entropy, batch),
            PolyBench.layers => (chain, first(batch)),
            read_study => ("a file",),
        )
        JET.test_call(call, map(typeof, arguments); options...)
    end
    JET.test_call(write_study, (String, PolyBench.Trial); options...)
    println("JET has tested the package")
end
