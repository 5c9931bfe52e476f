# Layers alone: each part computes what Zygote computes for the layer as users write it.

conv(name, inputs, outputs; stride = 1, padding = 0, bias = true) = Dict{String, Any}(
    "type" => "conv", "name" => name, "inputs" => inputs, "outputs" => outputs, "kernel" => 3, "stride" => stride,
    "padding" => padding, "bias" => bias,
)
dense(name) = Dict{String, Any}("type" => "dense", "name" => name, "inputs" => 6, "outputs" => 5)
const RELU = Dict{String, Any}("type" => "relu")
const GRADIENTS = ("data gradient", "weight gradient")

"""The parts of a layer by name, computed once, and the gradient of Flux's own layer."""
function replayed(records, x; wanted = GRADIENTS, calls = 2)
    weights = random_weights(Float64, records)
    layer = PolyBench.alone(PolyBench.network(records, weights).chain)
    y, back = Flux.Zygote.pullback((m, x) -> m(x), layer, x)
    dy = randn(MersenneTwister(5), size(y))
    parts = PolyBench.layer_parts(PolyBench.CPU(), Float64, records, weights, x, dy, wanted)
    calls == 1 || @test all(PolyBench.seconds(part, calls - 1) > 0 for part in parts)
    return Dict(part.name => part.compute() for part in parts), y, back(dy)
end

"""All arrays in the gradient of a layer, in order."""
arrays(gradient::AbstractArray) = [gradient]
arrays(gradient::Union{Tuple, NamedTuple}) = reduce(vcat, map(arrays, values(gradient)); init = [])
arrays(_) = []

@testset "layers alone" begin
    images = randn(MersenneTwister(4), 8, 7, 3, 2)
    features = randn(MersenneTwister(4), 6, 3)

    @testset "$(length(records) == 1 ? "" : "activated ")$(records[1]["type"])" for (records, x) in (
            [conv("c", 3, 4)] => images,
            [conv("c", 3, 4; stride = 2, padding = 1), RELU] => images,
            [conv("c", 3, 4; bias = false), RELU] => images,
            [dense("d")] => features,
            [dense("d"), RELU] => features,
        )
        found, y, (of_layer, of_x) = replayed(records, x)
        @test first(found["forward"]) ≈ y
        @test found["data gradient"] ≈ of_x
        weight, bias = found["weight gradient"]
        @test weight ≈ of_layer.weight
        @test of_layer.bias === nothing ? !(bias isa AbstractArray) : vec(bias) ≈ of_layer.bias
        @test haskey(found, "activation") == (length(records) == 2)
    end

    @testset "others have one gradient of both" begin
        norm = Dict{String, Any}("type" => "batch_norm", "name" => "n", "channels" => 3, "epsilon" => 1.0e-3, "momentum" => 0.1)
        # Once: BatchNorm is mutable, and Zygote adds up such a gradient over the calls of a pullback.
        found, y, (of_layer, of_x) = replayed([norm, RELU], images; wanted = ("data gradient",), calls = 1)
        @test first(found["forward"]) ≈ y
        of_norm, of_data = found["data gradient"]
        @test of_data ≈ of_x
        @test of_norm.γ ≈ of_layer.γ
        pool = Dict{String, Any}("type" => "max_pool", "size" => 2, "stride" => 2)
        found, y, (_, of_x) = replayed([pool], images; wanted = ("data gradient",))
        @test last(found["data gradient"]) ≈ of_x
        total = Dict{String, Any}("type" => "residual", "body" => [], "shortcut" => [])
        found, y, (_, of_x) = replayed([total, RELU], images; wanted = ("data gradient",))
        @test first(found["forward"]) ≈ max.(2 .* images, 0)
        @test last(found["data gradient"]) ≈ of_x
    end

    @testset "of an LSTM the data's is apart, and the weights' contains it" for bidirectional in (false, true), sequence in (false, true)
        lstm = Dict{String, Any}(
            "type" => "lstm", "name" => "l", "inputs" => 6, "units" => 5, "bidirectional" => bidirectional,
            "sequence" => sequence,
        )
        found, y, (of_layer, of_x) = replayed([lstm], randn(MersenneTwister(4), 6, 7, 3))
        @test first(found["forward"]) ≈ y
        @test found["data gradient"] ≈ of_x
        of_weights, of_data = found["weight gradient"]
        @test of_data ≈ of_x
        @test length(arrays(of_weights)) == (bidirectional ? 6 : 3)
        @test all(splat(≈), zip(arrays(of_weights), arrays(of_layer)))
    end

    @testset "of an LSTM the data's alone makes no gradient of the weights" for bidirectional in (false, true)
        lstm = Dict{String, Any}(
            "type" => "lstm", "name" => "l", "inputs" => 64, "units" => 128, "bidirectional" => bidirectional,
            "sequence" => true,
        )
        x, dy = randn(64, 20, 32), randn(bidirectional ? 256 : 128, 20, 32)
        parts = PolyBench.layer_parts(PolyBench.CPU(), Float64, [lstm], random_weights(Float64, [lstm]), x, dy, GRADIENTS)
        data, both = (only(part.compute for part in parts if part.name == name) for name in GRADIENTS)
        data(), both()  # compiles
        @test 2 * (@allocated data()) < @allocated both()
    end

    @testset "the activation is the gradient through it" begin
        found, y, _ = replayed([conv("c", 3, 4), RELU], images)
        @test iszero(found["activation"][y .== 0])
        @test count(iszero, found["activation"]) == count(iszero, y)
    end

    @testset "nothing that is timed is without a type" begin
        weights = random_weights(Float64, [conv("c", 3, 4), RELU])
        dy = randn(6, 5, 4, 2)
        for part in
            PolyBench.layer_parts(PolyBench.CPU(), Float64, [conv("c", 3, 4), RELU], weights, images, dy, GRADIENTS)
            @test all(isconcretetype, fieldtypes(typeof(part.compute)))
            @test !any(field <: Core.Box for field in fieldtypes(typeof(part.compute)))
        end
    end

    @testset "a step has parts of its own" begin
        one = trainer(Float64)
        before = copy(first(PolyBench.tensors(one.network))[2])
        parts = PolyBench.step_parts(one, data(Float64))
        @test [part.name for part in parts] == ["loss", "update", "call"]
        foreach(part -> PolyBench.seconds(part, 1), parts)
        @test first(PolyBench.tensors(one.network))[2] != before
        @test all(isnothing(part.result[]) for part in parts)  # whole steps are timed in the same process
        @test first(parts).compute().val ≈ PolyBench.loss_and_gradients(trainer(Float64), data(Float64), 0)[1]
    end
end
