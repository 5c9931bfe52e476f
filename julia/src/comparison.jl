"""
Two trials in relation, with an interval: the ratio of typical steps, by the logs of the rounds' medians.
"""
struct Comparison
    title::String
    baseline::String
    "How many times as fast as the baseline."
    speedup::Float64
    "At 95 %; nothing where a trial has a single round."
    interval::Union{Nothing, Tuple{Float64, Float64}}
end

"""
    compare(trial, baseline)

How many times as fast as the baseline, with Welch's interval over rounds.

It takes all rounds as independent, and those of one process are not: what differs from process to process is not in the
interval, or not as it should be, and the two need not have been measured side by side. So it is no verdict.
`polybench compare` measures fresh processes in interleaved rounds, and checks that both compute the same.
"""
function compare(trial::Trial, baseline::Trial)
    ours, theirs = map(one -> map(log ∘ median, one.rounds), (trial, baseline))
    difference = mean(theirs) - mean(ours)
    return Comparison(trial.title, baseline.title, exp(difference), interval(difference, ours, theirs))
end

function interval(difference, ours, theirs)
    min(length(ours), length(theirs)) > 1 || return nothing
    parts = [var(values) / length(values) for values in (ours, theirs)]
    freedom = iszero(sum(parts)) ? Inf :
        sum(parts)^2 / sum(part^2 / (length(values) - 1) for (part, values) in zip(parts, (ours, theirs)))
    half = student(freedom) * sqrt(sum(parts))
    return exp(difference - half), exp(difference + half)
end

# The 97.5th percentile of Student's t for 1, 2, ... degrees of freedom.
const STUDENT = (
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.16, 2.145, 2.131, 2.12,
    2.11, 2.101, 2.093, 2.086,
)

"""
    student(freedom)

The 97.5th percentile of Student's t, rounded up: from a table, then by the first two terms of its expansion in 1 / n
(Abramowitz and Stegun, 26.7.5), which are within 0.2 % there.
"""
student(freedom::Real) =
    freedom < length(STUDENT) + 1 ? STUDENT[max(1, floor(Int, freedom))] : 1.96 + 2.372 / freedom + 2.83 / freedom^2

function Base.show(io::IO, one::Comparison)
    print(io, round(one.speedup; sigdigits = 3), " times as fast")
    one.interval === nothing && return nothing
    low, high = round.(one.interval; sigdigits = 3)
    return print(io, " (", low, " to ", high, ")")
end

function Base.show(io::IO, ::MIME"text/plain", one::Comparison)
    println(io, "PolyBench.Comparison: ", one)
    println(io, "  ", one.title)
    println(io, "  against ", one.baseline)
    return print(io, "  over rounds, as if each were independent: no verdict, as `polybench compare` gives one")
end
