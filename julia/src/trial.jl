"""
The result of a benchmark: all step times, and estimates of a step time from them.

`trial.times` and `trial.gctimes` are the nanoseconds of all steps, `trial.memory` and `trial.allocs` the bytes and the number of
a step's allocations, as in a trial of BenchmarkTools.
"""
struct Trial
    title::String
    "Step times in seconds by round. Every round times the same steps of the same training."
    rounds::Vector{Vector{Float64}}
    "Seconds of garbage collection in each of them."
    gc_rounds::Vector{Vector{Float64}}
    "`step`, or `block` if a value is the mean of a timing block, as on a GPU."
    resolution::String
    "Bytes and count of a step's allocations in Julia's heap. A study without them gives NaN, also for the first step."
    bytes::Float64
    count::Float64
    "Page faults of a step, over whole rounds: pages that the kernel mapped for it. NaN if a study does not have them."
    faults::Float64
    "Seconds of the process's first step, including compilation."
    first_step::Float64
    "Losses of the first steps from the initial weights."
    losses::Vector{Float64}
    "Work and process, for `write_study`; nothing for a trial from a saved study."
    metadata::Any
end

const NANOSECONDS = 1.0e9

function Base.getproperty(trial::Trial, name::Symbol)
    name === :times && return NANOSECONDS .* step_times(trial)
    name === :gctimes && return NANOSECONDS .* gc_times(trial)
    name === :memory && return trial.bytes
    name === :allocs && return trial.count
    return getfield(trial, name)
end

Base.propertynames(::Trial) = (fieldnames(Trial)..., :times, :gctimes, :memory, :allocs)

"""
An estimate of a step: nanoseconds, nanoseconds of garbage collection, bytes and number of allocations, as in BenchmarkTools.

Estimates are ordered by their time.
"""
struct Estimate
    name::String
    time::Float64
    gctime::Float64
    memory::Float64
    allocs::Float64
end

step_times(trial::Trial) = reduce(vcat, trial.rounds)
gc_times(trial::Trial) = reduce(vcat, trial.gc_rounds)
estimate(trial, name, seconds, gc_seconds) =
    Estimate(name, NANOSECONDS * seconds, NANOSECONDS * gc_seconds, trial.bytes, trial.count)

Base.isless(one::Estimate, other::Estimate) = isless(one.time, other.time)

Base.length(trial::Trial) = sum(length, trial.rounds)
Base.minimum(trial::Trial) = estimate_at(argmin, trial, "minimum")
Base.maximum(trial::Trial) = estimate_at(argmax, trial, "maximum")

function estimate_at(select, trial::Trial, name)
    index = select(step_times(trial))
    return estimate(trial, name, step_times(trial)[index], gc_times(trial)[index])
end

"""
    median(trial)

A typical step: the geometric mean of the rounds' medians, as in the column `typical_step_time`. Returns an `Estimate`, whose `time` and `gctime`
are nanoseconds.

```jldoctest
julia> using Flux, PolyBench

julia> line, loss = Dense(2 => 1), (m, x, y) -> Flux.mse(m(x), y);

julia> trial = bench(line, loss, ones(Float32, 2, 4), ones(Float32, 1, 4));

julia> minimum(trial) <= median(trial) <= maximum(trial)
true
```
"""
Statistics.median(trial::Trial) = estimate(trial, "median", typical_seconds(trial), median(gc_times(trial)))

typical_seconds(trial::Trial) = geometric_mean(map(median, trial.rounds))

"""
    mean(trial)

The mean of all step times, as in polybench's table, as an `Estimate`. It includes collections that occur in few steps, which the median may miss.

```jldoctest
julia> using Flux, PolyBench

julia> line, loss = Dense(2 => 1), (m, x, y) -> Flux.mse(m(x), y);

julia> trial = bench(line, loss, ones(Float32, 2, 4), ones(Float32, 1, 4));

julia> mean(trial).time ≈ sum(trial.times) / length(trial)
true
```
"""
Statistics.mean(trial::Trial) = estimate(trial, "mean", mean(step_times(trial)), mean(gc_times(trial)))

"""
    std(trial)

The standard deviation of all step times, as an `Estimate` in nanoseconds; NaN for a single step.

```jldoctest
julia> using Flux, PolyBench

julia> line, loss = Dense(2 => 1), (m, x, y) -> Flux.mse(m(x), y);

julia> trial = bench(line, loss, ones(Float32, 2, 4), ones(Float32, 1, 4));

julia> std(trial).time ≈ std(trial.times)
true
```
"""
Statistics.std(trial::Trial) = estimate(trial, "std", std(step_times(trial)), std(gc_times(trial)))

geometric_mean(values) = exp(mean(map(log, values)))

"""
    gc_fraction(trial)

The fraction of all step time that the garbage collector takes, from 0 to 1.

```jldoctest
julia> using Flux, PolyBench

julia> line, loss = Dense(2 => 1), (m, x, y) -> Flux.mse(m(x), y);

julia> trial = bench(line, loss, ones(Float32, 2, 4), ones(Float32, 1, 4));

julia> gc_fraction(trial) ≈ sum(trial.gctimes) / sum(trial.times)
true
```
"""
gc_fraction(trial::Trial) = sum(gc_times(trial)) / sum(step_times(trial))

function format_seconds(seconds::Real)
    unit, factor = seconds < 1.0e-6 ? ("ns", 1.0e9) : seconds < 1.0e-3 ? ("μs", 1.0e6) : seconds < 1 ? ("ms", 1.0e3) : ("s", 1)
    return "$(round(seconds * factor; sigdigits = 3)) $unit"
end

format_time(nanoseconds::Real) = format_seconds(nanoseconds / NANOSECONDS)

"""Format the allocations of a trial or an estimate; a study may lack them."""
format_memory(estimate) =
    isnan(estimate.memory) ? "not known" :
    "$(Base.format_bytes(round(Int, estimate.memory))), $(round(Int, estimate.allocs)) allocations"
percent(share::Real) = "$(round(100 * share; digits = 1))%"

Base.show(io::IO, trial::Trial) = print(io, "Trial(", format_time(median(trial).time), ")")
Base.show(io::IO, estimate::Estimate) = print(io, "Estimate(", estimate.name, ", ", format_time(estimate.time), ")")

function Base.show(io::IO, ::MIME"text/plain", estimate::Estimate)
    println(io, "PolyBench.Estimate: ", estimate.name, " of a step")
    println(io, "  time:    ", format_time(estimate.time))
    println(io, "  gctime:  ", format_time(estimate.gctime), " (", percent(estimate.gctime / estimate.time), ")")
    return print(io, "  memory:  ", format_memory(estimate))
end

function Base.show(io::IO, ::MIME"text/plain", trial::Trial)
    low, high, middle, average = minimum(trial), maximum(trial), median(trial), mean(trial)
    unit = trial.resolution == "step" ? "steps" : "blocks"
    println(io, "PolyBench.Trial: ", length(trial), " ", unit, " in ", length(trial.rounds), " rounds, ", trial.title)
    print_columns(left, right) = println(io, " ", rpad(left, 48), "┊ ", right)
    share(estimate) = percent(estimate.gctime / estimate.time)
    print_columns(
        " Range  (min … max):  $(format_time(low.time)) … $(format_time(high.time))",
        "GC (min … max):  $(share(low)) … $(share(high))",
    )
    print_columns(" Time   (median):     $(format_time(middle.time))", "GC (median):     $(share(middle))")
    spread = length(trial) > 1 ? " ± $(format_time(std(trial).time))" : ""
    print_columns(" Time   (mean ± σ):   $(format_time(average.time))$spread", "GC (of all):     $(percent(gc_fraction(trial)))")
    println(io)
    histogram(io, step_times(trial))
    print(io, "\n  Memory of a step: ", format_memory(trial), ".")
    isnan(trial.faults) || print(io, "\n  Page faults of a step: ", round(trial.faults; sigdigits = 3), ".")
    isnan(trial.first_step) ||
        print(io, "\n  First step, including compilation: ", format_seconds(trial.first_step), ".")
    return nothing
end

const BARS = ('▁', '▂', '▃', '▄', '▅', '▆', '▇', '█')

"""
    histogram(io, values; width = 60)

Print a line of bars. The last bar includes all values above the 99th percentile.
"""
function histogram(io::IO, values; width::Int = 60)
    low = float(minimum(values))
    high = max(quantile(values, 0.99), nextfloat(low))
    counts = zeros(Int, width)
    for value in values
        counts[clamp(ceil(Int, width * (value - low) / (high - low)), 1, width)] += 1
    end
    bar(count) = count == 0 ? ' ' : BARS[cld(count * length(BARS), maximum(counts))]
    println(io, "  ", join(map(bar, counts)))
    left, right = format_seconds(low), "$(format_seconds(high)) <"
    return print(io, "  ", left, lpad(right, width - textwidth(left)))
end
