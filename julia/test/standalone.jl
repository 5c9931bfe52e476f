# Functions for Julia users without Python: networks, data, benchmarks, studies.

const NUMPY_STREAMS = (
    # numpy.random.PCG64(numpy.random.SeedSequence([7, 0xcb487135])).random_raw(3), and so on
    (7, 0xcb487135) => [0x93bfd51c57ee1020, 0x62b2aa031676d364, 0x28297c8c712d6d38],
    (2^40 + 3, 0) => [0xc60e533fbbb0872c, 0xfef0825f71d66341, 0x792240db6171ac88],
    (1, 2, 3, 4, 5) => [0x8452e9e84975a10b, 0xa0a264a8aa71bd91, 0x2a756e7277595134],
)
# As in tests/networks/test_initial_weights.py, tests/data/test_synthetic.py and test_batches.py.
const WEIGHTS_SHA256 = Dict(
    :lenet => "cd3d3289ae927e7174e37eb78e88a07676a88d39b4b9e57783af971721a330a2",
    :keras_cnn => "0d2ff24d11778fb25b433427a12c307d5f6df141dbb1cd14b30d679873889161",
    :resnet32 => "07548ed8264772c779d4a5c444794c2f164137ff23a96790218a4844acb903ad",
)
const SYNTHETIC_SHA256 = "5f4aa6f757a6482bc5e345f1622110fe6e22a80a9e544766935ec2a1015900e0"
const ORDER_SHA256 = "5364fa0c4fe513e04eaa2718a3bc810ba524fc705f56fc98587e02a4a23b2d1a"

@testset "random numbers equal NumPy's" begin
    for (entropy, expected) in NUMPY_STREAMS
        stream = PolyBench.PCG64(entropy)
        @test [PolyBench.next!(stream) for _ in expected] == expected
    end
    @test PolyBench.crc32("conv1.weight") == 0xcb487135
    @test_throws "invalid seed -1: expected a number >= 0" PolyBench.PCG64((-1,))
end

@testset "networks, weights, images and batches equal polybench's" begin
    @test PolyBench.model("keras_cnn").name == "keras-cnn"
    @test_throws "unknown network \"lenet5\": expected one of catdog-2" PolyBench.model(:lenet5)
    for (name, sha256) in WEIGHTS_SHA256
        network = PolyBench.model(name)
        @test PolyBench.weights_sha256(network, PolyBench.initial_weights(network, 0)) == sha256
    end
    for name in model_names()  # the files of a network agree
        network = PolyBench.model(name)
        model = network.program.network()
        @test sort(network.tensors) == sort([name => size(array) for (name, array) in network.program.tensors(model)])
        @test PolyBench.parameter_count(network) == sum(length, Flux.trainables(model))
    end
    @test PolyBench.parameter_count(PolyBench.model(:lenet)) == 39_558
    @test PolyBench.parameter_count(PolyBench.model(:resnet32)) == 466_714
    lenet = PolyBench.model(:lenet)
    @test PolyBench.data_sha256(PolyBench.synthetic(lenet, 0; count = 250)) == SYNTHETIC_SHA256
    @test PolyBench.order_sha256(PolyBench.epoch_order(50_000, 128, 0, 0)) == ORDER_SHA256
    @test_throws "invalid batch size 11: expected 1 to 10" PolyBench.epoch_order(10, 11, 0, 0)
    @test_throws "does not exist: pass the folder" PolyBench.cifar10("nowhere")
    @test_throws "10 classes, but catdog-2 needs 3x" bench(:catdog_2; data = "nowhere")
    mktempdir() do folder
        for n in 1:5
            write(joinpath(folder, "data_batch_$n.bin"), fill(UInt8(n), 2 * 3073))
        end
        @test PolyBench.cifar10(folder).labels == repeat(1:5; inner = 2)
        for size in (3073, 4000, 0)
            write(joinpath(folder, "data_batch_2.bin"), zeros(UInt8, size))
            @test_throws "data_batch_2.bin is truncated or not CIFAR-10: $size bytes" PolyBench.cifar10(folder)
        end
    end
end

@testset "a missing device is reported first" begin
    @test_throws "cuda:0 is not available: run `using CUDA, cuDNN` first" bench(:lenet; device = "cuda")
    @test_throws "cuda:1 is not available" layers(:lenet; device = "cuda:1")
end

"""Folder for the measured study, which the Python tests read; or empty."""
const STUDY_FOLDER = get(ENV, "POLYBENCH_STUDY_FOLDER", "")

const SMALL = Chain(Conv((3, 3), 3 => 2, tanh), MaxPool((2, 2)), BatchNorm(2), Flux.flatten, Dense(18 => 3))
# For what does not depend on the layers; each loss and rule is compiled for the whole model.
const FLAT = Chain(Flux.flatten, Dense(192 => 3))
small_loss(model, x, y) = Flux.logitcrossentropy(model(x), y)
const SMALL_BATCH = rand(MersenneTwister(1), Float32, 8, 8, 3, 4), Flux.onehotbatch([1, 2, 3, 1], 1:3)

@testset "a benchmark of a user's model" begin
    before = deepcopy(Flux.trainables(SMALL))
    trial = bench(SMALL, small_loss, SMALL_BATCH; rounds = 3, steps = 4, title = "small")
    @test Flux.trainables(SMALL) == before
    @test length(trial) == 12 && length(trial.rounds) == 3
    @test minimum(trial).time <= median(trial).time <= maximum(trial).time
    @test minimum(trial).time <= mean(trial).time
    @test 0 <= gc_fraction(trial) < 1
    @test trial.bytes > 0 && trial.count > 0
    @test issorted(trial.losses; rev = true)  # the same batch in each step
    @test_throws "loss(model, batch...)" bench(SMALL, x -> x, SMALL_BATCH)
    @test_throws "expected at least 1" bench(SMALL, small_loss, SMALL_BATCH; rounds = 0)
    # On Linux, the process retains freed memory from now on.
    Sys.islinux() && @test_throws "malloc = \"system\" has no effect" bench(SMALL, small_loss, SMALL_BATCH; malloc = "system")
    shown = repr("text/plain", trial)
    @test occursin("12 steps in 3 rounds, small", shown) && occursin("GC (median)", shown) && occursin('█', shown)
    @test occursin("memory:", repr("text/plain", median(trial)))
end

@testset "bench takes batches, losses and ways like Flux.train!" begin
    x, y = SMALL_BATCH
    quick = (; rounds = 2, steps = 3)
    expected = bench(SMALL, small_loss, SMALL_BATCH; quick...).losses
    @test bench(SMALL, small_loss, x, y; quick...).losses == expected
    @test bench(SMALL, small_loss, x, y; way = "train", quick...).losses ≈ expected
    @test bench(SMALL, (m, batch) -> small_loss(m, batch.x, batch.y), (; x, y); quick...).losses == expected
    @test bench(SMALL, (m, x, y) -> (small_loss(m, x, y), size(x)), x, y; quick...).losses == expected
    loader = Flux.DataLoader((cat(x, 2x; dims = 4), hcat(y, y)); batchsize = 4)
    @test bench(SMALL, small_loss, loader; quick...).losses ≈ bench(SMALL, small_loss, collect(loader); quick...).losses
    @test bench(SMALL, small_loss, loader; quick...).losses[1] ≈ expected[1] && length(loader) == 2
    @test_throws "way \"backwards\" is unknown" bench(SMALL, small_loss, x, y; way = "backwards")
    @test_throws "the data has no batches" bench(SMALL, small_loss, [])
    @test_throws "way \"fast\" is unknown: expected train" bench(:lenet; way = "fast")
    @test PolyBench.dataset(PolyBench.model(:lenet), "synthetic", 0) === PolyBench.dataset(PolyBench.model(:resnet32), "synthetic", 0)
    @test_throws "optimizer \"adam\" needs a learning_rate" bench(:lenet; optimizer = "adam")
    adam = bench(:lenet; batch = 4, optimizer = "adam", learning_rate = 0.001, way = "train", rounds = 1, steps = 2)
    momentum = bench(:lenet; batch = 4, rounds = 1, steps = 2)
    @test adam.losses[1] ≈ momentum.losses[1] && adam.losses[3] != momentum.losses[3]
    mktempdir() do folder
        study = read_study(write_study(folder, adam))
        @test keys(study) == ["flux+train/cpu"] && study.settings["settings"]["optimizer"]["name"] == "adam"
    end
end

@testset "garbage is collected before the first round" begin
    collections = Int[]
    function loss(model, x, y)
        PolyBench.ignore_derivatives(() -> (push!(collections, last(PolyBench.gc_stats())); nothing))
        return small_loss(model, x, y)
    end
    bench(FLAT, loss, SMALL_BATCH; rounds = 1, steps = 3)
    before = 1 + PolyBench.WARMUP_STEPS + 2  # the first step, and those whose losses are stored
    @test collections[before + 1] > collections[before]
end

@testset "each round begins with the same loss and no state is left behind" begin
    losses = Float32[]
    chain = Chain(Flux.flatten, Dropout(0.5), Dense(192 => 4), BatchNorm(4), Dense(4 => 3))
    function loss(model, x, y)
        value = small_loss(model, x, y)
        PolyBench.ignore_derivatives(() -> (push!(losses, value); nothing))
        return value
    end
    generator, blas_threads = copy(Random.default_rng()), BLAS.get_num_threads()
    bench(chain, loss, SMALL_BATCH; rounds = 3, steps = 2, blas_threads = blas_threads + 1)
    @test copy(Random.default_rng()) == generator
    @test BLAS.get_num_threads() == blas_threads
    steps_per_round = PolyBench.WARMUP_STEPS + 2
    rounds = collect(Iterators.partition(last(losses, 4 * steps_per_round), steps_per_round))  # the last one counts allocations
    @test allequal(rounds)
    @test allunique(first(rounds))
end

@testset "a histogram contains every value" begin
    shown(values) = sprint(io -> PolyBench.histogram(io, values; width = 20))
    @test count(==('█'), shown([1.0, 1.0])) == 1
    # The 99th percentile is 3; the last bar includes larger values.
    first_line = first(split(shown([1; 2; fill(3, 197); 99]), '\n'))
    @test startswith(first_line, "  ▁") && endswith(first_line, "█") && count(!isspace, first_line) == 3
end

@testset "compare uses the rounds of two trials" begin
    trial(seconds) = PolyBench.Trial(
        "t", seconds, map(zero, seconds), "step", 0.0, 0.0, 0.0, 1.0, Float64[], nothing,
    )
    slow, fast = trial([[2.0], [2.0], [2.0]]), trial([[1.0], [1.0], [1.0]])
    @test compare(fast, slow).speedup ≈ 2 && all(compare(fast, slow).ci95 .≈ 2)
    noisy = trial([[1.0], [1.1], [0.9]])
    comparison = compare(noisy, slow)
    low, high = comparison.ci95
    # Welch's interval: one variance is zero, so 2 degrees of freedom, t = 4.303.
    half_width = 4.303 * sqrt(sum(abs2, [0.0, 0.1, -0.1]) / 2 / 3)
    @test comparison.speedup ≈ 2
    @test low ≈ comparison.speedup / exp(half_width) rtol = 1.0e-3
    @test high ≈ comparison.speedup * exp(half_width) rtol = 1.0e-3
    @test compare(trial([[1.0]]), slow).ci95 === nothing
    @test PolyBench.t_quantile(25.5) ≈ 2.058 atol = 0.003
    @test PolyBench.t_quantile(Inf) == 1.96
    shown = repr("text/plain", compare(fast, slow))
    @test occursin("2.0 times as fast (2.0 to 2.0; a single process: inconclusive)", shown)
    @test repr(compare(trial([[1.0]]), slow)) == "2.0 times as fast (a single process: inconclusive)"
    @test occursin("the interval treats rounds as independent", shown)
end

@testset "trials, ratios and judgements have the meanings of BenchmarkTools" begin
    trial(seconds, bytes) = PolyBench.Trial("t", [seconds], [zero(seconds)], "step", bytes, 2.0, NaN, 1.0, Float64[], nothing)
    slow, fast = trial([2.0, 2.2], 100.0), trial([1.0, 1.1], 100.5)
    @test slow.times ≈ [2.0e9, 2.2e9] && slow.gctimes == [0, 0]
    @test (slow.memory, slow.allocs) == (100, 2)
    times, gc_times = [[1.0, 1.0, 9.0], [4.0]], [[0.0, 0.0, 0.5], [0.25]]
    two_rounds = PolyBench.Trial("t", times, gc_times, "step", 0.0, 0.0, 0.0, 1.0, Float64[], nothing)
    @test median(two_rounds).time ≈ 2.0e9 && gc_fraction(two_rounds) ≈ 0.05  # the geometric mean of 1 s and 4 s
    @test minimum(slow).time ≈ 2.0e9 && std(slow).time ≈ 1.0e9 * std([2.0, 2.2])
    @test median(fast) < median(slow) && sort([maximum(slow), minimum(slow)])[1].name == "minimum"
    @test ratio(fast, slow).time ≈ 0.5 && ratio(fast, slow).gctime == 1 && ratio(median(slow), median(slow)).time == 1
    @test (judge(fast, slow).time, judge(slow, fast).time, judge(slow, slow).time) == (:improvement, :regression, :invariant)
    @test judge(fast, slow).memory === :invariant && judge(fast, slow; memory_tolerance = 0.001).memory === :regression
    @test judge(trial([2.08, 2.08], 1.0), trial([2.0, 2.0], 1.0)).time === :invariant
    @test repr(judge(fast, slow)) ==
        "Judgement(time -50.0% => improvement, memory +0.5% => invariant; a single process: inconclusive)"
end

@testset "layers of a chain are timed" begin
    times = layers(SMALL, first(SMALL_BATCH); rounds = 2, title = "small")
    @test [row.layer for row in times.rows] ==
        ["1 Conv 3x3, 3 => 2", "2 MaxPool", "3 BatchNorm", "4 flatten", "5 Dense 18 => 3"]
    @test keys(times.rows[1].operations) == Set(["forward", "activation", "weight gradient"])
    @test keys(times.rows[5].operations) == Set(["forward", "input gradient", "weight gradient"])
    @test keys(times.rows[2].operations) == Set(["forward", "gradient"])
    @test sum(times) > 0 && occursin("weight gradient", repr("text/plain", times))
end

@testset "the layers of a network are those of its blocks" begin
    times = layers(:resnet32; batch = 2, rounds = 1)
    @test length(times.rows) == 35
    @test times.rows[3].layer == "3 SkipConnection" && times.rows[35].layer == "35 Dense 64 => 10"
end

@testset "layers leaves the chain as it is, and times products of sequences" begin
    statistics = deepcopy(SMALL[3].μ)
    layers(SMALL, first(SMALL_BATCH); rounds = 1)
    @test SMALL[3].μ == statistics
    times = layers(Chain(Dense(2 => 3, tanh), Dense(3 => 4)), rand(Float32, 2, 5, 6); rounds = 1)
    @test keys(times.rows[2].operations) == Set(["forward", "input gradient", "weight gradient"])
end

@testset "a trial of a network can be saved and read" begin
    started_at = now(UTC)
    trial = bench(:lenet; batch = 8, rounds = 2, steps = 3, blas_threads = BLAS.get_num_threads() + 1)
    ended_at = now(UTC)
    sleep(1.1)  # the study is written later than it was measured
    @test occursin("lenet (39,558 parameters) on synthetic, batch 8, Float32, cpu", trial.title)
    @test trial.losses[1] ≈ 2.3 atol = 0.2
    mktempdir() do folder
        @test dirname(write_study(joinpath(folder, "a", "missing"), trial)) == joinpath(folder, "a", "missing")
        file = write_study(folder, trial)
        study = read_study(file)
        @test file == joinpath(folder, "$(study.header["id"]).jsonl")
        isempty(STUDY_FOLDER) || cp(file, joinpath(STUDY_FOLDER, basename(file)))
        @test keys(study) == ["flux/cpu"]
        @test study["flux/cpu"].rounds == trial.rounds
        @test median(study["flux/cpu"]).time == median(trial).time
        @test study["flux/cpu"].bytes == trial.bytes
        @test compare(study["flux/cpu"], trial).speedup == 1
        row = only(rows(study))
        @test (row.configuration, row.time, row.memory) == ("flux/cpu", mean(trial).time, trial.memory)
        @test repr(study) == "Study($(study.header["id"]), lenet, flux/cpu)"
        # The study has the threads of the measurement, which were reset afterwards.
        build = only(PolyBench.events_of(study, "engine"))["build"]
        @test build["blas_threads"] == string(BLAS.get_num_threads() + 1)
        created = DateTime(study.header["created"], dateformat"yyyy-mm-ddTHH:MM:SSZ")
        @test floor(started_at, Second) <= created <= ended_at
        @test startswith(study.header["id"], Dates.format(created, "yyyymmdd-HHMMSS"))
        settings = study.settings["settings"]
        @test settings["weights_sha256"] == WEIGHTS_SHA256[:lenet]
        @test occursin("flux/cpu", repr("text/plain", study))
        @test study["flux/cpu"].faults == trial.faults
        filter!(event -> event["event"] != "allocations", study.events)
        foreach(block -> block["counters"]["minor_faults"] = nothing, PolyBench.events_of(study, "block"))
        shown = repr("text/plain", study["flux/cpu"])
        @test occursin("Memory of a step: not known.", shown) && !occursin("First step", shown) && !occursin("Page faults", shown)
        @test occursin("memory:  not known", repr("text/plain", median(study["flux/cpu"])))
        @test_throws KeyError study["torch/cpu"]
        text = read(file, String)
        write(file, text, "{\"event\": \"blo")
        @test length(read_study(file).events) == countlines(IOBuffer(text))  # the line was cut off
        write(file, "{\"schema\": \"polybench.layers/2\"}\n")
        @test_throws "is not a study: its schema is \"polybench.layers/2\"" read_study(file)
    end
end

@testset "logs of polybench are read: repeated attempts, process runs that were cut off, and failures" begin
    folder = joinpath(dirname(dirname(@__DIR__)), "tests", "golden", "logs")
    if isdir(folder)  # not in an installed package
        bursts, resumed = read_study(joinpath(folder, "bursts.jsonl")), read_study(joinpath(folder, "resumed.jsonl"))
        @test keys(bursts) == ["torch/cpu", "tf/cpu"] && occursin("tf/cpu                  14.4 ms", repr("text/plain", bursts))
        @test length(bursts["torch/cpu"].rounds) == length(resumed["torch/cpu"].rounds) == 6
        place = findfirst(event -> event["event"] == "block" && event["configuration"] == "torch/cpu", bursts.events)
        louder = deepcopy(bursts.events[place])
        louder["attempt"], louder["step_seconds"] = 1, [9.0]
        louder["counters"]["other_process_cpu_seconds"] += 1
        rounds = bursts["torch/cpu"].rounds
        insert!(bursts.events, place + 1, louder)
        @test bursts["torch/cpu"].rounds == rounds
        bursts.events[place]["counters"]["cpu_wait_seconds"] = 2.0
        @test [9.0] in bursts["torch/cpu"].rounds
        @test mean(map(mean, resumed["tf/cpu"].rounds)) ≈ last(resumed.events)["step_seconds"]["tf/cpu"]
        push!(bursts.events, Dict("event" => "failure", "configuration" => "tf/cpu", "status" => "failed", "reason" => "out of memory"))
        filter!(event -> event["event"] != "block" || event["configuration"] != "tf/cpu", bursts.events)
        @test_throws "tf/cpu was not measured: failed: out of memory" bursts["tf/cpu"]
    end
end

@testset "timed steps cause no page faults after the full collection" begin
    chain = Chain(Dense(2 => 10, relu), (Dense(10 => 10, relu) for _ in 1:6)..., Dense(10 => 1))
    trial = bench(chain, (m, x, y) -> Flux.mse(m(x), y), rand(Float32, 2, 500), rand(Float32, 1, 500))
    @test 0 <= trial.faults < 20  # 103 without the warm-up
    @test occursin("Page faults of a step: ", repr("text/plain", trial))
end

@testset "a trial of a user's model can be saved and read" begin
    mktempdir() do folder
        file = write_study(folder, bench(SMALL, small_loss, SMALL_BATCH; title = "small", rounds = 2, steps = 3))
        isempty(STUDY_FOLDER) || cp(file, joinpath(STUDY_FOLDER, basename(file)))
        settings = read_study(file).settings["settings"]
        @test (settings["model"], settings["parameters"], settings["batch_size"]) == ("small", 3 * 3 * 3 * 2 + 2 + 4 + 18 * 3 + 3, 4)
        @test (settings["optimizer"]["name"], settings["optimizer"]["learning_rate"]) == ("sgd", 0.01)
        saved(model, batch; options...) =
            read_study(write_study(folder, bench(model, small_loss, batch; rounds = 1, steps = 1, options...)))
        same, other = saved(SMALL, SMALL_BATCH), saved(SMALL, (2 .* SMALL_BATCH[1], SMALL_BATCH[2]))
        @test same.settings["settings"]["data_sha256"] == settings["data_sha256"] != other.settings["settings"]["data_sha256"]
        changed = deepcopy(SMALL)
        changed[1].bias[1] += 1
        @test saved(changed, SMALL_BATCH).settings["settings"]["weights_sha256"] != settings["weights_sha256"] ==
            same.settings["settings"]["weights_sha256"]
        rule = Flux.Optimisers.OptimiserChain(Flux.WeightDecay(0.5), Flux.Adam(0.1, (0.8, 0.9)))
        adam = saved(FLAT, SMALL_BATCH; optimizer = rule, way = "train")
        optimizer = only(adam.settings["configurations"])["workload"]["optimizer"]
        @test (optimizer["name"], optimizer["weight_decay"], optimizer["betas"]) == ("adam", 0.5, [0.8, 0.9])
        @test keys(adam) == ["flux+train/cpu"]
        @test_throws "has no name for the optimizer Lion" saved(FLAT, SMALL_BATCH; optimizer = Flux.Optimisers.Lion())
        @test_throws "the weights are Float64" saved(Flux.f64(FLAT), SMALL_BATCH)
        @test_throws "read from a saved study" write_study(folder, adam["flux+train/cpu"])
    end
    name_of(rule) = PolyBench.optimizer_settings(rule)["name"]
    for name in ("sgd", "momentum", "nesterov", "rmsprop", "adam", "adamw")
        @test name_of(PolyBench.rule(name; learning_rate = 0.1)) == name
    end
end
