"""
Batches as the training loop takes them: images (width, height, channels, batch), labels one-hot.

Images of a C-order (batch, channels, height, width) array are, byte for byte, Julia's (width, height, channels,
batch): memory that somebody else owns is used in place.
"""
struct Batch{X,Y,O}
    images::X
    labels::Y
    "Keeps the memory of `images` alive where it is a part of something larger."
    owner::O
end

"""
    batches(device, T, images, labels, classes)

One batch for each column of `labels` (batch, steps), whose values are 0 to `classes` - 1.

`images` are (width, height, channels, batch, steps), `Float32`. On the CPU, in `Float32`, a batch is not copied but
is a part of `images`, which nobody may write to.
"""
function batches(device::Device, ::Type{T}, images::Array{Float32,5}, labels::Matrix{Int64}, classes::Int) where {T}
    shape = size(images)[1:4]
    return map(axes(labels, 2)) do step
        # An `Array` and no `SubArray`, for that is what a data loader hands to its users.
        part = unsafe_wrap(Array, pointer(images, (step - 1) * prod(shape) + 1), shape)
        onehot = Flux.onehotbatch(view(labels, :, step), 0:(classes - 1))
        Batch(place(device, convert(Array{T,4}, part)), place(device, onehot), images)
    end
end
