# Each operation computes the same as Zygote for the layer as users write it.

conv(name, inputs, outputs; stride = 1, padding = 0, bias = true) = Dict{String, Any}(
    "type" => "conv", "name" => name, "inputs" => inputs, "outputs" => outputs, "kernel" => 3, "stride" => stride,
    "padding" => padding, "bias" => bias,
)
dense(name) = Dict{String, Any}("type" => "dense", "name" => name, "inputs" => 6, "outputs" => 5)
const RELU = Dict{String, Any}("type" => "relu")
const GRADIENTS = ("input gradient", "weight gradient")

"""Compute the operations of a layer by name, and the output and gradient of Flux's own layer."""
function compute_operations(records, x; required = GRADIENTS, calls = 2)
    weights = random_weights(Float64, records)
    layer = PolyBench.without_chain(PolyBench.network(records, weights).chain)
    y, back = Flux.Zygote.pullback((m, x) -> m(x), layer, x)
    dy = randn(MersenneTwister(5), size(y))
    operations = PolyBench.layer_operations(PolyBench.CPU(), Float64, records, weights, x, dy, required)
    calls == 1 || @test all(PolyBench.seconds(operation, calls - 1) > 0 for operation in operations)
    return Dict(operation.name => operation.compute() for operation in operations), y, back(dy)
end

"""Collect all arrays in the gradient of a layer, in order."""
arrays(gradient::AbstractArray) = [gradient]
arrays(gradient::Union{Tuple, NamedTuple}) = reduce(vcat, map(arrays, values(gradient)); init = [])
arrays(_) = []

@testset "operations of layers" begin
    images = randn(MersenneTwister(4), 8, 7, 3, 2)
    features = randn(MersenneTwister(4), 6, 3)

    @testset "$(length(records) == 1 ? "" : "activated ")$(records[1]["type"])" for (records, x) in (
            [conv("c", 3, 4)] => images,
            [conv("c", 3, 4; stride = 2, padding = 1), RELU] => images,
            [conv("c", 3, 4; bias = false), RELU] => images,
            [dense("d")] => features,
            [dense("d"), RELU] => features,
        )
        results, y, (layer_gradient, x_gradient) = compute_operations(records, x)
        @test first(results["forward"]) ≈ y
        @test results["input gradient"] ≈ x_gradient
        weight, bias = results["weight gradient"]
        @test weight ≈ layer_gradient.weight
        @test layer_gradient.bias === nothing ? !(bias isa AbstractArray) : vec(bias) ≈ layer_gradient.bias
        @test haskey(results, "activation") == (length(records) == 2)
    end

    @testset "other layers have a joint gradient" begin
        norm = Dict{String, Any}("type" => "batch_norm", "name" => "n", "channels" => 3, "epsilon" => 1.0e-3, "momentum" => 0.1)
        # A single call: BatchNorm is mutable, and Zygote accumulates such gradients over the calls of a pullback.
        results, y, (layer_gradient, x_gradient) = compute_operations([norm, RELU], images; required = ("input gradient",), calls = 1)
        @test first(results["forward"]) ≈ y
        norm_gradient, input_gradient = results["input gradient"]
        @test input_gradient ≈ x_gradient
        @test norm_gradient.γ ≈ layer_gradient.γ
        pool = Dict{String, Any}("type" => "max_pool", "size" => 2, "stride" => 2)
        results, y, (_, x_gradient) = compute_operations([pool], images; required = ("input gradient",))
        @test last(results["input gradient"]) ≈ x_gradient
        total = Dict{String, Any}("type" => "residual", "body" => [], "shortcut" => [])
        results, y, (_, x_gradient) = compute_operations([total, RELU], images; required = ("input gradient",))
        @test first(results["forward"]) ≈ max.(2 .* images, 0)
        @test last(results["input gradient"]) ≈ x_gradient
    end

    @testset "an LSTM's input gradient is separate, and its weight gradient includes it" for bidirectional in (false, true), sequence in (false, true)
        lstm = Dict{String, Any}(
            "type" => "lstm", "name" => "l", "inputs" => 6, "units" => 5, "bidirectional" => bidirectional,
            "sequence" => sequence,
        )
        results, y, (layer_gradient, x_gradient) = compute_operations([lstm], randn(MersenneTwister(4), 6, 7, 3))
        @test first(results["forward"]) ≈ y
        @test results["input gradient"] ≈ x_gradient
        weight_gradient, input_gradient = results["weight gradient"]
        @test input_gradient ≈ x_gradient
        @test length(arrays(weight_gradient)) == (bidirectional ? 6 : 3)
        @test all(splat(≈), zip(arrays(weight_gradient), arrays(layer_gradient)))
    end

    @testset "an LSTM's input gradient computes no weight gradient" for bidirectional in (false, true)
        lstm = Dict{String, Any}(
            "type" => "lstm", "name" => "l", "inputs" => 64, "units" => 128, "bidirectional" => bidirectional,
            "sequence" => true,
        )
        x, dy = randn(64, 20, 32), randn(bidirectional ? 256 : 128, 20, 32)
        operations = PolyBench.layer_operations(PolyBench.CPU(), Float64, [lstm], random_weights(Float64, [lstm]), x, dy, GRADIENTS)
        input_gradient, both = (only(operation.compute for operation in operations if operation.name == name) for name in GRADIENTS)
        input_gradient(), both()  # compiles
        @test 2 * (@allocated input_gradient()) < @allocated both()
    end

    @testset "the operation activation is the gradient through it" begin
        results, y, _ = compute_operations([conv("c", 3, 4), RELU], images)
        @test iszero(results["activation"][y .== 0])
        @test count(iszero, results["activation"]) == count(iszero, y)
    end

    @testset "timed closures have concrete types" begin
        weights = random_weights(Float64, [conv("c", 3, 4), RELU])
        dy = randn(6, 5, 4, 2)
        for operation in
            PolyBench.layer_operations(PolyBench.CPU(), Float64, [conv("c", 3, 4), RELU], weights, images, dy, GRADIENTS)
            @test all(isconcretetype, fieldtypes(typeof(operation.compute)))
            @test !any(field <: Core.Box for field in fieldtypes(typeof(operation.compute)))
        end
    end

    @testset "a step has operations outside of layers" begin
        trainer = make_trainer(Float64)
        before = copy(first(PolyBench.tensors(trainer.network))[2])
        operations = PolyBench.step_operations(trainer, data(Float64))
        @test [operation.name for operation in operations] == ["loss", "update", "call"]
        foreach(operation -> PolyBench.seconds(operation, 1), operations)
        @test first(PolyBench.tensors(trainer.network))[2] != before
        @test all(isnothing(operation.result[]) for operation in operations)  # results would affect the timing of whole steps
        @test first(operations).compute().val ≈ PolyBench.loss_and_gradients(make_trainer(Float64), data(Float64), 0)[1]
    end
end
