# Each operation computes the same as Zygote for the layer as users write it.

const GRADIENTS = ("input gradient", "weight gradient")

"""Attention of a sequence with itself, as a user writes it."""
struct Attentive{A}
    attention::A
end
Flux.@layer Attentive
(layer::Attentive)(x) = first(layer.attention(x))

with_relu(layer::Conv) = Conv(layer.weight, layer.bias, relu; layer.stride, layer.pad)
with_relu(layer::Dense) = Dense(layer.weight, layer.bias, relu)

"""Compute the operations of a layer by name, and the output and gradient of Flux's own layer, in float64."""
function compute_operations(whole, linear, x; required = GRADIENTS, calls = 2)
    whole, linear = whole === linear ? (Flux.f64(whole), nothing) : (Flux.f64(whole), Flux.f64(linear))
    linear = something(linear, whole)
    y, back = Flux.Zygote.pullback((m, x) -> m(x), whole, x)
    dy = randn(MersenneTwister(5), size(y))
    operations = PolyBench.layer_operations(PolyBench.CPU(), whole, linear, x, dy, required)
    calls == 1 || @test all(PolyBench.seconds(operation, calls - 1) > 0 for operation in operations)
    return Dict(operation.name => operation.compute() for operation in operations), y, back(dy)
end
compute_operations(layer, x; options...) = compute_operations(layer, layer, x; options...)

"""Collect all arrays in the gradient of a layer, in order."""
arrays(gradient::AbstractArray) = [gradient]
arrays(gradient::Union{Tuple, NamedTuple}) = reduce(vcat, map(arrays, values(gradient)); init = [])
arrays(_) = []

@testset "operations of layers" begin
    images = randn(MersenneTwister(4), 8, 7, 3, 2)
    features = randn(MersenneTwister(4), 6, 3)

    @testset "$(activated ? "activated " : "")$(nameof(typeof(linear)))" for (linear, activated, x) in (
            (Conv((3, 3), 3 => 4), false, images),
            (Conv((3, 3), 3 => 4; stride = 2, pad = 1), true, images),
            (Conv((3, 3), 3 => 4; bias = false), true, images),
            (Dense(6 => 5), false, features),
            (Dense(6 => 5), true, features),
        )
        results, y, (layer_gradient, x_gradient) = compute_operations(activated ? with_relu(linear) : linear, linear, x)
        @test first(results["forward"]) ≈ y
        @test results["input gradient"] ≈ x_gradient
        weight, bias = results["weight gradient"]
        @test weight ≈ layer_gradient.weight
        @test layer_gradient.bias === nothing ? !(bias isa AbstractArray) : vec(bias) ≈ layer_gradient.bias
        @test haskey(results, "activation") == activated
    end

    @testset "the gradients of a convolution whose outputs become a sequence are those of the convolution" begin
        patches = Chain(Conv((2, 2), 3 => 4; stride = 2), x -> permutedims(reshape(x, :, size(x, 3), size(x, 4)), (2, 1, 3)))
        results, y, (layer_gradient, x_gradient) = compute_operations(patches, images)
        @test first(results["forward"]) ≈ y && ndims(y) == 3
        @test results["input gradient"] ≈ x_gradient
        weight, bias = results["weight gradient"]
        @test weight ≈ layer_gradient.layers[1].weight && vec(bias) ≈ layer_gradient.layers[1].bias
    end

    @testset "other layers have a joint gradient" begin
        # A single call: BatchNorm is mutable, and Zygote accumulates such gradients over the calls of a pullback.
        whole, linear = BatchNorm(3, relu; eps = 1.0f-3), BatchNorm(3; eps = 1.0f-3)
        results, y, (layer_gradient, x_gradient) = compute_operations(whole, linear, images; required = ("input gradient",), calls = 1)
        @test first(results["forward"]) ≈ y
        norm_gradient, input_gradient = results["input gradient"]
        @test input_gradient ≈ x_gradient
        @test norm_gradient.γ ≈ layer_gradient.γ
        results, y, (_, x_gradient) = compute_operations(MaxPool((2, 2)), images; required = ("input gradient",))
        @test last(results["input gradient"]) ≈ x_gradient
        total = SkipConnection(identity, +)
        whole = Chain(total, x -> relu.(x))
        results, y, (_, x_gradient) = compute_operations(whole, total, images; required = ("input gradient",))
        @test first(results["forward"]) ≈ max.(2 .* images, 0)
        @test last(results["input gradient"]) ≈ x_gradient
    end

    @testset "$name: the input gradient is separate, and the weight gradient includes it" for (name, layer, arrays_of) in (
            ("LSTM", LSTM(6 => 5), 3),
            ("last output", Chain(LSTM(6 => 5), x -> x[:, end, :]), 3),
            ("both directions", Parallel(vcat, Chain(LSTM(6 => 5)), Chain(x -> reverse(x; dims = 2), LSTM(6 => 5))), 6),
            ("attention", Attentive(MultiHeadAttention(6; nheads = 2, dropout_prob = 0)), 4),
        )
        results, y, (layer_gradient, x_gradient) = compute_operations(layer, randn(MersenneTwister(4), 6, 7, 3))
        @test first(results["forward"]) ≈ y
        @test results["input gradient"] ≈ x_gradient
        weight_gradient, input_gradient = results["weight gradient"]
        @test input_gradient ≈ x_gradient
        @test length(arrays(weight_gradient)) == arrays_of
        @test all(splat(≈), zip(arrays(weight_gradient), arrays(layer_gradient)))
    end

    @testset "an LSTM's input gradient computes no weight gradient" for bidirectional in (false, true)
        one = LSTM(64 => 128)
        layer = Flux.f64(bidirectional ? Parallel(vcat, one, Chain(x -> reverse(x; dims = 2), LSTM(64 => 128))) : one)
        x, dy = randn(64, 20, 32), randn(bidirectional ? 256 : 128, 20, 32)
        operations = PolyBench.layer_operations(PolyBench.CPU(), layer, layer, x, dy, GRADIENTS)
        input_gradient, both = (only(operation.compute for operation in operations if operation.name == name) for name in GRADIENTS)
        input_gradient(), both()  # compiles
        @test 2 * (@allocated input_gradient()) < @allocated both()
    end

    @testset "the operation activation is the gradient through it" begin
        linear = Conv((3, 3), 3 => 4)
        results, y, _ = compute_operations(with_relu(linear), linear, images)
        @test iszero(results["activation"][y .== 0])
        @test count(iszero, results["activation"]) == count(iszero, y)
    end

    @testset "timed closures have concrete types" begin
        linear = Flux.f64(Conv((3, 3), 3 => 4))
        for operation in PolyBench.layer_operations(PolyBench.CPU(), with_relu(linear), linear, images, randn(6, 5, 4, 2), GRADIENTS)
            @test all(isconcretetype, fieldtypes(typeof(operation.compute)))
            @test !any(field <: Core.Box for field in fieldtypes(typeof(operation.compute)))
        end
    end

    @testset "a step has operations outside of layers" begin
        trainer = make_trainer()
        batches = data(trainer)
        PolyBench.run_steps!(trainer, batches, 0, 1)  # sets the masks
        before = Program.weights(trainer.state)
        operations = PolyBench.step_operations(trainer, batches)
        @test [operation.name for operation in operations] == ["loss", "update", "call"]
        foreach(operation -> PolyBench.seconds(operation, 1), operations)
        @test Program.weights(trainer.state)["dense.weight"] != before["dense.weight"]
        @test all(isnothing(operation.result[]) for operation in operations)  # results would affect the timing of whole steps
        @test isfinite(first(operations).compute().val)
    end
end
