"""
What a benchmark gave, in BenchmarkTools' manners: all samples, and estimates of a step from them.
"""
struct Trial
    title::String
    "Seconds of a step, round by round. Every round times the same steps of the same training."
    rounds::Vector{Vector{Float64}}
    "What the garbage collector took of each of them, in seconds."
    collector::Vector{Vector{Float64}}
    "`step`, or `block` where a sample is the mean of a block of steps, as on a GPU."
    kind::String
    "Of a step, in Julia's heap. NaN, as is the first step, where a study that was read does not say it."
    bytes::Float64
    count::Float64
    "Seconds of the very first step, with what Julia compiled for it in this process."
    first_step::Float64
    "Of the first steps after the initial weights."
    losses::Vector{Float64}
    "What was measured and how, for the document; nothing for a model of one's own."
    circumstances::Any
end

"""One number for a step: seconds, what of it the collector took, and what it allocates."""
struct Estimate
    name::String
    time::Float64
    gctime::Float64
    bytes::Float64
    count::Float64
end

samples(trial::Trial) = reduce(vcat, trial.rounds)
collected_samples(trial::Trial) = reduce(vcat, trial.collector)
estimate(trial, name, time, gctime) = Estimate(name, time, gctime, trial.bytes, trial.count)

Base.length(trial::Trial) = sum(length, trial.rounds)
Base.minimum(trial::Trial) = at(argmin, trial, "minimum")
Base.maximum(trial::Trial) = at(argmax, trial, "maximum")

function at(which, trial::Trial, name)
    place = which(samples(trial))
    return estimate(trial, name, samples(trial)[place], collected_samples(trial)[place])
end

"""
    median(trial)

A typical step: the geometric mean of the rounds' medians, which is the step time of polybench's table.
"""
Statistics.median(trial::Trial) =
    estimate(trial, "median", geometric_mean(map(median, trial.rounds)), median(collected_samples(trial)))

"""
    mean(trial)

All samples' mean. What the collector takes of some steps only is in it, and may not be in the median.
"""
Statistics.mean(trial::Trial) = estimate(trial, "mean", mean(samples(trial)), mean(collected_samples(trial)))

"""
    std(trial)

The standard deviation of all samples, in seconds.
"""
Statistics.std(trial::Trial) = std(samples(trial))

geometric_mean(values) = exp(mean(map(log, values)))

"""
    gcshare(trial)

What part of the time of all steps the collector took.
"""
gcshare(trial::Trial) = sum(collected_samples(trial)) / sum(samples(trial))

function pretty_seconds(seconds::Real)
    unit, factor = seconds < 1.0e-6 ? ("ns", 1.0e9) : seconds < 1.0e-3 ? ("μs", 1.0e6) : seconds < 1 ? ("ms", 1.0e3) : ("s", 1)
    return "$(round(seconds * factor; sigdigits = 3)) $unit"
end

"""Of a trial or an estimate; a study that was read need not say what a step allocates."""
pretty_memory(one) =
    isnan(one.bytes) ? "not known" : "$(Base.format_bytes(round(Int, one.bytes))), $(round(Int, one.count)) allocations"
percent(share::Real) = "$(round(100 * share; digits = 1))%"

Base.show(io::IO, trial::Trial) = print(io, "Trial(", pretty_seconds(median(trial).time), ")")
Base.show(io::IO, one::Estimate) = print(io, "Estimate(", one.name, ", ", pretty_seconds(one.time), ")")

function Base.show(io::IO, ::MIME"text/plain", one::Estimate)
    println(io, "PolyBench.Estimate: ", one.name, " of a step")
    println(io, "  time:    ", pretty_seconds(one.time))
    println(io, "  gctime:  ", pretty_seconds(one.gctime), " (", percent(one.gctime / one.time), ")")
    return print(io, "  memory:  ", pretty_memory(one))
end

function Base.show(io::IO, ::MIME"text/plain", trial::Trial)
    low, high, middle, average = minimum(trial), maximum(trial), median(trial), mean(trial)
    what = trial.kind == "step" ? "steps" : "blocks"
    println(io, "PolyBench.Trial: ", length(trial), " ", what, " in ", length(trial.rounds), " rounds, ", trial.title)
    two(left, right) = println(io, " ", rpad(left, 48), "┊ ", right)
    share(one) = percent(one.gctime / one.time)
    two(
        " Range  (min … max):  $(pretty_seconds(low.time)) … $(pretty_seconds(high.time))",
        "GC (min … max):  $(share(low)) … $(share(high))",
    )
    two(" Time   (median):     $(pretty_seconds(middle.time))", "GC (median):     $(share(middle))")
    spread = length(trial) > 1 ? " ± $(pretty_seconds(std(trial)))" : ""
    two(" Time   (mean ± σ):   $(pretty_seconds(average.time))$spread", "GC (of all):     $(percent(gcshare(trial)))")
    println(io)
    histogram(io, samples(trial))
    print(io, "\n  Memory of a step: ", pretty_memory(trial), ".")
    isnan(trial.first_step) ||
        print(io, "\n  First step, with what its process compiled for it: ", pretty_seconds(trial.first_step), ".")
    return nothing
end

const BARS = ('▁', '▂', '▃', '▄', '▅', '▆', '▇', '█')

"""
    histogram(io, values; width = 60)

A line of bars; the last one also has all that is beyond the 99th percentile.
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
    left, right = pretty_seconds(low), "$(pretty_seconds(high)) <"
    return print(io, "  ", left, lpad(right, width - textwidth(left)))
end
