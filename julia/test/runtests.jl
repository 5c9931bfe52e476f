# julia --project=. julia/test/runtests.jl, in an environment that has PolyBench; or Pkg.test() in julia/.
using Dates, Flux, PolyBench, Random, Test
using LinearAlgebra: BLAS
using PolyBench: compare, judge, layers, ratio, rows

# Without what takes long and seldom fails (Aqua, JET, the examples of docstrings, Lux), and without import.jl.
const ALL_TESTS = !haskey(ENV, "POLYBENCH_QUICK_TESTS")
has(package) = !isnothing(Base.find_package(package))
# Pkg.test() installs Aqua; other environments may lack it.
const HAS_AQUA = ALL_TESTS && has("Aqua")
HAS_AQUA ? (@eval using Aqua) : println("skipping the tests of Aqua")
# CI's workflow for Julia installs JET, which takes minutes; jet.jl runs alone as well.
const HAS_JET = ALL_TESTS && has("JET")

include("small_trainer.jl")

@testset "PolyBench" begin
    @testset "float32 inputs are used in place" begin
        inputs = copy(INPUTS)
        batches = PolyBench.batches(make_trainer(Float32Program), inputs, LABELS)
        @test batches[2].images isa Matrix{Float32}
        @test pointer(batches[2].images) == pointer(inputs, length(inputs) ÷ 2 + 1)
        @test data(make_trainer())[2].images == INPUTS[:, :, 2]
        @test Flux.onecold(batches[2].labels, 0:2) == LABELS[:, 2]
        owned = PolyBench.batches(make_trainer(Float32Program), copy(INPUTS), LABELS)
        GC.gc()
        @test owned[2].images == INPUTS[:, :, 2]
    end

    @testset "a pipeline returns the same batches for any number of workers" begin
        pixels, order = rand(MersenneTwister(3), UInt8, 6, 4, 3, 9), reshape(collect(8:-1:1), 2, 4)
        augmentations = rand(MersenneTwister(4), Int8(0):Int8(1), 3, 2, 4)
        pipeline(workers, augmentations) = PolyBench.Pipeline(
            PolyBench.CPU(), Float32,
            PolyBench.AugmentedData(pixels, collect(0:8), order, augmentations, 9, workers),
        )
        plain = [batch.images for batch in pipeline(0, nothing)]
        @test plain[3] == pixels[:, :, :, [5, 4]] ./ 255.0f0
        expected = map(1:6) do x  # the first row of the first image
            flip, dy, dx = augmentations[:, 1, 1]
            column, row = x + dx, 1 + dy
            column > 6 ? 0.0f0 : plain[1][flip == 1 ? 7 - column : column, row, 1, 1]
        end
        for workers in (0, 1, 3)
            reader = pipeline(workers, augmentations)
            @test reader[1].images[:, 1, 1, 1] == expected
            @test Flux.onecold(reader[2].labels, 0:8) == [6, 5]
            @test reader[4].images == pipeline(0, augmentations)[4].images
            @test (@inferred reader[1]) isa PolyBench.Batch
            @test PolyBench.wait_seconds(reader) > 0
            PolyBench.wait_until_idle!(reader)
            @test reader.task === nothing
            @test PolyBench.drain!((; device = PolyBench.CPU()), reader, 0, 5) > 0
            PolyBench.wait_until_idle!(reader)
        end
    end

    @testset "optimizers are Flux's" begin
        @test PolyBench.rule("sgd"; learning_rate = 0.1) == Flux.Descent(0.1)
        @test PolyBench.rule("rmsprop"; learning_rate = 0.1) == Flux.RMSProp(0.1, 0.9, 1.0e-7)
        @test_throws "no optimizer \"adagrad\"" PolyBench.rule("adagrad"; learning_rate = 0.1)
    end

    @testset "only matrices decay in AdamW" begin
        decays(leaf::PolyBench.Leaf) = [leaf.rule.lambda]
        decays(tree::Union{Tuple, NamedTuple}) = reduce(vcat, map(decays, Tuple(tree)); init = Float64[])
        decays(_) = Float64[]
        model = Flux.Chain(Flux.Dense(2 => 3), Flux.LayerNorm(3))
        state = PolyBench.decay_matrices_only!(Flux.setup(PolyBench.rule("adamw"; learning_rate = 0.1, weight_decay = 0.2), model))
        @test decays(state) == [0.2, 0.0, 0.0, 0.0]
    end

    @testset "the hot loop is type-stable" begin
        for program in (Program, Float32Program)
            trainer = make_trainer(program)
            batches = data(trainer)
            @test isconcretetype(typeof(trainer)) && isconcretetype(eltype(batches))
            @test (@inferred PolyBench.run_steps!(trainer, batches, 0, 1)) > 0
        end
    end

    @testset "the allocations of steps are counted" begin
        trainer = make_trainer()
        batches = data(trainer)
        steps() = PolyBench.run_steps!(trainer, batches, 0, 3)
        steps()  # compiles
        (count, bytes), on_device = PolyBench.count_allocations!(trainer, batches, 0, 3)
        @test bytes ≈ (@allocated steps()) rtol = 1.0e-2
        @test count > 3 * 2 * 4  # an output and a gradient of each layer
        @test on_device == ()
        @test PolyBench.device_peak_bytes(trainer) === PolyBench.device_bytes_in_use(trainer) === nothing
        (count, bytes), _ = PolyBench.allocated(() -> [zeros(1000) for _ in 1:10], PolyBench.CPU())
        @test 11 <= count < 100
        @test 80_000 <= bytes < 100_000
    end

    @testset "the time and number of garbage collections are reported" begin
        seconds, collections = PolyBench.gc_stats()
        foreach(_ -> GC.gc(), 1:3)  # a collection during another thread's is skipped
        later, more_collections = PolyBench.gc_stats()
        @test later > seconds
        @test collections < more_collections <= collections + 3
        @test (@allocated PolyBench.gc_stats()) < 100  # its result
        in_use() = (PolyBench.run_gc(); PolyBench.heap_bytes_in_use())
        before = (in_use(); in_use())
        kept = [[zeros(50) for _ in 1:1000], [zeros(5000) for _ in 1:10]]  # in pools, from malloc
        @test in_use() - before ≈ 800_000 rtol = 0.2
        @test length(kept) == 2
        @test parse(Int, PolyBench.build_info().julia_threads) == Threads.nthreads()
    end

    include("clock.jl")  # before others fill the heap, which full collections search
    include("operations.jl")
    include("program.jl")
    ALL_TESTS && include("import.jl")
    include("step_modes.jl")
    include("standalone.jl")
    ALL_TESTS && include("doctests.jl")

    @testset "devices" begin
        @test PolyBench.device("cpu") == PolyBench.CPU()
        @test PolyBench.device("cuda") == PolyBench.CUDADevice(0)
        @test PolyBench.device("cuda:1") == PolyBench.CUDADevice(1)
        @test_throws "unknown device \"tpu\": expected cpu" PolyBench.device("tpu")
        # Without CUDA.jl, only the CPU has methods.
        @test PolyBench.cuda_devices() == 0
        @test PolyBench.cuda_info() == ()
    end

    @testset "the precompilation workload runs" begin
        @test PolyBench.warm_up_worker() isa Tuple
    end

    HAS_AQUA && @testset "Aqua" begin
        # The search for persistent tasks creates a new environment, which needs the registry and a network.
        Aqua.test_all(PolyBench; persistent_tasks = false)
        println("Aqua has tested the package")
    end
end

include("enzyme.jl")
include("reactant.jl")
has("Mooncake") && include("mooncake.jl")
ALL_TESTS && has("Lux") && include("lux.jl")
include("cuda.jl")
HAS_JET && include("jet.jl")
