# One operation of one layer in plain Flux: the operation that `polybench layers` times, without polybench.
#
#     julia --threads=THREADS THIS_FILE
#
# Needs `layer.npz` in the same folder: the layer's weights, its input x, the gradient dy of its output, and the
# expected result; in C order, so the axes are reversed here. Needs the packages Flux and NPZ.

using Flux, NPZ
using LinearAlgebra: BLAS, norm
using Statistics: median

const OPERATION = "forward" # "input gradient", "weight gradient"
const THREADS = 2
const REPEATS = 100
const LAYER = x -> relu.(x)

Threads.nthreads() == THREADS || error("start julia with --threads=$THREADS")
BLAS.set_num_threads(1)
const ARRAYS = npzread(joinpath(@__DIR__, "layer.npz"))
reverse_axes(array) = permutedims(array, ndims(array):-1:1)

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
    error = norm(found .- expected) / norm(expected)
    seconds = [@elapsed operation() for _ in 1:REPEATS]
    println("Flux $(pkgversion(Flux)): $(round(1e3 * median(seconds); digits = 3)) ms, relative error $error")
end

main()
