"""
A batch of the training loop: images (width, height, channels, batch), or sequences as in `sequences.jl`, and one-hot labels
(classes, batch) or, for a prediction at each position, (classes, time, batch).

Images of a C-order (batch, channels, height, width) array have the same bytes as Julia's (width, height, channels,
batch), so memory of another owner is used in place.
"""
struct Batch{X, Y, O}
    images::X
    labels::Y
    "Keeps the memory of `images` alive if it is part of a larger array."
    owner::O
end

"""
    input(T, array)

Convert to the input of a network: numbers to `T`, tokens (integers from 0) to indices of an embedding.
"""
input(::Type{T}, numbers::Array{Float32}) where {T} = convert(Array{T}, numbers)
input(::Type, tokens::Array{Int32}) = Int.(tokens) .+ 1

"""
    batches(device, T, images, labels, classes)

Return one batch per step of `labels` (batch, steps) or (time, batch, steps), whose values are 0 to `classes` - 1.

`images` are (width, height, channels, batch, steps), or (features, time, batch, steps), `Float32`, or tokens (time,
batch, steps), `Int32`, counted from 0. On the CPU, in `Float32`, a batch is a part of `images` and not a copy, so `images`
must not be modified.
"""
function batches(
        device::Device, ::Type{T}, images::Array{<:Union{Float32, Int32}}, labels::Array{Int64}, classes::Int,
    ) where {T}
    shape = Base.front(size(images))
    return map(axes(labels, ndims(labels))) do step
        # An `Array`, which data loaders return to their users, and not a `SubArray`.
        array = unsafe_wrap(Array, pointer(images, (step - 1) * prod(shape) + 1), shape)
        onehot = Flux.onehotbatch(selectdim(labels, ndims(labels), step), 0:(classes - 1))
        Batch(to_device(device, input(T, array)), to_device(device, onehot), images)
    end
end
