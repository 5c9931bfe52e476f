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

const LENET = PolyBench.model(:lenet).records

random_weights(T, records = LENET) = Dict(
    name => T.(0.1 .* randn(MersenneTwister(index), shape...)) for
        (index, (name, shape)) in enumerate(PolyBench.tensor_shapes(records))
)
make_trainer(T; weights = random_weights(T), mode = PolyBench.StepMode()) =
    PolyBench.Trainer(PolyBench.CPU(), T, LENET, weights; learning_rate = 0.05, momentum = 0.9, mode)
images() = rand(MersenneTwister(8), Float32, 32, 32, 3, 4, 3)
labels() = rand(MersenneTwister(9), 0:9, 4, 3)

# All types of layers that lenet lacks.
const RESIDUAL = PolyBench.records(
    """
    layers = [
        {type = "conv", name = "conv1", inputs = 3, outputs = 4, kernel = 3, stride = 1, padding = "same", bias = false},
        {type = "batch_norm", name = "norm1", channels = 4, epsilon = 1e-3, momentum = 0.3}, {type = "relu"},
        {type = "residual", body = [
            {type = "conv", name = "conv2", inputs = 4, outputs = 5, kernel = 3, stride = 2, padding = 1, bias = false},
            {type = "batch_norm", name = "norm2", channels = 5, epsilon = 1e-5, momentum = 0.1},
        ], shortcut = [
            {type = "conv", name = "side", inputs = 4, outputs = 5, kernel = 1, stride = 2, padding = "valid", bias = true},
        ]}, {type = "relu"},
        {type = "residual", body = [{type = "average_pool", size = 1, stride = 1}], shortcut = []},
        {type = "dropout", name = "dropout", rate = 0.5},
        {type = "global_average_pool"},
        {type = "dense", name = "dense", inputs = 5, outputs = 10},
    ]
    """
)
make_residual_trainer(records = RESIDUAL) = PolyBench.Trainer(
    PolyBench.CPU(), Float64, records, random_weights(Float64, records); learning_rate = 0.05, momentum = 0.9,
)
data(T, x = images()) = PolyBench.batches(PolyBench.CPU(), T, x, labels(), 10)

@testset "PolyBench" begin
    @testset "a network is built as Flux's users write it" begin
        chain = PolyBench.network(LENET, random_weights(Float32)).chain
        @test length(chain) == 8
        @test chain[1] isa Conv && chain[1].σ === relu
        @test chain[6] isa Dense && chain[6].σ === identity
        alone = PolyBench.network([Dict("type" => "flatten"), Dict("type" => "relu")], Dict()).chain
        @test alone([-1.0f0 2.0f0]) == [0.0f0 2.0f0]
        chain = make_residual_trainer().network.chain
        @test length(chain) == 9
        @test chain[1].bias === false && chain[1].pad == (1, 1, 1, 1)
        @test chain[2] isa BatchNorm && chain[2].λ === relu && chain[2].ϵ === 1.0e-3 && chain[2].momentum === 0.3
        @test chain[3] isa Parallel && chain[3].layers[1][1].stride == (2, 2) && chain[3].layers[1][2].λ === identity
        @test chain[5] isa SkipConnection && chain[5].layers[1] isa MeanPool
        @test chain[6] isa Dropout && chain[6].p == 0.5
        @test chain[7] isa GlobalMeanPool && chain[8] === Flux.flatten
        @test_throws "no layer of type \"gru\"" PolyBench.network([Dict{String, Any}("type" => "gru")], Dict())
    end

    @testset "canonical weights survive the conversion and back" begin
        for records in (LENET, RESIDUAL)
            weights = random_weights(Float64, records)
            tensors = PolyBench.tensors(PolyBench.network(records, weights))
            @test first.(tensors) == first.(PolyBench.tensor_shapes(records))
            @test all(PolyBench.canonical(array) == weights[name] for (name, array) in tensors)
        end
        @test first.(PolyBench.tensor_shapes(RESIDUAL))[[1, 2, 4, 7, 8, 12]] ==
            ["conv1.weight", "norm1.weight", "conv2.weight", "side.weight", "side.bias", "norm1.running_variance"]
    end

    @testset "a convolution is the canonical cross-correlation" begin
        x, w = randn(MersenneTwister(1), 6, 7, 2, 1), randn(MersenneTwister(2), 3, 3, 2, 4)
        conv = """{type = "conv", name = "c", inputs = 2, outputs = 4, kernel = 3, stride = 1, padding = 0, bias = true}"""
        y = PolyBench.network(PolyBench.records("layers = [$conv]"), Dict("c.weight" => w, "c.bias" => zeros(4))).chain(x)
        expected = [sum(x[i:(i + 2), j:(j + 2), :, 1] .* w[:, :, :, o]) for i in 1:4, j in 1:5, o in 1:4]
        @test y[:, :, :, 1] ≈ expected rtol = 1.0e-12
    end

    @testset "each side of an image has its own padding" begin
        x, w = randn(MersenneTwister(1), 6, 7, 2, 1) .- 9, randn(MersenneTwister(2), 3, 3, 2, 4)
        build(layer) = PolyBench.network(PolyBench.records("layers = [{$layer}]"), Dict("c.weight" => w)).chain
        conv = "type = \"conv\", name = \"c\", inputs = 2, outputs = 4, kernel = 3, stride = 2, bias = false, padding = "
        padded = PolyBench.NNlib.pad_zeros(x, (2, 0, 0, 1); dims = (1, 2))
        @test build(conv * "[[0, 1], [2, 0]]")(x) ≈ build(conv * "0")(padded)
        @test build(conv * "[[1, 1], [2, 2]]")[1].pad == (2, 1)
        pool(type, options = "") = build("type = \"$type\", size = 2, stride = 1, padding = [[0, 1], [1, 0]]" * options)
        windows = [x[max(i - 1, 1):i, j:min(j + 1, 7), c, 1] for i in 1:6, j in 1:7, c in 1:2]
        @test pool("max_pool")(x)[:, :, :, 1] == maximum.(windows)
        @test pool("average_pool")(x)[:, :, :, 1] ≈ sum.(windows) ./ 4
        pixels = pool("average_pool", ", count_padding = false")
        @test pixels(x)[:, :, :, 1] ≈ mean.(windows)
        @test sum(only(Flux.gradient(x -> sum(pixels(x)), x))) ≈ 6 * 7 * 2
        same = build("type = \"max_pool\", size = 3, stride = 1, padding = \"same\"")
        @test size(same(x)) == size(x) && all(same(x) .>= x)
    end

    @testset "float32 images are used in place" begin
        x = images()
        batches = data(Float32, x)
        @test batches[2].images isa Array{Float32, 4}
        @test pointer(batches[2].images) == pointer(x, 32 * 32 * 3 * 4 + 1)
        @test data(Float64, x)[3].images == x[:, :, :, :, 3]
        @test Flux.onecold(batches[2].labels, 0:9) == labels()[:, 2]
        owned = data(Float32)
        GC.gc()
        @test owned[3].images == x[:, :, :, :, 3]
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

    @testset "momentum is v <- mu v + g, w <- w - lr v" begin
        trainer, batches = make_trainer(Float64), data(Float64)
        velocity = Dict(name => zero(a) for (name, a) in PolyBench.parameters(trainer.network))
        for (step, rate) in zip(0:3, (0.05, 0.05, 0.2, 0.01))
            before = Dict(name => copy(a) for (name, a) in PolyBench.parameters(trainer.network))
            loss, gradients = PolyBench.loss_and_gradients(trainer, batches, step)
            PolyBench.set_rate!(trainer, rate)
            PolyBench.run_steps!(trainer, batches, step, 1)
            @test trainer.loss ≈ loss rtol = 1.0e-14
            for ((name, after), (_, gradient)) in zip(PolyBench.parameters(trainer.network), gradients)
                velocity[name] = 0.9 .* velocity[name] .+ gradient
                @test after ≈ before[name] .- rate .* velocity[name] rtol = 1.0e-12
            end
        end
    end

    @testset "a new learning rate rescales velocities and nothing else" begin
        states = map(("nesterov", "rmsprop", "adam")) do name
            w, g = (a = [1.0, 2.0], b = [3.0]), (a = [0.1, -0.2], b = [0.3])
            state = Flux.setup(PolyBench.rule(name; learning_rate = 0.1, weight_decay = 0.5), w)
            Flux.update!(state, w, g)
            before = deepcopy(state.a.state)
            PolyBench.change_rate!(state, 0.1, 0.02)
            @test state.b.rule.opts[2].eta == 0.02
            @test state.b.rule.opts[1].lambda == 0.5
            (before, state.a.state)
        end
        @test states[1][2][2] ≈ 0.2 .* states[1][1][2]
        @test states[2][1] == states[2][2]
        @test states[3][1] == states[3][2]
    end

    @testset "optimizers are Flux's" begin
        @test PolyBench.rule("sgd"; learning_rate = 0.1) == Flux.Descent(0.1)
        @test PolyBench.rule("rmsprop"; learning_rate = 0.1) == Flux.RMSProp(0.1, 0.9, 1.0e-7)
        @test_throws "no optimizer \"adagrad\"" PolyBench.rule("adagrad"; learning_rate = 0.1)
    end

    @testset "reset restarts the same training" begin
        trainer, batches = make_trainer(Float32), data(Float32)
        losses = map(1:2) do _
            PolyBench.set_rate!(trainer, 0.001)
            PolyBench.reset!(trainer)
            [(PolyBench.run_steps!(trainer, batches, step, 1); trainer.loss) for step in 0:4]
        end
        @test losses[1] == losses[2]
        @test allunique(losses[1])
    end

    @testset "a training continues from its saved state, including optimizer and dropout" begin
        batches, saved = data(Float64), nothing
        losses(trainer, steps) = [(PolyBench.run_steps!(trainer, batches, step, 1); trainer.loss) for step in steps]
        for settings in ((optimizer = "adam", weight_decay = 0.1), (optimizer = "momentum",))
            trainer = PolyBench.Trainer(
                PolyBench.CPU(), Float64, RESIDUAL, random_weights(Float64, RESIDUAL); learning_rate = 0.01, settings...,
            )
            PolyBench.reset!(trainer, 1)
            losses(trainer, 0:1)
            PolyBench.set_rate!(trainer, 0.001)
            saved = PolyBench.training_state(trainer)
            expected = losses(trainer, 2:4)
            PolyBench.reset!(trainer, 2)
            losses(trainer, 0:0)
            PolyBench.restore!(trainer, saved)
            @test trainer.rate == 0.001
            @test losses(trainer, 2:4) == expected
        end
        @test_throws BoundsError PolyBench.restore!(
            make_residual_trainer(), PolyBench.TrainingState(saved.numbers[1:3], 0.1, saved.generator),
        )
    end

    @testset "steps change running statistics, snapshots do not" begin
        trainer, batches = make_residual_trainer(), data(Float64)
        running() = [copy(array) for (_, array) in PolyBench.tensors(trainer.network, :state)]
        norm = trainer.network.chain[2]
        before = running()
        loss, gradients = PolyBench.loss_and_gradients(trainer, batches, 0)
        @test running() == before
        @test first.(gradients) == first.(PolyBench.parameters(trainer.network))
        x = trainer.network.chain[1](batches[1].images)
        @inferred PolyBench.run_steps!(trainer, batches, 0, 1)
        n = length(x) ÷ 4
        variance = [sum(abs2, part .- sum(part) / n) / (n - 1) for part in eachslice(x; dims = 3)]
        @test norm.σ² ≈ 0.7 .* before[2] .+ 0.3 .* variance rtol = 1.0e-12
        PolyBench.reset!(trainer)
        @test running() == before
    end

    @testset "dropout draws the masks of the seed, or uses fixed masks" begin
        trainer, batches = make_residual_trainer(), data(Float64)
        losses = map((1, 1, 2)) do seed
            PolyBench.reset!(trainer, seed)
            PolyBench.run_steps!(trainer, batches, 0, 1)
            trainer.loss
        end
        @test losses[1] == losses[2] != losses[3]
        masked = PolyBench.network(PolyBench.with_fixed_masks(RESIDUAL), random_weights(Float64, RESIDUAL))
        mask = 2.0 .* rand(MersenneTwister(3), Bool, 16, 16, 5, 4)
        PolyBench.set_masks!(masked, Dict("dropout" => mask))
        @test masked.chain[6](ones(size(mask))) == mask
    end

    @testset "the hot loop is type-stable" begin
        for T in (Float32, Float64)
            trainer, batches = make_trainer(T), data(T)
            @test isconcretetype(typeof(trainer)) && isconcretetype(eltype(batches))
            @test (@inferred PolyBench.run_steps!(trainer, batches, 0, 1)) > 0
            logits = @inferred trainer.network.chain(batches[1].images)
            @test logits isa Matrix{T}
            @test (@inferred Flux.logitcrossentropy(logits, batches[1].labels)) isa T
        end
    end

    @testset "the allocations of steps are counted" begin
        trainer, batches = make_trainer(Float32), data(Float32)
        steps() = PolyBench.run_steps!(trainer, batches, 0, 3)
        steps()  # compiles
        (count, bytes), on_device = PolyBench.count_allocations!(trainer, batches, 0, 3)
        # Tasks on two threads allocate slightly different amounts each time.
        @test bytes ≈ (@allocated steps()) rtol = 1.0e-3
        # At least the outputs and gradients of two convolutions.
        outputs = sizeof(Float32) * 4 * (28 * 28 * 16 + 10 * 10 * 8)
        @test bytes > 3 * 2 * outputs
        @test count > 3 * 2 * 8  # an output and a gradient of each layer
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
    include("transformers.jl")
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
        @test PolyBench.warm_up(PolyBench.LENET, (3, 32, 32), 10) isa Tuple
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
