"""
A data set with augmentation, prepared during training as Julia's users do it: by MLUtils' `DataLoader` in its own task.

`DataLoader(parallel = true)` returns batches in any order, but reproducible training needs a fixed order. So several tasks
prepare the images of one batch, and a `Channel` prefetches batches.
"""
struct AugmentedData
    "(width, height, channels, images)"
    images::Array{UInt8, 4}
    labels::Vector{Int64}
    "Indices of the images in the batches: (batch, steps), from 0."
    order::Matrix{Int64}
    "(3, batch, steps): flip, dy, dx; nothing disables augmentation. See `polybench/data/batches.py`."
    augmentations::Union{Nothing, Array{Int8, 3}}
    classes::Int
    "Number of tasks that prepare a batch; 0 and 1 are equivalent here."
    workers::Int
end

Base.length(data::AugmentedData) = length(data.order)

"""
    data[positions]

Return images (width, height, channels, batch), `Float32` in 0 to 1, and one-hot labels for positions in the order, from 1.
"""
function Base.getindex(data::AugmentedData, positions::AbstractVector{<:Integer})
    images = Array{Float32}(undef, size(data.images)[1:3]..., length(positions))
    chunk_size = cld(length(positions), max(1, data.workers))
    @sync for chunk in Iterators.partition(eachindex(positions), chunk_size)
        Threads.@spawn for index in chunk
            prepare!(view(images, :, :, :, index), data, positions[index])
        end
    end
    labels = [data.labels[data.order[position] + 1] for position in positions]
    return images, Flux.onehotbatch(labels, 0:(data.classes - 1))
end

"""
    prepare!(out, data, position)

Flip and then shift one image: the pixel at (x, y) is that of the flipped image at (x + dx, y + dy), and 0 outside.
"""
function prepare!(out, data::AugmentedData, position::Integer)
    image = view(data.images, :, :, :, data.order[position] + 1)
    flip, dy, dx = augmentation(data.augmentations, position)
    width, height, channels = size(image)
    @inbounds for channel in 1:channels, y in 1:height, x in 1:width
        column, row = x + dx, y + dy
        inside = 1 <= column <= width && 1 <= row <= height
        out[x, y, channel] = inside ? image[flip ? width + 1 - column : column, row, channel] / 255.0f0 : 0.0f0
    end
    return nothing
end

augmentation(::Nothing, _) = (false, 0, 0)
function augmentation(augmentations::Array{Int8, 3}, position::Integer)
    first = 3 * (position - 1)
    return augmentations[first + 1] == 1, Int(augmentations[first + 2]), Int(augmentations[first + 3])
end

"""
A vector of batches for reading in order. It caches the batch that was read last; reading any batch but the next one restarts the
loader.
"""
mutable struct Pipeline{D <: Device, T, B <: Batch} <: AbstractVector{B}
    const device::D
    const data::AugmentedData
    last::Int
    batch::B
    "Iterator over the loader's remaining batches; `task` prepares them, if there is one."
    loader::Any
    task::Union{Nothing, Task}
    wait_ns::UInt64
end

function Pipeline(device::Device, ::Type{T}, data::AugmentedData) where {T}
    example = to_batch(device, T, data[1:1])
    return Pipeline{typeof(device), T, typeof(example)}(device, data, 0, example, nothing, nothing, 0)
end

Base.size(pipeline::Pipeline) = (size(pipeline.data.order, 2),)

function Base.getindex(pipeline::Pipeline{D, T, B}, index::Int)::B where {D, T, B}
    index == pipeline.last && return pipeline.batch
    start = time_ns()
    if pipeline.loader === nothing || index != pipeline.last + 1
        wait_until_idle!(pipeline)
        start_loader!(pipeline, index)
    end
    pipeline.batch = to_batch(pipeline.device, T, popfirst!(pipeline.loader)::Tuple)
    pipeline.last = index
    pipeline.wait_ns += time_ns() - start
    return pipeline.batch
end

to_batch(device, ::Type{T}, (images, labels)) where {T} =
    Batch(to_device(device, convert(Array{T, 4}, images)), to_device(device, labels), nothing)

function start_loader!(pipeline::Pipeline, index::Int)
    data = pipeline.data
    batch = size(data.order, 1)
    left = view(reshape(collect(1:length(data)), batch, :), :, index:length(pipeline))
    loader = Flux.DataLoader(Flux.MLUtils.obsview(data, vec(left)); batchsize = batch)
    pipeline.loader = Iterators.Stateful(data.workers == 0 ? loader : prefetch!(pipeline, loader))
    return nothing
end

"""
    prefetch!(pipeline, loader)

Return a channel that prefetches the loader's batches, as many as there are workers.
"""
function prefetch!(pipeline::Pipeline, loader)
    task = Ref{Task}()
    channel = Channel{Any}(pipeline.data.workers; spawn = true, taskref = task) do channel
        for batch in loader
            isopen(channel) || break
            put!(channel, batch)
        end
    end
    pipeline.task = task[]
    return channel
end

"""
    wait_until_idle!(pipeline)

Stop the prefetching task and wait for its end. The next batch starts a new one.

Between two requests this thread is in Python, while polybench measures other engines. A garbage collection by the task would
spin until this thread is in Julia.
"""
function wait_until_idle!(pipeline::Pipeline)
    pipeline.loader === nothing && return nothing
    pipeline.task === nothing || close(pipeline.loader.itr)
    pipeline.loader = nothing
    while pipeline.task !== nothing && !istaskdone(pipeline.task)
        yield()
    end
    pipeline.task = nothing
    return nothing
end
wait_until_idle!(::Any) = nothing

"""
    wait_seconds(pipeline)

Return the total seconds of reading, which the training waited for its data.
"""
wait_seconds(pipeline::Pipeline) = pipeline.wait_ns / 1.0e9
wait_seconds(::Any) = nothing

"""
    drain!(trainer, batches, first, n)

Read batches `first`, `first + 1`, ... (from 0) without training, and return the seconds.
"""
function drain!(trainer, batches::AbstractVector{<:Batch}, first::Int, n::Int)
    count = length(batches)
    synchronize(trainer.device)
    start = time_ns()
    for step in first:(first + n - 1)
        batches[step % count + 1]
    end
    synchronize(trainer.device)
    return (time_ns() - start) / 1.0e9
end
