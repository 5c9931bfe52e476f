"""
A vector of the batches that a user's program prepares itself, for reading in order, as a `Pipeline` is. It caches the batch that
was read last; reading any batch but the next one calls the program's `batches` again, with the rest of the order.
"""
mutable struct ProgramPipeline{N} <: AbstractVector{Batch}
    const program::Module
    "(width, height, channels, images), read-only."
    const images::Array{UInt8, N}
    const labels::Vector{Int64}
    "Indices of the images in the batches: (batch, steps), from 1."
    const order::Matrix{Int64}
    "What `batches` has returned, and the state of its iteration."
    iterator::Any
    state::Any
    "The first batch of the iterator, and the last one that was read."
    first::Int
    last::Int
    batch::Batch
    wait_ns::UInt64
    "True while the program's own code runs, and after it has failed."
    is_reading::Bool
end

ProgramPipeline(program::Module, images, labels, order) =
    ProgramPipeline(program, images, labels, order, nothing, nothing, 0, 0, Batch(nothing, nothing, nothing), UInt64(0), false)

Base.size(pipeline::ProgramPipeline) = (size(pipeline.order, 2),)

function Base.getindex(pipeline::ProgramPipeline, index::Int)
    index == pipeline.last && return pipeline.batch
    start = time_ns()
    pipeline.is_reading = true
    is_next = pipeline.iterator !== nothing && index == pipeline.last + 1
    next = is_next ? iterate(pipeline.iterator, pipeline.state) : start_iterator!(pipeline, index)
    pipeline.is_reading = false
    next === nothing && throw(ArgumentError(ended_early(pipeline)))
    batch, pipeline.state = next
    pipeline.batch = Batch(batch, nothing, nothing)
    pipeline.last = index
    pipeline.wait_ns += time_ns() - start
    return pipeline.batch
end

function start_iterator!(pipeline::ProgramPipeline, index::Int)
    pipeline.first = index
    pipeline.iterator = pipeline.program.batches(pipeline.images, pipeline.labels, pipeline.order[:, index:end])
    return iterate(pipeline.iterator)
end

"Batches are counted from 0, as in Python's message."
ended_early(pipeline::ProgramPipeline) =
    "batches ended early: expected $(length(pipeline) - pipeline.first + 1) from batch $(pipeline.first - 1) on"

is_reading(pipeline::ProgramPipeline) = pipeline.is_reading
is_reading(::Any) = false

wait_seconds(pipeline::ProgramPipeline) = pipeline.wait_ns / 1.0e9

"""
    wait_until_idle!(pipeline)

Wait until the tasks that the program may have started have filled their buffers: until this process uses less than a tenth of a
core, at most two seconds. `wait_until_idle!` of a `Pipeline` says why.
"""
function wait_until_idle!(::ProgramPipeline)
    interval = 0.02
    for _ in 1:100
        before = cpu_seconds()
        sleep(interval)
        cpu_seconds() - before < interval / 10 && break
    end
    return nothing
end

"CPU time of this process; POSIX counts it in microseconds."
cpu_seconds() = ccall(:clock, Clong, ()) / 1.0e6
