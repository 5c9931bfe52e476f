# The parts of transformers, and the training that came with them. The parity check compares all of it with the reference.

const TIED = PolyBench.records(
    """
    layers = [
        {type = "embedding", name = "tokens", vocabulary = 5, features = 4},
        {type = "positions", name = "positions", length = 6, features = 4},
        {type = "attention", name = "attention", features = 4, heads = 2, causal = true, bias = false},
        {type = "layer_norm", name = "norm", features = 4, epsilon = 1e-5, bias = true}, {type = "gelu"},
        {type = "dense", name = "head", inputs = 4, outputs = 5, bias = false, tied = "tokens"},
    ]
    """
)

tied_trainer(; settings...) = PolyBench.Trainer(
    PolyBench.CPU(), Float64, TIED, random_weights(Float64, TIED); learning_rate = 0.01,
    mode = PolyBench.StepMode(; (key => Float64(value) for (key, value) in settings)...),
)
token_batches() = PolyBench.batches(PolyBench.CPU(), Float64, Int32.(rand(MersenneTwister(1), 0:4, 6, 2, 3)), rand(MersenneTwister(2), 0:4, 6, 2, 3), 5)

@testset "transformers" begin
    @testset "a prediction depends on earlier positions only" begin
        chain, tokens = tied_trainer().network.chain, rand(MersenneTwister(3), 1:5, 6, 2)
        later = copy(tokens)
        later[4:end, :] = mod1.(later[4:end, :] .+ 1, 5)
        @test chain(tokens)[:, 1:3, :] == chain(later)[:, 1:3, :]
        @test chain(tokens)[:, 4:6, :] != chain(later)[:, 4:6, :]
    end

    @testset "the gradient of a tied table is that of finite differences" begin
        trainer, batches = tied_trainer(), token_batches()
        table = Dict(PolyBench.tensors(trainer.network))["tokens.weight"]
        loss() = PolyBench.loss_and_gradients(trainer, batches, 0)[1]
        gradient = Dict(PolyBench.loss_and_gradients(trainer, batches, 0)[2])["tokens.weight"]
        differences = map(eachindex(table)) do index
            before = table[index]
            table[index] = before + 1.0e-5
            above = loss()
            table[index] = before - 1.0e-5
            below = loss()
            table[index] = before
            (above - below) / 2.0e-5
        end
        @test vec(gradient) ≈ differences rtol = 1.0e-6
    end

    @testset "clipping uses the norm of all gradients, with a tied one added up" begin
        trainer, batches = tied_trainer(gradient_clip = 0.05), token_batches()
        _, gradients = PolyBench.loss_and_gradients(trainer, batches, 0)
        before = Dict(name => copy(array) for (name, array) in PolyBench.parameters(trainer.network))
        PolyBench.run_steps!(trainer, batches, 0, 1)
        norm = sqrt(sum(sum(abs2, gradient) for (_, gradient) in gradients))
        @test norm > 0.05
        for ((name, after), (_, gradient)) in zip(PolyBench.parameters(trainer.network), gradients)
            @test after ≈ before[name] .- 0.01 * 0.05 / (norm + 1.0e-6) .* gradient rtol = 1.0e-10
        end
    end

    @testset "AdamW decays matrices only" begin
        decays(leaf::PolyBench.Leaf) = [leaf.rule.lambda]
        decays(tree::Union{Tuple, NamedTuple}) = reduce(vcat, map(decays, Tuple(tree)); init = Float64[])
        decays(_) = Float64[]
        model = Flux.Chain(Flux.Dense(2 => 3), Flux.LayerNorm(3))
        state = PolyBench.decay_matrices_only!(Flux.setup(PolyBench.rule("adamw"; learning_rate = 0.1, weight_decay = 0.2), model))
        @test decays(state) == [0.2, 0.0, 0.0, 0.0]
    end
end
