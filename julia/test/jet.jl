# What JET infers of the package without running it: calls that no method takes, names that nobody has defined.
# Alone: julia --project=. julia/test/jet.jl, in an environment that has PolyBench and JET.
using JET, PolyBench, Test

@testset "JET" begin
    own = (; target_modules = (PolyBench,))
    JET.test_package(PolyBench; own...)

    network = PolyBench.model(:lenet)
    trainer = PolyBench.trainer(network, PolyBench.initial_weights(network, 0), "cpu")
    images, labels = zeros(Float32, 32, 32, 3, 4, 2), zeros(Int, 4, 2)
    batches = PolyBench.batches(PolyBench.CPU(), Float32, images, labels, 10)
    chain, batch = trainer.network.chain, batches[1]
    loss(model, x, y) = PolyBench.Flux.logitcrossentropy(model(x), y)

    # `bench(:lenet)` chooses its device by name, and what CUDA needs is in the extension: JET would miss it there.
    for (call, arguments) in (
            PolyBench.run_steps! => (trainer, batches, 0, 1),
            PolyBench.loss_and_gradients => (trainer, batches, 0),
            PolyBench.step_parts => (trainer, batches),
            PolyBench.this_host => (),
            bench => (chain, loss, (batch.images, batch.labels)),
            layers => (chain, batch.images),
            read_study => ("a file",),
        )
        JET.test_call(call, map(typeof, arguments); own...)
    end
    JET.test_call(write_study, (String, PolyBench.Trial); own...)
    println("JET has tested the package")
end
