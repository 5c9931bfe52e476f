# `bench` of the Julia package against a plain loop, alternating in one process:
#
#     julia --project=... --threads 2 benchmarks/bench_loop.jl [pairs] [steps]
#
# in an environment with Flux and PolyBench. Prints the ratios of medians and of means with their 95 % intervals over pairs.
using Flux, PolyBench, Statistics

const PAIRS, STEPS = parse.(Int, (get(ARGS, 1, "20"), get(ARGS, 2, "30")))
const WARMUP = 2

lenet() = Chain(
    Conv((5, 5), 3 => 6, relu), MaxPool((2, 2)), Conv((5, 5), 6 => 16, relu), MaxPool((2, 2)),
    Flux.flatten, Dense(400 => 64, relu), Dense(64 => 32, relu), Dense(32 => 10),
)
loss(model, x, y) = Flux.logitcrossentropy(model(x), y)

"""Return the seconds of each step of a loop as in Flux's documentation, from the same weights."""
function plain_loop(model, batches)
    model = deepcopy(model)
    state = Flux.setup(Momentum(0.01, 0.9), model)
    return map(1:(WARMUP + STEPS)) do step
        x, y = batches[step]
        start = time_ns()
        gradient = Flux.gradient(m -> loss(m, x, y), model)[1]
        Flux.update!(state, model, gradient)
        (time_ns() - start) / 1.0e9
    end[(WARMUP + 1):end]
end

bench_steps(model, batches) =
    only(bench(model, loss, batches; optimizer = Momentum(0.01, 0.9), rounds = 1, steps = STEPS).rounds)

"""Print the geometric mean of ratios and its 95 % interval from Student's t."""
function show_ratio(name, ratios)
    logs = log.(ratios)
    half = PolyBench.t_quantile(length(logs) - 1) * std(logs) / sqrt(length(logs))
    low, middle, high = round.(exp.(mean(logs) .+ (-half, 0, half)); digits = 3)
    return println("bench / plain loop, $name of $STEPS steps, $(length(logs)) pairs: $middle ($low to $high)")
end

model = lenet()
batches = [(rand(Float32, 32, 32, 3, 128), Flux.onehotbatch(rand(0:9, 128), 0:9)) for _ in 1:(WARMUP + STEPS)]
bench_steps(model, batches), plain_loop(model, batches)  # compiles both
pairs = map(1:PAIRS) do pair
    order = isodd(pair) ? (bench_steps, plain_loop) : (plain_loop, bench_steps)
    times = Dict(run => (GC.gc(); run(model, batches)) for run in order)
    (times[bench_steps], times[plain_loop])
end
for (name, average) in (("medians", median), ("means", mean))
    show_ratio(name, [average(measured) / average(own) for (measured, own) in pairs])
end
