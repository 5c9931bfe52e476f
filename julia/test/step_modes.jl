# Step modes compute the same training, and NNlib's max-pooling follows known rules.

"""Batches that record whether garbage collection is enabled when the loop takes them."""
struct WatchedBatches{B} <: AbstractVector{B}
    batches::Vector{B}
    was_enabled::Vector{Bool}
end
Base.size(watched::WatchedBatches) = size(watched.batches)
Base.getindex(watched::WatchedBatches, index::Int) = (push!(watched.was_enabled, GC.enable(false)); watched.batches[index])

@testset "all step modes compute the same" begin
    losses = map((("train",), ("gc_every_step",), ("gc_off",), ("gc_every_step", "train"), ("blas2",), ())) do names
        trainer = make_trainer(Program, names...)
        batches = data(trainer)
        @test (@inferred PolyBench.run_steps!(trainer, batches, 0, 2)) > 0
        second = trainer.loss
        PolyBench.run_steps!(trainer, batches, 2, 1)
        (second, trainer.loss)
    end
    @test allequal(losses)
    @test PolyBench.StepMode("blas2") === PolyBench.StepMode()
    @test_throws "exclude each other" PolyBench.StepMode("gc_off", "gc_every_step")
end

@testset "a forward pass computes logits in test mode and changes nothing" begin
    for names in (("forward",), ("forward", "gc_every_step"))
        trainer = make_trainer(Program, names...)
        batches, before = data(trainer), Program.weights(trainer.state)
        @test (@inferred PolyBench.run_steps!(trainer, batches, 0, 2)) > 0
        @test trainer.logits == Flux.testmode!(deepcopy(trainer.state.model))(batches[2].images)
        @test trainer.logits != Flux.trainmode!(deepcopy(trainer.state.model))(batches[2].images)
        @test isnan(trainer.loss)
        @test Program.weights(trainer.state) == before
        logits = zeros(size(trainer.logits))
        GC.@preserve logits PolyBench.Python.fill_logits!(Int(pointer(logits)), trainer)
        @test logits == trainer.logits
    end
end

@testset "without its package a step mode fails instead of using the default step" begin
    batch = (rand(Float32, 2, 3), rand(Float32, 2, 3))
    for way in ("enzyme", "mooncake")
        run = PolyBench.ModelRun(
            Chain(Dense(2 => 2)), (m, x, y) -> Flux.mse(m(x), y), [batch], model -> nothing, PolyBench.StepMode(way),
        )
        has(titlecase(way)) || @test_throws Exception (PolyBench.reset!(run); PolyBench.run_steps!(run, 0, 1))
    end
end

@testset "garbage collection follows the step mode" begin
    full_collections(names, steps) = begin
        trainer = make_trainer(Program, names...)
        batches = data(trainer)
        PolyBench.run_steps!(trainer, batches, 0, 1)
        before = PolyBench.gc_stats()[2]
        PolyBench.run_steps!(trainer, batches, 0, steps)
        PolyBench.gc_stats()[2] - before
    end
    # A collection during another thread's is skipped.
    @test full_collections(("gc_every_step",), 5) >= 4
    @test full_collections(("gc_every_step", "train"), 5) >= 4
    trainer = make_trainer(Program, "gc_off")
    batches = data(trainer)
    PolyBench.run_steps!(trainer, batches, 0, 1)
    before, _ = PolyBench.gc_stats(trainer)
    total = Base.gc_num().total_time
    PolyBench.run_steps!(trainer, batches, 0, 20)
    @test Base.gc_num().total_time > total  # after the steps
    @test PolyBench.gc_stats(trainer)[1] ≈ before atol = 1.0e-9
    @test GC.enable(true)  # it was enabled again
    watched = WatchedBatches(batches, Bool[])
    PolyBench.run_steps!(trainer, watched, 0, 2)
    @test watched.was_enabled == [false, false]
end

@testset "Zygote's derivative of relu at 0 is 0" begin
    @test PolyBench.relu_at_zero(make_trainer()) === 0.0
end

@testset "NNlib's max-pooling follows one of two rules" begin
    for T in (Float32, Float64)
        @test PolyBench.max_pool_within(T) in (0.0, Float64(sqrt(eps(T))))
        @test PolyBench.prefers_first(one(T)) && !PolyBench.prefers_first(T(0.5))
    end
end
