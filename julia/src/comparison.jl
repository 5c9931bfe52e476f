"""
The speed-up of a trial over a baseline: the ratio of their mean steps, with an interval over rounds.
"""
struct Comparison
    title::String
    baseline::String
    "Baseline step time divided by step time."
    speedup::Float64
    "95% confidence interval; nothing if a trial has a single round."
    ci95::Union{Nothing, Tuple{Float64, Float64}}
end

"""
    compare(trial, baseline)

Return the speed-up over the baseline, with Welch's interval over rounds.

The interval treats all rounds as independent, but rounds of one process are not: it does not cover differences between
processes, or the time between the two measurements. So the result is not a verdict. `polybench compare` measures fresh
processes in interleaved rounds, and checks that both compute the same.

Returns a `Comparison`; its `speedup` is above 1 if `trial` is faster, and `ci95` is `nothing` for trials of a single round.

```jldoctest
julia> using Flux, PolyBench

julia> line, loss = Dense(2 => 1), (m, x, y) -> Flux.mse(m(x), y);

julia> trial = bench(line, loss, ones(Float32, 2, 4), ones(Float32, 1, 4));

julia> PolyBench.compare(trial, trial).speedup
1.0
```
"""
function compare(trial::Trial, baseline::Trial)
    logs, baseline_logs = map(log_means, (trial, baseline))
    difference = mean(baseline_logs) - mean(logs)
    return Comparison(trial.title, baseline.title, exp(difference), ci95(difference, logs, baseline_logs))
end

"The logs of the rounds' means, such that their mean is the log of the mean step."
function log_means(trial::Trial)
    means = map(mean, trial.rounds)
    return log(mean(means)) .+ means ./ mean(means) .- 1
end

function ci95(difference, logs, baseline_logs)
    min(length(logs), length(baseline_logs)) > 1 || return nothing
    variances = [var(values) / length(values) for values in (logs, baseline_logs)]
    degrees_of_freedom = iszero(sum(variances)) ? Inf :
        sum(variances)^2 / sum(v^2 / (length(values) - 1) for (v, values) in zip(variances, (logs, baseline_logs)))
    half_width = t_quantile(degrees_of_freedom) * sqrt(sum(variances))
    return exp(difference - half_width), exp(difference + half_width)
end

# The 97.5th percentile of Student's t for 1, 2, ... degrees of freedom.
const T_QUANTILES = (
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.16, 2.145, 2.131, 2.12,
    2.11, 2.101, 2.093, 2.086,
)

"""
    t_quantile(degrees_of_freedom)

The 97.5th percentile of Student's t, rounded up: from the table, above it by the first two terms of its expansion in 1 / n
(Abramowitz and Stegun, 26.7.5), with an error below 0.2%.
"""
t_quantile(degrees_of_freedom::Real) =
    degrees_of_freedom < length(T_QUANTILES) + 1 ? T_QUANTILES[max(1, floor(Int, degrees_of_freedom))] :
    1.96 + 2.372 / degrees_of_freedom + 2.83 / degrees_of_freedom^2

function Base.show(io::IO, comparison::Comparison)
    print(io, round(comparison.speedup; sigdigits = 3), " times as fast (")
    if comparison.ci95 !== nothing
        low, high = round.(comparison.ci95; sigdigits = 3)
        print(io, low, " to ", high, "; ")
    end
    return print(io, "a single process: inconclusive)")
end

function Base.show(io::IO, ::MIME"text/plain", comparison::Comparison)
    println(io, "PolyBench.Comparison: ", comparison)
    println(io, "  ", comparison.title)
    println(io, "  baseline: ", comparison.baseline)
    return print(io, "  the interval treats rounds as independent; use `polybench compare` for a verdict")
end

"""The ratios of two estimates: `time`, `gctime`, `memory` and `allocs`."""
struct Ratio
    time::Float64
    gctime::Float64
    memory::Float64
    allocs::Float64
end

"""
    ratio(target, baseline)

Return each number of the target divided by that of the baseline, as in BenchmarkTools: a time below 1 is faster. Of trials, those of
their medians. Returns a `Ratio` with the fields `time`, `gctime`, `memory` and `allocs`.

```jldoctest
julia> using Flux, PolyBench

julia> line, loss = Dense(2 => 1), (m, x, y) -> Flux.mse(m(x), y);

julia> trial = bench(line, loss, ones(Float32, 2, 4), ones(Float32, 1, 4));

julia> PolyBench.ratio(trial, trial)
Ratio(time +0.0%, memory +0.0%)
```
"""
ratio(target::Estimate, baseline::Estimate) =
    Ratio((quotient(getfield(target, name), getfield(baseline, name)) for name in fieldnames(Ratio))...)
ratio(target::Trial, baseline::Trial) = ratio(median(target), median(baseline))

quotient(a, b) = a == b ? one(a) : a / b

"""A ratio, and whether its time and memory are an `:improvement`, a `:regression` or `:invariant`."""
struct Judgement
    ratio::Ratio
    time::Symbol
    memory::Symbol
end

"""
    judge(target, baseline; time_tolerance = 0.05, memory_tolerance = 0.01)

Classify the ratios as BenchmarkTools does: `:invariant` within the tolerance. Both measurements come from a single process each, so
this is not a verdict on the code: see `compare`. Takes two trials or two estimates, and returns a `Judgement` with the fields `ratio`, `time` and `memory`.

```jldoctest
julia> using Flux, PolyBench

julia> line, loss = Dense(2 => 1), (m, x, y) -> Flux.mse(m(x), y);

julia> trial = bench(line, loss, ones(Float32, 2, 4), ones(Float32, 1, 4));

julia> PolyBench.judge(trial, trial).time
:invariant
```
"""
function judge(target, baseline; time_tolerance::Real = 0.05, memory_tolerance::Real = 0.01)
    found = ratio(target, baseline)
    return Judgement(found, classify(found.time, time_tolerance), classify(found.memory, memory_tolerance))
end

classify(ratio, tolerance) = ratio - tolerance > 1 ? :regression : ratio + tolerance < 1 ? :improvement : :invariant

change(ratio) = "$(ratio < 1 ? "" : "+")$(round(100 * (ratio - 1); digits = 2))%"

Base.show(io::IO, ratio::Ratio) = print(io, "Ratio(time ", change(ratio.time), ", memory ", change(ratio.memory), ")")

Base.show(io::IO, judgement::Judgement) = print(
    io, "Judgement(time ", change(judgement.ratio.time), " => ", judgement.time, ", memory ", change(judgement.ratio.memory),
    " => ", judgement.memory, "; a single process: inconclusive)",
)
