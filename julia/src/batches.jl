"""
A batch of the training loop: images (width, height, channels, batch), or sequences, (features, time, batch) or
tokens (time, batch), counted from 1, and one-hot labels
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
