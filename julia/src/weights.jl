"""
Weights between Flux's layout and the canonical one.

The canonical layout is (out, in, kernel height, kernel width) and (out, in), in C order. The same bytes in
Julia's order are (kernel width, kernel height, in, out) and (in, out): that is what a *canonical* array is here.
Flux's `Conv` convolves, which turns the kernel around, where the canonical network cross-correlates; its `Dense`
has (out, in). An embedding has the same layout in both, a token's row without a gap.
"""
function flipped end

"""
    flipped(array)

A new array: a canonical one as Flux wants it, and just as well the other way round.
"""
flipped(kernel::AbstractArray{<:Real, 4}) = reverse(kernel; dims = (1, 2))
flipped(matrix::AbstractMatrix) = permutedims(matrix)
flipped(bias::AbstractVector) = copy(bias)

"""
    flipped(array, flips)

The same, or a copy where nothing `flips`.
"""
flipped(array::AbstractArray, flips::Bool) = flips ? flipped(array) : copy(array)

"""
    canonical_size(array, flips = true)

The size of the canonical array for one of Flux's weights.
"""
canonical_size(array::AbstractArray, flips::Bool = true) =
    flips && array isa AbstractMatrix ? reverse(size(array)) : size(array)

"""
    canonical(array, flips = true)

A canonical copy of one of Flux's weights or gradients, in the host's memory.
"""
canonical(array::AbstractArray, flips::Bool = true) = flipped(Array(array), flips)
