"""
Batches as Julia's users prepare them during training: MLUtils' `DataLoader`, in a task of its own.

`DataLoader(parallel = true)` gives batches in any order, and a training that can be repeated needs theirs. So the
images of one batch are prepared by several tasks, and a `Channel` lets the loader run ahead.
"""
struct Augmented
    "(width, height, channels, images)"
    images::Array{UInt8, 4}
    labels::Vector{Int64}
    "Which images are in the batches: (batch, steps), from 0."
    order::Matrix{Int64}
    "(3, batch, steps): flip, dy, dx; nothing varies nothing. See `polybench/data/augmentation.py`."
    decisions::Union{Nothing, Array{Int8, 3}}
    classes::Int
    "How many tasks prepare a batch; 0 and 1 are the same here."
    workers::Int
end

Base.length(data::Augmented) = length(data.order)

"""
    data[places]

Images (width, height, channels, batch), `Float32` in 0 to 1, and one-hot labels, for places in the order, from 1.
"""
function Base.getindex(data::Augmented, places::AbstractVector{<:Integer})
    images = Array{Float32}(undef, size(data.images)[1:3]..., length(places))
    share = cld(length(places), max(1, data.workers))
    @sync for part in Iterators.partition(eachindex(places), share)
        Threads.@spawn for index in part
            prepare!(view(images, :, :, :, index), data, places[index])
        end
    end
    labels = [data.labels[data.order[place] + 1] for place in places]
    return images, Flux.onehotbatch(labels, 0:(data.classes - 1))
end

"""
    prepare!(out, data, place)

One image, flipped, then shifted: the pixel at (x, y) is the flipped image's at (x + dx, y + dy), and 0 outside.
"""
function prepare!(out, data::Augmented, place::Integer)
    image = view(data.images, :, :, :, data.order[place] + 1)
    flip, dy, dx = decision(data.decisions, place)
    width, height, channels = size(image)
    @inbounds for channel in 1:channels, y in 1:height, x in 1:width
        column, row = x + dx, y + dy
        inside = 1 <= column <= width && 1 <= row <= height
        out[x, y, channel] = inside ? image[flip ? width + 1 - column : column, row, channel] / 255.0f0 : 0.0f0
    end
    return nothing
end

decision(::Nothing, _) = (false, 0, 0)
function decision(decisions::Array{Int8, 3}, place::Integer)
    first = 3 * (place - 1)
    return decisions[first + 1] == 1, Int(decisions[first + 2]), Int(decisions[first + 3])
end

"""
Reads like a vector of batches, made for reading it in order: the batch that was read last is kept, the next one is
drawn, and any other starts the loader anew.
"""
mutable struct Pipeline{D <: Device, T, B <: Batch} <: AbstractVector{B}
    const device::D
    const data::Augmented
    last::Int
    batch::B
    "The loader's batches from the next one on, and the task that makes them, if there is one."
    drawn::Any
    task::Union{Nothing, Task}
    waited_ns::UInt64
end

function Pipeline(device::Device, ::Type{T}, data::Augmented) where {T}
    example = ready(device, T, data[1:1])
    return Pipeline{typeof(device), T, typeof(example)}(device, data, 0, example, nothing, nothing, 0)
end

Base.size(pipeline::Pipeline) = (size(pipeline.data.order, 2),)

function Base.getindex(pipeline::Pipeline{D, T, B}, index::Int)::B where {D, T, B}
    index == pipeline.last && return pipeline.batch
    start = time_ns()
    if pipeline.drawn === nothing || index != pipeline.last + 1
        wait_until_idle!(pipeline)
        start!(pipeline, index)
    end
    pipeline.batch = ready(pipeline.device, T, popfirst!(pipeline.drawn)::Tuple)
    pipeline.last = index
    pipeline.waited_ns += time_ns() - start
    return pipeline.batch
end

ready(device, ::Type{T}, (images, labels)) where {T} =
    Batch(place(device, convert(Array{T, 4}, images)), place(device, labels), nothing)

function start!(pipeline::Pipeline, index::Int)
    data = pipeline.data
    batch = size(data.order, 1)
    left = view(reshape(collect(1:length(data)), batch, :), :, index:length(pipeline))
    loader = Flux.DataLoader(Flux.MLUtils.obsview(data, vec(left)); batchsize = batch)
    pipeline.drawn = Iterators.Stateful(data.workers == 0 ? loader : ahead!(pipeline, loader))
    return nothing
end

"""
    ahead!(pipeline, loader)

A channel of the loader's batches, made while others are trained on: as many as there are workers.
"""
function ahead!(pipeline::Pipeline, loader)
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

End the task that runs ahead, and wait for that. The next batch starts another one.

A collection of garbage by such a task would spin until this thread, too, is in Julia, and between two requests it
is in Python: other engines are measured then.
"""
function wait_until_idle!(pipeline::Pipeline)
    pipeline.drawn === nothing && return nothing
    pipeline.task === nothing || close(pipeline.drawn.itr)
    pipeline.drawn = nothing
    while pipeline.task !== nothing && !istaskdone(pipeline.task)
        yield()
    end
    pipeline.task = nothing
    return nothing
end
wait_until_idle!(::Any) = nothing

"""
    waited(pipeline)

Seconds that reading took so far: what the training waited for its data.
"""
waited(pipeline::Pipeline) = pipeline.waited_ns / 1.0e9
waited(::Any) = nothing

"""
    draw!(trainer, batches, first, n)

Read batches `first`, `first` + 1, ... (from 0) and train on none. Returns the seconds.
"""
function draw!(trainer, batches::AbstractVector{<:Batch}, first::Int, n::Int)
    count = length(batches)
    synchronize(trainer.device)
    start = time_ns()
    for step in first:(first + n - 1)
        batches[step % count + 1]
    end
    synchronize(trainer.device)
    return (time_ns() - start) / 1.0e9
end
