"""
Batches as the training loop takes them: images (width, height, channels, batch), or sequences as in `sequences.jl`,
labels one-hot.

Images of a C-order (batch, channels, height, width) array are, byte for byte, Julia's (width, height, channels,
batch): memory that somebody else owns is used in place.
"""
struct Batch{X, Y, O}
    images::X
    labels::Y
    "Keeps the memory of `images` alive where it is a part of something larger."
    owner::O
end

"""
    input(T, array)

What a network takes of it: numbers as `T`, tokens, which are integers from 0, as the indices of an embedding.
"""
input(::Type{T}, numbers::Array{Float32}) where {T} = convert(Array{T}, numbers)
input(::Type, tokens::Array{Int32}) = Int.(tokens) .+ 1

"""
    batches(device, T, images, labels, classes)

One batch for each column of `labels` (batch, steps), whose values are 0 to `classes` - 1.

`images` are (width, height, channels, batch, steps), or (features, time, batch, steps), `Float32`, or tokens (time,
batch, steps), `Int32`, counted from 0. On the CPU, in `Float32`, a batch is not copied but is a part of `images`, which
nobody may write to.
"""
function batches(
        device::Device, ::Type{T}, images::Array{<:Union{Float32, Int32}}, labels::Matrix{Int64}, classes::Int,
    ) where {T}
    shape = Base.front(size(images))
    return map(axes(labels, 2)) do step
        # An `Array` and no `SubArray`, for that is what a data loader hands to its users.
        part = unsafe_wrap(Array, pointer(images, (step - 1) * prod(shape) + 1), shape)
        onehot = Flux.onehotbatch(view(labels, :, step), 0:(classes - 1))
        Batch(place(device, input(T, part)), place(device, onehot), images)
    end
end
