# Which chains can be imported, and the sentence for those that cannot. Runs alone as well.
using Flux, PolyBench, Test

struct Wrapper{A}
    attention::A
end
Flux.@layer Wrapper
(wrapper::Wrapper)(x) = first(wrapper.attention(x))

struct Fixed{T}
    values::T
end
Flux.@layer Fixed trainable = ()
(fixed::Fixed)(x) = x .+ fixed.values

struct Holder{L}
    layer::L
end
Flux.@layer Holder
(holder::Holder)(x) = holder.layer(x)

struct Shift{T}
    values::T
end
Flux.@layer Shift
(shift::Shift)(x) = x .- shift.values

struct AddPositions{T}
    table::T
end
Flux.@layer AddPositions
(positions::AddPositions)(x) = x .+ positions.table[:, 1:size(x, 2)]

struct Head{T}
    table::T
end
Flux.@layer Head
(head::Head)(x) = reshape(transpose(head.table) * reshape(x, size(x, 1), :), :, size(x, 2), size(x, 3))

const DROPOUT = Dropout(0.5)

with_activation(attention) = MultiHeadAttention(
    attention.nheads, (Dense(attention.q_proj.weight, false, relu) for _ in 1:3)..., identity, attention.out_proj,
)

@testset "import" begin
    describe(model, shape, tokens = false) = PolyBench.JSON.parse(PolyBench.describe_user_model(model, shape, tokens))["layers"]
    types(entries) = [get(get(entry, "record", Dict()), "type", "sum") for entry in entries]
    head = (Flux.flatten, Dense(8 => 3))

    chain = Chain(Conv((3, 3), 1 => 8, swish; pad = 1), x -> max.(x, 0), x -> mean(x; dims = (1, 2)), x -> reshape(x, 8, :), Dense(8 => 3))
    @test types(describe(chain, (8, 8, 1))) == ["conv", "silu", "relu", "global_average_pool", "dense"]
    chain = Chain(Conv((3, 3), 1 => 8, relu), x -> relu6.(x), x -> mean(x; dims = (1, 2)), Flux.flatten, Dense(8 => 3))
    @test types(describe(chain, (8, 8, 1)))[3] == "relu6"
    chain = Chain(Conv((3, 3), 1 => 8), x -> sin.(x), head...)
    @test_throws "import.jl:$(@__LINE__() - 1): anonymous function: no layer computes this" describe(chain, (8, 8, 1))
    averages(x) = dropdims(sum(x; dims = (1, 2)); dims = (1, 2)) ./ (size(x, 1) * size(x, 2))
    chain = Chain(Conv((3, 3), 1 => 8, swish; pad = 1), x -> max.(x, 0), averages, Dense(8 => 3))
    @test types(describe(chain, (8, 8, 1))) == ["conv", "silu", "relu", "global_average_pool", "dense"]

    attention = Wrapper(MultiHeadAttention(8; nheads = 2, dropout_prob = 0))
    chain = Chain(Embedding(20 => 8), attention, LSTM(8 => 8), x -> x[:, end, :], Dense(8 => 3))
    entries = describe(chain, (5,), true)
    @test types(entries) == ["embedding", "attention", "lstm", "dense"]
    @test !entries[2]["record"]["causal"]
    @test entries[2]["tensors"]["query_weight"] == ["layers.2.attention.q_proj.weight", true]
    @test !entries[3]["record"]["sequence"]

    positions = AddPositions(zeros(Float32, 8, 5))
    @test types(describe(Chain(Embedding(20 => 8), positions, Dense(8 => 3)), (5,), true)) == ["embedding", "positions", "dense"]

    @testset "refused: $problem" for (problem, model) in (
            "the model is a Dense: expected a Chain" => Dense(8 => 3),
            "layers.1: Conv: dilation (2, 2): expected 1" => Chain(Conv((3, 3), 1 => 8; dilation = 2), head...),
            "layers.1: Conv: activation tanh: expected identity, relu" => Chain(Conv((3, 3), 1 => 8, tanh), head...),
            "layers.2: MaxPool: pad (2, 2, 2, 2): expected less" => Chain(Conv((3, 3), 1 => 8), MaxPool((2, 2); pad = 2), head...),
            "layers.1: SkipConnection: expected a sum" => Chain(SkipConnection(Conv((1, 1), 1 => 1), vcat), head...),
            "layers.1: Parallel: expected a sum of two" => Chain(Parallel(+, Conv((1, 1), 1 => 8)), head...),
            "layers.2: Dense: an input of size (6, 6, 8) does not fit" => Chain(Conv((3, 3), 1 => 8), Dense(8 => 3)),
            "layers.2: Shift: no layer computes this" => Chain(Conv((3, 3), 1 => 8), Shift(ones(Float32, 1, 1, 8, 1)), head...),
            "layers.1: BatchNorm: affine = false: expected true" => Chain(BatchNorm(1; affine = false), head...),
            "layers.1: BatchNorm: track_stats = false: expected true" => Chain(BatchNorm(1; track_stats = false), head...),
            "layers.1: BatchNorm: active = false: expected nothing" => Chain(BatchNorm(1; active = false), head...),
            "layers.1: Dropout: active = true: expected nothing" => Chain(Dropout(0.5; active = true), head...),
            "layers.1: Dropout: dims = 3: expected Colon()" => Chain(Dropout(0.5; dims = 3), head...),
            "layers.1: Dropout: active = false" => Flux.testmode!(Chain(Dropout(0.5), head...)),
            "layers.1: AlphaDropout: it computes something else in training" => Chain(Flux.AlphaDropout(0.5), head...),
            "layers.1: Holder: it computes something else in training" => Chain(Holder(Dropout(0.5)), head...),
            "anonymous function: it computes something else in training" => Chain(x -> DROPOUT(x), head...),
            "layers.1: Scale: it has weights that no layer has" => Chain(Flux.Scale(1, 1, 1), head...),
            "layers.1: SkipConnection: expected a sum" => Chain(SkipConnection(Conv((1, 1), 1 => 1), (a, b) -> a + 2b), head...),
            "layers.1: Parallel: expected a sum of two" => Chain(Parallel(+, identity, identity, identity), head...),
            "layers.1.weight: Float16: expected Float32" => Flux.f16(Chain(Conv((1, 1), 1 => 8), head...)),
            "layers.3.weight: Float32: expected Float32 or Float64, the same" => Chain(Flux.flatten, Flux.f64(Dense(64 => 3)), Dense(3 => 3)),
            "layers.2: Dense: weight is a Transpose: expected an Array" => Chain(Flux.flatten, Dense(transpose(ones(Float32, 64, 3)))),
        )
        @test_throws problem describe(model, (8, 8, 1))
    end

    @testset "refused for tokens: $problem" for (problem, model) in (
            "layers.2: Fixed: weight is not trainable" => Chain(Embedding(20 => 8), Fixed(zeros(Float32, 8, 5)), Dense(8 => 3)),
            "layers.2: Wrapper: attn_drop" =>
                Chain(Embedding(20 => 8), Wrapper(MultiHeadAttention(8; nheads = 2, dropout_prob = 0.5)), Dense(8 => 3)),
            "layers.2: Wrapper: expected projections that are Dense without activation" =>
                Chain(Embedding(20 => 8), Wrapper(with_activation(attention.attention)), Dense(8 => 3)),
        )
        @test_throws problem describe(model, (5,), true)
    end

    @test_throws "padding_idx = 1: expected nothing" PolyBench.check_fields((; weight = ones(8, 20), padding_idx = 1))
    @test_throws "dilute = 2: this version of polybench does not know this field" PolyBench.check_fields((; weight = ones(8, 20), dilute = 2))

    @testset "padding is that of Flux" begin
        layers = (
            Conv((2, 2), 1 => 8; pad = SamePad()), Conv((3, 3), 8 => 8; pad = (1, 0)), Conv((3, 3), 8 => 8; stride = 2, pad = (0, 1, 1, 0)),
            MaxPool((2, 2); stride = 1, pad = (0, 1, 1, 0)), MeanPool((3, 3); stride = 1, pad = 1),
        )
        chain = Chain(layers..., GlobalMeanPool(), head...)
        table, _ = PolyBench.network_table(chain, (8, 8, 1))
        found = [layer["padding"] for layer in table["layers"][1:5]]
        @test found == [[[1, 0], [1, 0]], [[0, 0], [1, 1]], [[1, 0], [0, 1]], [[1, 0], [0, 1]], 1]
    end

    @testset "the file of a network is the same network" begin
        block = SkipConnection(Chain(Conv((3, 3), 8 => 8; pad = 1), BatchNorm(8, relu), Dropout(0.5)), +)
        chain = Chain(Conv((3, 3), 1 => 8; stride = 2), block, GlobalMeanPool(), head..., softmax)
        table, _ = PolyBench.network_table(chain, (8, 8, 1))
        @test table["input"] == Dict("width" => 8, "height" => 8, "channels" => 1)
        @test table["classes"] == 3
        @test [record["type"] for record in table["layers"]] == ["conv", "residual", "global_average_pool", "dense"]
        @test length(table["layers"][2]["body"]) == 4
        tokens = Embedding(20 => 8)
        shared = Chain(tokens, attention, Head(tokens.weight))
        table, _ = PolyBench.network_table(shared, (5,))
        @test table["layers"][3]["tied"] == table["layers"][1]["name"]
        @test table["input"] == Dict("length" => 5, "vocabulary" => 20)
    end

    @testset "the program that a study has timed is checked" begin
        chain = Chain(Flux.flatten, Dense(8 => 4, relu), Dense(4 => 3), softmax)
        text(activation) = """
        using Flux
        const DTYPE = Float32
        network() = Chain(Flux.flatten, Dense(8 => 4, $activation), Dense(4 => 3))
        named(name, layer) = ["\$name.weight" => transpose(layer.weight), "\$name.bias" => layer.bias]
        tensors(model) = vcat(named("dense1", model[2]), named("dense2", model[3]))
        """
        study(program) = PolyBench.Study([Dict("event" => "engine", "configuration" => "flux/cpu", "program" => program)])
        table, weights = PolyBench.network_table(chain, (2, 2, 2))
        check(program) = PolyBench.check_program(study(program), chain, weights, (2, 2, 2))
        @test check(Dict("text" => text("relu"))) === nothing === check(nothing)
        @test_throws "the network is not the same as the chain" check(Dict("text" => text("tanh")))
    end

    @testset "a step is that of the user's model" begin
        dense = Dense(4 => 4, relu)
        model = Chain(dense, dense, BatchNorm(4), Dense(4 => 3))  # a layer that is used twice
        program = PolyBench.UserProgram(model, false)
        x, labels = rand(4, 5), [0, 1, 2, 0, 1]
        loss, gradients = PolyBench.user_program_step!(program, x, labels)
        copied = Flux.f64(deepcopy(model))
        y = Flux.onehotbatch(labels, 0:2)
        expected, (gradient,) = Flux.withgradient(m -> Flux.logitcrossentropy(m(x), y), copied)
        @test loss ≈ expected rtol = 1.0e-8  # the epsilon of batch norm is a Float32 in Flux
        named = Dict(program.names .=> gradients)
        @test named["layers.1.weight"] ≈ gradient.layers[1].weight + gradient.layers[2].weight rtol = 1.0e-6
        @test named["layers.4.bias"] ≈ gradient.layers[4].bias rtol = 1.0e-6
        @test "layers.2.weight" ∉ program.names
        Flux.update!(Flux.setup(Flux.Momentum(0.01, 0.9), copied), copied, gradient)
        @test program.model[4].weight ≈ copied[4].weight rtol = 1.0e-8
        @test program.model(x) ≈ copied(x) rtol = 1.0e-6  # evaluates with the running statistics of the step
        @test dense.weight isa Matrix{Float32}
    end

    @testset "a program keeps the modes of its layers" begin
        x = rand(4, 5)
        usual, always = (PolyBench.UserProgram(Chain(Dropout(0.5; active), Dense(4 => 3)), false) for active in (nothing, true))
        foreach(program -> program.model[1].mask = zeros(4, 5), (usual, always))
        @test usual.model(x) ≈ usual.model[2](x)
        @test always.model(x) ≈ always.model[2](zero(x))
        @test first(PolyBench.user_program_step!(usual, x, [0, 1, 2, 0, 1])) ≈ log(3)  # zeros at first, and biases of 0
    end
end
