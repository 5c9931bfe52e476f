# Which chains can be imported, and the sentence for those that cannot.

struct Wrapper{A}
    attention::A
end
Flux.@layer Wrapper
(wrapper::Wrapper)(x) = first(wrapper.attention(x))

struct Shift{T}
    values::T
end
Flux.@layer Shift
(shift::Shift)(x) = x .- shift.values

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

    positions = PolyBench.WithTensor(PolyBench.add_positions, zeros(Float32, 8, 5))
    @test types(describe(Chain(Embedding(20 => 8), positions, Dense(8 => 3)), (5,), true)) == ["embedding", "positions", "dense"]

    @testset "refused: $problem" for (problem, model) in (
            "the model is a Dense: expected a Chain" => Dense(8 => 3),
            "layers.1: Conv: dilation (2, 2): expected 1" => Chain(Conv((3, 3), 1 => 8; dilation = 2), head...),
            "layers.1: Conv: pad (1, 0): expected the same" => Chain(Conv((3, 3), 1 => 8; pad = (1, 0)), head...),
            "layers.1: Conv: activation tanh: expected identity, relu" => Chain(Conv((3, 3), 1 => 8, tanh), head...),
            "layers.2: MaxPool: pad (1, 1, 1, 1): expected 0" => Chain(Conv((3, 3), 1 => 8), MaxPool((2, 2); pad = 1), head...),
            "layers.1: SkipConnection: expected a sum" => Chain(SkipConnection(Conv((1, 1), 1 => 1), vcat), head...),
            "layers.1: Parallel: expected a sum of two" => Chain(Parallel(+, Conv((1, 1), 1 => 8)), head...),
            "layers.2: Dense: an input of size (6, 6, 8) does not fit" => Chain(Conv((3, 3), 1 => 8), Dense(8 => 3)),
            "layers.2: Shift: no layer computes this" => Chain(Conv((3, 3), 1 => 8), Shift(ones(1, 1, 8, 1)), head...),
            "layers.1: BatchNorm: expected affine = true" => Chain(BatchNorm(1; affine = false), head...),
        )
        @test_throws problem describe(model, (8, 8, 1))
    end

    @testset "the file of a network is the same network" begin
        block = SkipConnection(Chain(Conv((3, 3), 8 => 8; pad = 1), BatchNorm(8, relu), Dropout(0.5)), +)
        chain = Chain(Conv((3, 3), 1 => 8; stride = 2), block, GlobalMeanPool(), head..., softmax)
        table = PolyBench.network_table(chain, (8, 8, 1))
        @test table["input"] == Dict("width" => 8, "height" => 8, "channels" => 1)
        @test table["classes"] == 3
        @test [record["type"] for record in table["layers"]] == ["conv", "residual", "global_average_pool", "dense"]
        @test length(table["layers"][2]["body"]) == 4
        tokens = Embedding(20 => 8)
        shared = Chain(tokens, attention, PolyBench.WithTensor(PolyBench.multiply_table, tokens.weight))
        table = PolyBench.network_table(shared, (5,))
        @test table["layers"][3]["tied"] == table["layers"][1]["name"]
        @test table["input"] == Dict("length" => 5, "vocabulary" => 20)
    end

    @testset "a step is that of the user's model" begin
        dense = Dense(4 => 4, relu)
        model = Chain(dense, dense, BatchNorm(4), Dense(4 => 3))  # a layer that is used twice
        program = PolyBench.UserProgram(model, false)
        x, labels = rand(4, 5), [0, 1, 2, 0, 1]
        loss, gradients = PolyBench.user_program_step!(program, x, labels)
        copied = Flux.trainmode!(Flux.f64(deepcopy(model)))
        y = Flux.onehotbatch(labels, 0:2)
        expected, (gradient,) = Flux.withgradient(m -> Flux.logitcrossentropy(m(x), y), copied)
        @test loss ≈ expected rtol = 1.0e-8  # the epsilon of batch norm is a Float32 in Flux
        named = Dict(program.names .=> gradients)
        @test named["layers.1.weight"] ≈ gradient.layers[1].weight + gradient.layers[2].weight rtol = 1.0e-6
        @test named["layers.4.bias"] ≈ gradient.layers[4].bias rtol = 1.0e-6
        @test "layers.2.weight" ∉ program.names
        @test dense.weight isa Matrix{Float32}
    end
end
