# The same training in other ways, and what NNlib's max-pooling does.

@testset "ways compute the same" begin
    losses = map((("train",), ("gc_every_step",), ("gc_off",), ("gc_every_step", "train"), ("blas2",), ())) do names
        made, batches = trainer(Float64; way = PolyBench.Way(names...)), data(Float64)
        @test (@inferred PolyBench.run_steps!(made, batches, 0, 2)) > 0
        second = made.loss
        PolyBench.run_steps!(made, batches, 2, 1)
        (second, made.loss)
    end
    @test allequal(losses)
    @test PolyBench.Way("blas2") === PolyBench.Way()
    @test_throws "exclude each other" PolyBench.Way("gc_off", "gc_every_step")
end

@testset "without its extension a way is none, and never Flux's own" begin
    for name in ("enzyme", "lux")
        @test_throws MethodError trainer(Float64; way = PolyBench.Way(name))
    end
    made, batch = trainer(Float64; way = PolyBench.Way("mooncake")), first(data(Float64))
    @test_throws MethodError PolyBench.with_gradient(made.way, made.model, batch.images, batch.labels)
end

"""A model that has its running statistics elsewhere while it trains, and large ones."""
struct Moving{C}
    chain::C
    moved::Vector{Vector{UInt8}}
end

const MOVING = PolyBench.Way{:moving, :auto}
PolyBench.differentiable(::MOVING, chain) = Moving(chain, Vector{UInt8}[])
PolyBench.chain_of(model::Moving) = model.chain
PolyBench.with_gradient(::MOVING, model::Moving, images, labels) =
    PolyBench.with_gradient(PolyBench.Way(), model.chain, images, labels)
PolyBench.before_steps!(model::Moving) = (push!(model.moved, zeros(UInt8, 100_000_000)); nothing)
PolyBench.after_steps!(model::Moving) = (push!(model.moved, zeros(UInt8, 100_000_000)); nothing)

@testset "what is moved before and after steps is none of their allocations" begin
    counted = map((PolyBench.Way(), MOVING())) do way
        made, batches = trainer(Float32; way), data(Float32)
        PolyBench.count_allocations!(made, batches, 0, 1)  # compiles
        (_, bytes), _ = PolyBench.count_allocations!(made, batches, 0, 1)
        made.model isa Moving && @test length(made.model.moved) == 4
        bytes
    end
    @test counted[2] ≈ counted[1] rtol = 0.01
end

@testset "the collector runs when it is told to" begin
    sweeps(way, steps) = begin
        made, batches = trainer(Float32; way), data(Float32)
        PolyBench.run_steps!(made, batches, 0, 1)
        before = PolyBench.collected()[2]
        PolyBench.run_steps!(made, batches, 0, steps)
        PolyBench.collected()[2] - before
    end
    # One that meets a collection of another thread is dropped.
    @test sweeps(PolyBench.Way("gc_every_step"), 5) >= 4
    @test sweeps(PolyBench.Way("gc_every_step", "train"), 5) >= 4
    made, batches = trainer(Float32; way = PolyBench.Way("gc_off")), data(Float32)
    PolyBench.run_steps!(made, batches, 0, 1)
    before, _ = PolyBench.collected(made)
    held = Base.gc_num().total_time
    PolyBench.run_steps!(made, batches, 0, 20)
    @test Base.gc_num().total_time > held  # after the steps
    @test PolyBench.collected(made)[1] ≈ before atol = 1.0e-9
    @test GC.enable(true)  # it was on again
end

@testset "Flux.train! tells its progress" begin
    told(way) = begin
        made, batches = trainer(Float32; way), data(Float32)
        logger = Test.TestLogger(; min_level = Base.CoreLogging.LogLevel(-10_000))
        Base.CoreLogging.with_logger(() -> PolyBench.run_steps!(made, batches, 0, 2), logger)
        length(logger.logs)
    end
    @test told(PolyBench.Way("train")) > told(PolyBench.Way()) == 0
end

@testset "Zygote's derivative of relu at 0 is 0" begin
    @test PolyBench.relu_at_zero(trainer(Float64)) === 0.0
end

@testset "NNlib's max-pooling is what its gradient says" begin
    for T in (Float32, Float64)
        @test PolyBench.max_pool_within(T) in (0.0, Float64(sqrt(eps(T))))
        @test PolyBench.takes_the_first(one(T)) && !PolyBench.takes_the_first(T(0.5))
    end
end
