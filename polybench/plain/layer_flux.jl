# One part of one layer in Flux, by hand: what `polybench layers` times, and nothing of polybench.
#
#     julia --threads=THREADS THIS_FILE
#
# Needs `layer.npz` beside it: the layer's weights, its input x, the gradient dy of its output, what is expected; in C
# order, so that axes are the other way round here. Needs the packages Flux and NPZ.

using Flux, NPZ
using LinearAlgebra: BLAS, norm
using Statistics: median

const PART = "forward" # "data gradient", "weight gradient"
const THREADS = 2
const REPEATS = 100
const LAYER = x -> relu.(x)

Threads.nthreads() == THREADS || error("start julia with --threads=$THREADS")
BLAS.set_num_threads(1)
const ARRAYS = npzread(joinpath(@__DIR__, "layer.npz"))
turned(array) = permutedims(array, ndims(array):-1:1)

# Flux convolves, which turns the kernel around.
kernel(array) = array isa AbstractMatrix ? copy(array) : reverse(turned(array); dims = (1, 2))
take_weights(layer::Union{Conv,Dense}) = begin
    layer.weight .= kernel(ARRAYS["weight"])
    layer.bias === false || (layer.bias .= ARRAYS["bias"])
end
take_weights(layer::BatchNorm) = (layer.γ .= ARRAYS["weight"]; layer.β .= ARRAYS["bias"])
take_weights(_) = nothing

function main()
    take_weights(LAYER)
    x, dy = turned(ARRAYS["x"]), turned(ARRAYS["dy"])
    # Zygote computes what is asked for: the gradient of the input, or that of the layer.
    _, of_data = Flux.Zygote.pullback(x -> LAYER(x), x)
    _, of_layer = Flux.Zygote.pullback(layer -> layer(x), LAYER)
    part() =
        PART == "forward" ? first(Flux.Zygote.pullback(x -> LAYER(x), x)) :
        PART == "data gradient" ? only(of_data(dy)) : only(of_layer(dy))
    found = PART == "weight gradient" ? part().weight : part()
    expected = PART == "weight gradient" ? kernel(ARRAYS["expected"]) : turned(ARRAYS["expected"])
    error = norm(found .- expected) / norm(expected)
    seconds = [@elapsed part() for _ in 1:REPEATS]
    println("Flux $(pkgversion(Flux)): $(round(1e3 * median(seconds); digits = 3)) ms, relative error $error")
end

main()
