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
        trainer, batches = make_trainer(Float64; mode = PolyBench.StepMode(names...)), data(Float64)
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
        weights = random_weights(Float64, RESIDUAL)
        foreach(name -> fill!(weights[name], 2), ("norm1.running_variance", "norm2.running_variance"))
        mode = PolyBench.StepMode(names...)
        trainer = PolyBench.Trainer(PolyBench.CPU(), Float64, RESIDUAL, weights; optimizer = "sgd", learning_rate = 0.1, mode)
        batches = data(Float64)
        before = deepcopy(PolyBench.tensors(trainer.network))
        @test (@inferred PolyBench.run_steps!(trainer, batches, 0, 2)) > 0
        @test trainer.logits == Flux.testmode!(deepcopy(trainer.network.chain))(batches[2].images)
        @test trainer.logits != Flux.trainmode!(deepcopy(trainer.network.chain))(batches[2].images)
        @test isnan(trainer.loss)
        @test PolyBench.tensors(trainer.network) == before
        logits = zeros(10, size(batches[2].labels, 2))
        GC.@preserve logits PolyBench.Python.fill_logits!(Int(pointer(logits)), trainer)
        @test logits == trainer.logits
    end
end

@testset "without its extension a step mode fails instead of using the default step" begin
    @test_throws MethodError make_trainer(Float64; mode = PolyBench.StepMode("enzyme"))
    trainer, batch = make_trainer(Float64; mode = PolyBench.StepMode("mooncake")), first(data(Float64))
    @test_throws MethodError PolyBench.with_gradient(trainer.mode, trainer.model, batch.images, batch.labels)
end

@testset "garbage collection follows the step mode" begin
    full_collections(mode, steps) = begin
        trainer, batches = make_trainer(Float32; mode), data(Float32)
        PolyBench.run_steps!(trainer, batches, 0, 1)
        before = PolyBench.gc_stats()[2]
        PolyBench.run_steps!(trainer, batches, 0, steps)
        PolyBench.gc_stats()[2] - before
    end
    # A collection during another thread's is skipped.
    @test full_collections(PolyBench.StepMode("gc_every_step"), 5) >= 4
    @test full_collections(PolyBench.StepMode("gc_every_step", "train"), 5) >= 4
    trainer, batches = make_trainer(Float32; mode = PolyBench.StepMode("gc_off")), data(Float32)
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

@testset "Flux.train! logs its progress" begin
    count_logs(mode) = begin
        trainer, batches = make_trainer(Float32; mode), data(Float32)
        logger = Test.TestLogger(; min_level = Base.CoreLogging.LogLevel(-10_000))
        Base.CoreLogging.with_logger(() -> PolyBench.run_steps!(trainer, batches, 0, 2), logger)
        length(logger.logs)
    end
    @test count_logs(PolyBench.StepMode("train")) > count_logs(PolyBench.StepMode()) == 0
end

@testset "Zygote's derivative of relu at 0 is 0" begin
    @test PolyBench.relu_at_zero(make_trainer(Float64)) === 0.0
end

@testset "NNlib's max-pooling follows one of two rules" begin
    for T in (Float32, Float64)
        @test PolyBench.max_pool_within(T) in (0.0, Float64(sqrt(eps(T))))
        @test PolyBench.prefers_first(one(T)) && !PolyBench.prefers_first(T(0.5))
    end
end
