"""
Converts weights between Flux's layout and the canonical one.

The canonical layout is (out, in, kernel height, kernel width) and (out, in), in C order. The same bytes in
Julia's order are (kernel width, kernel height, in, out) and (in, out), which is the shape of a *canonical* array here.
Flux's `Conv` is a convolution, which flips the kernel, whereas the canonical network uses cross-correlation. Flux's `Dense`
has (out, in). An embedding has the same layout in both, with contiguous rows of tokens.
"""
function convert_layout end

"""
    convert_layout(array)

Convert a canonical array to Flux's layout, or back, in a new array.
"""
convert_layout(kernel::AbstractArray{<:Real, 4}) = reverse(kernel; dims = (1, 2))
convert_layout(matrix::AbstractMatrix) = permutedims(matrix)
convert_layout(bias::AbstractVector) = copy(bias)

"""
    convert_layout(array, needs_conversion)

Convert the array if `needs_conversion`, else copy it.
"""
convert_layout(array::AbstractArray, needs_conversion::Bool) = needs_conversion ? convert_layout(array) : copy(array)

"""
    canonical_size(array, needs_conversion = true)

Return the size of the canonical array for one of Flux's weights.
"""
canonical_size(array::AbstractArray, needs_conversion::Bool = true) =
    needs_conversion && array isa AbstractMatrix ? reverse(size(array)) : size(array)

"""
    canonical(array, needs_conversion = true)

Copy one of Flux's weights or gradients to a canonical array in the host's memory.
"""
canonical(array::AbstractArray, needs_conversion::Bool = true) = convert_layout(Array(array), needs_conversion)
