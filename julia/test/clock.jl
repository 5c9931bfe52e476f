# What `bench` times, counts and restarts. No test asserts a time from above.

"""A run that records its calls, and takes a quarter of a second a step."""
Base.@kwdef struct RecordedRun
    calls::Vector{Any} = []
    loss::Float64 = 1.0
    steps_per_value::Int = 1
end
PolyBench.reset!(run::RecordedRun) = (push!(run.calls, :reset); nothing)
PolyBench.run_steps!(run::RecordedRun, first::Int, n::Int) = (push!(run.calls, (first, n)); 0.25 * n)
PolyBench.touch_heap!(run::RecordedRun) = (push!(run.calls, :touch_heap); nothing)
PolyBench.last_loss(run::RecordedRun) = run.loss
PolyBench.steps_per_value(run::RecordedRun) = run.steps_per_value
PolyBench.count_allocations!(run::RecordedRun, first::Int, n::Int) = (push!(run.calls, (:count, first, n)); (6, 600))

"""A run whose steps collect garbage."""
struct CollectingRun end
PolyBench.run_steps!(::CollectingRun, ::Int, n::Int) = (foreach(_ -> GC.gc(false), 1:n); 1.0 * n)

"""Batches that take 20 ms each, in the loop that a trainer times."""
struct SlowBatches{B} <: AbstractVector{B}
    batches::Vector{B}
end
Base.size(slow::SlowBatches) = size(slow.batches)
Base.getindex(slow::SlowBatches, index::Int) = (sleep(0.02); slow.batches[index])

"""A loss with a function that runs in each step and has no gradient."""
in_each_step(f) = (model, x, y) -> (PolyBench.ignore_derivatives(f); Flux.mse(model(x), y))

const OWN_MODEL = Chain(Dense(4 => 3, tanh), Dropout(0.5), Dense(3 => 2))
const OWN_BATCH = rand(MersenneTwister(1), Float32, 4, 8), rand(MersenneTwister(2), Float32, 2, 8)

@testset "each round restarts, takes two steps, and times the next ones" begin
    run = RecordedRun()
    trial = PolyBench.measure(run, "recorded", 2, 3, (;))
    round = [:reset, (0, 2), (2, 1), (3, 1), (4, 1)]
    @test run.calls == [:reset; [(step, 1) for step in 0:4]; :touch_heap; round; round; :reset; (0, 2); (:count, 2, 3)]
    @test trial.rounds == [[0.25, 0.25, 0.25], [0.25, 0.25, 0.25]]
    @test (trial.first_step, trial.bytes, trial.count, trial.losses) == (0.25, 200.0, 2.0, ones(5))
    @test_throws "the training diverges" PolyBench.measure(RecordedRun(loss = NaN), "recorded", 1, 1, (;))
end

@testset "the times of a block are those of one step" begin
    trial = PolyBench.measure(RecordedRun(steps_per_value = typemax(Int)), "block", 1, 4, (;))
    @test trial.rounds == [[0.25]] && trial.resolution == "block"
    before = first(PolyBench.gc_stats())
    seconds, gc_seconds = PolyBench.time_steps(CollectingRun(), 0:3)
    @test seconds == 1 && 4 * gc_seconds ≈ first(PolyBench.gc_stats()) - before
end

@testset "a user's batches are used in turn" begin
    seen = Float32[]
    loss(model, x) = (PolyBench.ignore_derivatives(() -> (push!(seen, only(x)); nothing)); sum(model(x)))
    batches = [(fill(Float32(n), 1, 1),) for n in 1:2]
    run = PolyBench.ModelRun(Dense(1 => 1), loss, batches, model -> Flux.setup(Flux.Descent(), model), AutoZygote())
    PolyBench.reset!(run)
    PolyBench.run_steps!(run, 1, 3)
    @test seen == [2, 1, 2]
end

@testset "the clock runs during the steps" begin
    times = bench(OWN_MODEL, in_each_step(() -> sleep(0.05)), OWN_BATCH; rounds = 2, steps = 3).rounds
    @test all(>=(0.05), reduce(vcat, times))
    trainer = make_trainer()
    @test PolyBench.run_steps!(trainer, SlowBatches(data(trainer)), 0, 3) >= 3 * 0.02
end

@testset "garbage collection is counted" begin
    trial = bench(OWN_MODEL, in_each_step(() -> GC.gc(false)), OWN_BATCH; rounds = 2, steps = 2)
    @test all(seconds -> all(>(0), seconds), trial.gc_rounds)
    @test all(trial.gc_rounds .<= trial.rounds)
    @test 0 < gc_fraction(trial) < 1
end

@testset "the allocations of a step are counted once" begin
    array = Ref{Any}()
    bytes(n) = bench(OWN_MODEL, in_each_step(() -> (array[] = zeros(UInt8, n); nothing)), OWN_BATCH; rounds = 1, steps = 4).bytes
    @test bytes(2^24) - bytes(2^20) ≈ 2^24 - 2^20 rtol = 1.0e-3
end

@testset "a restart repeats the same steps" begin
    network = PolyBench.model(:lenet)
    images = PolyBench.synthetic(network, 0; count = 16)
    batches = PolyBench.first_batches(network, images, reshape(0:15, 4, 4), 3)
    builtin = PolyBench.network_run(network, PolyBench.initial_weights(network, 0), "", batches, PolyBench.CPU())
    setup(model) = Flux.setup(Flux.Momentum(0.1), model)
    own = PolyBench.ModelRun(OWN_MODEL, in_each_step(() -> nothing), [OWN_BATCH], setup, AutoZygote())
    for run in (builtin, own)
        losses = map(1:2) do _
            PolyBench.reset!(run)
            map(step -> (PolyBench.run_steps!(run, step, 1); PolyBench.last_loss(run)), 0:2)
        end
        @test losses[1] == losses[2]
        @test allunique(losses[1])
    end
end

# mallinfo2, from glibc 2.33, has ten fields of `size_t`; the fourth counts allocations with a mapping of their own.
has_mallinfo() = Sys.islinux() && Base.Libc.Libdl.dlsym_e(Base.Libc.Libdl.dlopen(""), :mallinfo2) != C_NULL

has_mallinfo() && @testset "the C library retains memory only if asked to" begin
    program = """
    using Flux, PolyBench
    function own_mapping()
        before = Int(ccall(:mallinfo2, NTuple{10, Csize_t}, ())[4])
        pointer = Libc.malloc(2^26)
        after = Int(ccall(:mallinfo2, NTuple{10, Csize_t}, ())[4])
        Libc.free(pointer)
        return after > before
    end
    model, batch = Dense(2 => 2), (rand(Float32, 2, 3), rand(Float32, 2, 3))
    loss(m, x, y) = Flux.mse(m(x), y)
    bench(model, loss, batch; rounds = 1, steps = 1, malloc = "system")
    print(own_mapping(), " ")
    bench(model, loss, batch; rounds = 1, steps = 1)
    print(own_mapping())
    """
    command = `$(Base.julia_cmd()) --project=$(Base.active_project()) --startup-file=no -e $program`
    @test readchomp(addenv(command, "JULIA_LOAD_PATH" => join(LOAD_PATH, ":"))) == "true false"
end
