# One part of an LSTM in Flux, by hand: what `polybench layers` times, and nothing of polybench.
#
#     julia --threads=THREADS THIS_FILE
#
# Needs `layer.npz` beside it: the layer's weights, its input x (batch, time, features), the gradient dy of its output, and
# what is expected, of the weights' gradients that of `weight`; in C order. Needs the packages Flux and NPZ.

using Flux, NPZ
using Flux.Zygote.ChainRulesCore: ignore_derivatives
using LinearAlgebra: BLAS, norm
using Statistics: median

const PART = "forward" # "data gradient", "weight gradient"
const THREADS = 2
const REPEATS = 100
const BIDIRECTIONAL = true
const SEQUENCE = false # the output of each time, or the last one
const WANTS_DATA_GRADIENT = true # not of a network's first layer

Threads.nthreads() == THREADS || error("start julia with --threads=$THREADS")
BLAS.set_num_threads(1)
const ARRAYS = npzread(joinpath(@__DIR__, "layer.npz"))
turned(array) = permutedims(array, ndims(array):-1:1)

# A cell of whose weights no gradient is taken.
struct Constant{C}
    cell::C
end
Flux.initialstates(constant::Constant) = Flux.initialstates(constant.cell)
(constant::Constant)(x, state) = ignore_derivatives(constant.cell)(x, state)

lstm(cell, way) =
    Flux.Recurrence(cell(LSTMCell(ARRAYS["$(way)weight"], ARRAYS["$(way)recurrent"], ARRAYS["$(way)bias"])))
from_the_end(x) = reverse(x; dims = 2) # x is (features, time, batch)
last_output(x) = x[:, end, :]

function network(cell)
    forwards = Chain(lstm(cell, ""), SEQUENCE ? identity : last_output)
    BIDIRECTIONAL || return forwards
    backwards = Chain(from_the_end, lstm(cell, "reverse_"), SEQUENCE ? from_the_end : last_output)
    return Parallel(vcat, forwards, backwards)
end

weight(gradient) = (BIDIRECTIONAL ? gradient.layers[1] : gradient).layers[1].cell.Wi

function main()
    layer, x, dy = network(identity), turned(ARRAYS["x"]), turned(ARRAYS["dy"])
    apply(layer, x) = layer(x)
    _, of_data = Flux.Zygote.pullback(apply, network(Constant), x)
    _, of_both = Flux.Zygote.pullback(apply, layer, x)
    parts = Dict(
        "forward" => () -> first(Flux.Zygote.pullback(apply, layer, x)),
        "data gradient" => () -> last(of_data(dy)),
        "weight gradient" => () -> weight(first(of_both(dy))),
    )
    part = parts[PART]
    # Both gradients need the way back through time, so the weights' is what both take beyond the data's.
    less = PART == "weight gradient" && WANTS_DATA_GRADIENT ? parts["data gradient"] : () -> nothing
    expected = PART == "weight gradient" ? ARRAYS["expected"] : turned(ARRAYS["expected"])
    error = norm(part() .- expected) / norm(expected)
    less() # compiles
    seconds = [(@elapsed part()) - (@elapsed less()) for _ in 1:REPEATS]
    println("Flux $(pkgversion(Flux)): $(round(1e3 * median(seconds); digits = 3)) ms, relative error $error")
end

main()
