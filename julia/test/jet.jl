# Checks the package with JET without running it: calls without a matching method, undefined names.
# Alone: julia --project=. julia/test/jet.jl, in an environment with PolyBench and JET.
using JET, PolyBench, Test

@testset "JET" begin
    options = (; target_modules = (PolyBench,))
    JET.test_package(PolyBench; options...)

    network = PolyBench.model(:lenet)
    trainer = PolyBench.trainer(network, PolyBench.initial_weights(network, 0), "cpu")
    images, labels = zeros(Float32, 32, 32, 3, 4, 2), zeros(Int, 4, 2)
    batches = PolyBench.batches(PolyBench.CPU(), Float32, images, labels, 10)
    chain, batch = trainer.network.chain, batches[1]
    loss(model, x, y) = PolyBench.Flux.logitcrossentropy(model(x), y)

    # Not `bench(:lenet)`: it selects its device by name, and JET does not see the methods of the CUDA extension.
    for (call, arguments) in (
            PolyBench.run_steps! => (trainer, batches, 0, 1),
            PolyBench.loss_and_gradients => (trainer, batches, 0),
            PolyBench.step_operations => (trainer, batches),
            PolyBench.host_info => (),
            bench => (chain, loss, (batch.images, batch.labels)),
            PolyBench.layers => (chain, batch.images),
            read_study => ("a file",),
        )
        JET.test_call(call, map(typeof, arguments); options...)
    end
    JET.test_call(write_study, (String, PolyBench.Trial); options...)
    println("JET has tested the package")
end
