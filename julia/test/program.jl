# A program, run as a worker runs it: see `small_program.jl`.
@testset "a program" begin
    inputs, names, trainer = INPUTS, NAMES, make_trainer()
    batches = data(trainer)

    @testset "its gradients are those of the loss by name" begin
        loss, gradients, weights = PolyBench.loss_and_gradients(trainer, batches, 1)
        @test weights == Program.weights(trainer.state)
        changed(name, index, change) = merge(weights, Dict(name => (copied = copy(weights[name]); copied[index] += change; copied)))
        function loss_at(weights)
            PolyBench.reset!(trainer)
            Program.reset!(trainer.state, weights)
            return first(PolyBench.loss_and_gradients(trainer, batches, 1))
        end
        @test loss == loss_at(weights)
        for name in names[1:4], index in eachindex(weights[name])
            difference = loss_at(changed(name, index, 1.0e-6)) - loss_at(changed(name, index, -1.0e-6))
            @test gradients[name][index] ≈ difference / 2.0e-6 atol = 1.0e-8
        end
        PolyBench.reset!(trainer)
    end

    @testset "it continues from a saved state" begin
        PolyBench.reset!(trainer)
        PolyBench.run_steps!(trainer, batches, 0, 2)
        saved = PolyBench.training_state(trainer)
        @test saved.rate == 0.05
        PolyBench.run_steps!(trainer, batches, 2, 1)
        expected = PolyBench.last_loss(trainer)
        PolyBench.reset!(trainer)
        PolyBench.run_steps!(trainer, batches, 0, 1)
        PolyBench.restore!(trainer, saved)
        PolyBench.run_steps!(trainer, batches, 2, 1)
        @test PolyBench.last_loss(trainer) == expected
        @test_throws BoundsError PolyBench.restore!(
            trainer, PolyBench.TrainingState(saved.numbers[1:3], 0.1, saved.generator),
        )
    end

    @testset "a block starts with its own step of the schedule" begin
        PolyBench.reset!(trainer)
        PolyBench.run_steps!(trainer, batches, 1, 1)
        @test (trainer.state.step, trainer.state.rate) == (2, 0.05)
    end

    @testset "its logits are those of inference" begin
        before = Program.weights(trainer.state)
        logits = PolyBench.inference_logits(trainer, inputs[:, :, 1])
        @test size(logits) == (3, 4) && before == Program.weights(trainer.state)
        forward = make_trainer(Program, "forward")
        PolyBench.run_steps!(forward, batches, 0, 1)
        @test forward.logits == PolyBench.inference_logits(forward, inputs[:, :, 1])
    end

    @testset "a restart repeats the same steps" begin
        losses = map(1:2) do _
            PolyBench.reset!(trainer)
            map(step -> (PolyBench.run_steps!(trainer, batches, step, 1); PolyBench.last_loss(trainer)), 0:2)
        end
        @test losses[1] == losses[2]
        @test allunique(losses[1])
    end
end

@testset "arrays and layers of Float64" begin
    names(value, name = "state") = (found = String[]; PolyBench.add_float64!(found, Base.IdSet{Any}(), value, name); found)
    wide, narrow = zeros(2), zeros(Float32, 2)

    @testset "arrays are named, and numbers are not" begin
        @test names((; a = wide, b = (narrow, wide), c = 0.1, d = "text")) == ["state.a", "state.b[2]"]
        @test names(Dict("a" => Any[narrow, wide])) == ["state[\"a\"][2]"]
        @test names(Chain(Dense(narrow' .* narrow), Dense(wide' .* wide, false))) == ["state[2].weight"]
        @test names((MersenneTwister(1), Xoshiro(1), Flux.Momentum(0.1, 0.9))) == []
        @test names(x -> wide .* x) == ["state.wide"]
        cycle = Any[wide]
        push!(cycle, cycle)
        @test names(cycle) == ["state[1]"]
    end

    @testset "the first layer that promotes its input is named" begin
        double(x) = 2.0 .* x
        promoted(model) = PolyBench.first_promoted(model, narrow, "model")
        @test promoted(Chain(identity, double, double)) == "output of model[2]"
        @test promoted(Chain(identity, Chain(; first = double, second = identity))) == "output of model[2].first"
        @test promoted(double) == "output of model"
        @test promoted(Chain(identity, x -> 2 .* x)) == narrow
    end
end

# A user's program, whose own number of steps nobody else changes.
module Counting

setup() = (; weight = [0.0f0], step = Ref(10))
load(images, labels) = images
train_step!(state, images) = (state.step[] += 1; Float32(state.step[]))

end

@testset "a user's program counts its steps itself" begin
    trainer = PolyBench.ProgramTrainer(Counting, String[], Dict{String, Array{Float32}}())
    batches = PolyBench.batches(trainer, rand(Float32, 2, 2, 3, 4, 3), zeros(Int64, 4, 3))
    PolyBench.run_steps!(trainer, batches, 1, 2)
    @test PolyBench.last_loss(trainer) == 12
end

# A program with an input pipeline of its own: an iterator, or a task.
module Piped

const calls = Ref(0)
batches(images, labels, order) = (prepare(images, labels, chosen) for chosen in eachcol(order))
prepare(images, labels, chosen) = (calls[] += 1; (images[:, :, :, chosen] ./ 255.0f0, labels[chosen]))

end

@testset "the pipeline of a program" begin
    images = rand(MersenneTwister(3), UInt8, 2, 2, 3, 6)
    labels, order = collect(0:5), [1 2 3 4; 6 5 4 3]
    pipeline = PolyBench.ProgramPipeline(Piped, images, labels, order)
    expected(batch) = (images[:, :, :, order[:, batch]] ./ 255.0f0, labels[order[:, batch]])

    @test length(pipeline) == 4
    @test [pipeline[batch].images for batch in (1, 2, 2, 3)] == expected.([1, 2, 2, 3])
    @test Piped.calls[] == 3  # nothing is prepared twice or ahead
    @test [pipeline[batch].images for batch in (3, 1, 4)] == expected.([3, 1, 4])
    @test PolyBench.wait_seconds(pipeline) > 0

    @testset "it ends early, or raises" begin
        with_batches(batches) = (program = Module(); Core.eval(program, :(batches = $batches)); PolyBench.ProgramPipeline(program, images, labels, order))
        short = with_batches((images, labels, order) -> eachcol(order[:, 1:(end - 1)]))
        @test short[2].images == order[:, 2] && short[3].images == order[:, 3]
        @test_throws "batches ended early: expected 3 from batch 1 on" short[4]
        @test !PolyBench.is_reading(short)
        wrong = with_batches((images, labels, order) -> error("no file"))
        @test_throws "no file" wrong[1]
        @test PolyBench.is_reading(wrong)
    end

    @testset "its tasks end before others are measured" begin
        done = Ref(0)
        channel(images, labels, order) = Channel{Any}(size(order, 2); spawn = true) do filled
            for chosen in eachcol(order)
                until = time() + 0.1
                while time() < until
                end
                put!(filled, chosen)
                done[] += 1
            end
        end
        program = Module()
        Core.eval(program, :(batches = $channel))
        ahead = PolyBench.ProgramPipeline(program, images, labels, order)
        @test ahead[1].images == order[:, 1]
        PolyBench.wait_until_idle!(ahead)
        @test done[] == 4
    end
end

@testset "a program that only declares something" begin
    declares(text, path = "mine.jl") = PolyBench.declarations(path, text) !== nothing
    text = """
    "A documented function."
    f(x::T) where {T} = x
    g(x)::Int = 1
    using Flux, Random
    using Flux.NNlib: gelu
    import Statistics as S
    using ..Parent
    const DTYPE = Float32
    const SIZE, DEVICE = (3, 3), "cpu"
    const RATE = 2 * Float32(0.01) + 1.0f-3
    const FOLDER = joinpath(@__DIR__, "data")
    const double = x -> 2x
    Flux.@layer Masked trainable = ()
    Base.@kwdef struct State
        step::Int = 1
    end
    @inline (state::State)(x) = x
    module Inner
    Base.show(io::IO, ::Int) = 1
    end
    if abspath(PROGRAM_FILE) == @__FILE__
        main()
    end
    """
    @test PolyBench.declarations("mine.jl", text).packages == ["Flux", "Random", "Flux", "Statistics"]
    @test [name for (name, _) in PolyBench.uuids(["Flux", "Flux", "NotThere"])] == ["Flux"]
    for line in (
            "x = 1", "const X = []", "const X = Ref(0)", "const X = f()", "const X = @eval 1", "global x = 1", "X", "println(1)",
            "BLAS.set_num_threads(1)", "for i in 1:2 end", "if true end", "@eval f() = 1", "@inline f(1)", "f() = 1; f()", "function (",
            "let x = 1\n f() = x\nend", "include(name)", "include(\"missing.jl\")", "Flux.x = 1", "x[1] = 2", "module M\nf()\nend",
        )
        @test !declares(line)
        @test !declares(string(text, '\n', line))
    end

    mktempdir() do folder
        path = joinpath(folder, "mine.jl")
        write(joinpath(folder, "other.jl"), "using Random\ninclude(\"mine.jl\")\n")
        write(path, text)
        found = PolyBench.declarations(path, "include(\"other.jl\")\ninclude(\"other.jl\")")
        @test first.(found.files) == joinpath.(folder, ["other.jl", "mine.jl"])
        @test startswith(PolyBench.Python.declared(path, "using Flux\ninclude(\"other.jl\")"), r"Flux=\S+ Random=\S+ Statistics=\S+\n")
        write(joinpath(folder, "other.jl"), "println(1)")
        @test !declares("include(\"other.jl\")", path)
        @test PolyBench.Python.declared(path, "include(\"other.jl\")") == ""
        @test PolyBench.Python.declared(path, "f() = 1") == "\n"
    end
end
