# One operation of one layer in plain Flux: the operation that `polybench layers` times, without polybench.
#
#     julia --threads=THREADS THIS_FILE
#
#: if layer
# Needs `layer.npz` in the same folder: the layer's weights, its input x, the gradient dy of its output, and the
# expected result; in C order, so the axes are reversed here. Needs the packages Flux and NPZ.
#: if lstm
# Needs `layer.npz` in the same folder: the layer's weights, its input x (batch, time, features), the gradient dy of its
# output, and the expected result (for the weight gradient, that of `weight`); in C order. Needs the packages Flux and NPZ.
#: end

using Flux, NPZ
#: if lstm
using Flux.Zygote.ChainRulesCore: ignore_derivatives
#: end
using LinearAlgebra: BLAS, norm
using Statistics: median

const OPERATION = "forward" # "input gradient", "weight gradient"
const THREADS = 2
const REPEATS = 100
#: if layer
const LAYER = x -> relu.(x)
#: if lstm
const BIDIRECTIONAL = true
const SEQUENCE = false # the outputs of all time steps, or the last one
const NEEDS_INPUT_GRADIENT = true # false for the first layer of a network
#: end

Threads.nthreads() == THREADS || error("start julia with --threads=$THREADS")
BLAS.set_num_threads(1)
const ARRAYS = npzread(joinpath(@__DIR__, "layer.npz"))
reverse_axes(array) = permutedims(array, ndims(array):-1:1)

#: if layer
# Flux computes a true convolution, which flips the kernel.
kernel(array) = array isa AbstractMatrix ? copy(array) : reverse(reverse_axes(array); dims = (1, 2))
take_weights(layer::Union{Conv,Dense}) = begin
    layer.weight .= kernel(ARRAYS["weight"])
    layer.bias === false || (layer.bias .= ARRAYS["bias"])
end
take_weights(layer::BatchNorm) = (layer.γ .= ARRAYS["weight"]; layer.β .= ARRAYS["bias"])
take_weights(_) = nothing

function main()
    take_weights(LAYER)
    x, dy = reverse_axes(ARRAYS["x"]), reverse_axes(ARRAYS["dy"])
    # Zygote computes the gradient of the input, or that of the layer.
    _, input_gradient = Flux.Zygote.pullback(x -> LAYER(x), x)
    _, layer_gradient = Flux.Zygote.pullback(layer -> layer(x), LAYER)
    operation() =
        OPERATION == "forward" ? first(Flux.Zygote.pullback(x -> LAYER(x), x)) :
        OPERATION == "input gradient" ? only(input_gradient(dy)) : only(layer_gradient(dy))
    found = OPERATION == "weight gradient" ? operation().weight : operation()
    expected = OPERATION == "weight gradient" ? kernel(ARRAYS["expected"]) : reverse_axes(ARRAYS["expected"])
#: if lstm
# An LSTM cell without gradients of its weights.
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
    layer, x, dy = network(identity), reverse_axes(ARRAYS["x"]), reverse_axes(ARRAYS["dy"])
    apply(layer, x) = layer(x)
    _, of_data = Flux.Zygote.pullback(apply, network(Constant), x)
    _, of_both = Flux.Zygote.pullback(apply, layer, x)
    operations = Dict(
        "forward" => () -> first(Flux.Zygote.pullback(apply, layer, x)),
        "input gradient" => () -> last(of_data(dy)),
        "weight gradient" => () -> weight(first(of_both(dy))),
    )
    operation = operations[OPERATION]
    # Both gradients need the backward pass through time, so the weight gradient is the time of both minus that of the input gradient.
    less = OPERATION == "weight gradient" && NEEDS_INPUT_GRADIENT ? operations["input gradient"] : () -> nothing
    found = operation()
    expected = OPERATION == "weight gradient" ? ARRAYS["expected"] : reverse_axes(ARRAYS["expected"])
    less() # compiles
#: end
    error = norm(found .- expected) / norm(expected)
#: if layer
    seconds = [@elapsed operation() for _ in 1:REPEATS]
#: if lstm
    seconds = [(@elapsed operation()) - (@elapsed less()) for _ in 1:REPEATS]
#: end
    println("Flux $(pkgversion(Flux)): $(round(1e3 * median(seconds); digits = 3)) ms, relative error $error")
end

main()
