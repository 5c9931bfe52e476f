"""
The time of each layer of a chain, forward and backward, each alone (see `replay.jl`).
"""
struct LayerTime
    layer::String
    "Seconds by part: `forward`, `activation`, `data gradient`, `weight gradient`, or `gradient` of both together."
    parts::Dict{String, Float64}
end

struct LayerTimes
    title::String
    rows::Vector{LayerTime}
end

const PARTS = ("forward", "activation", "data gradient", "weight gradient", "gradient")

"""
    layers(name; batch, data = "synthetic", device = "cpu", seed = 0, sweeps = 10, blas_threads, heap = "keep")

The time of each layer of one of polybench's networks: a residual block is one layer here. `polybench layers` has what
is inside of them, a residue, and other engines beside it.
"""
function layers(
        name::Union{Symbol, AbstractString}; batch::Union{Int, Nothing} = nothing, data::AbstractString = "synthetic",
        device::AbstractString = "cpu", seed::Integer = 0, keywords...,
    )
    check_there(PolyBench.device(device))
    forbid_tf32!(PolyBench.device(device))
    network = model(name)
    batch_size = something(batch, network.batch_size)
    images = dataset(network, data, seed)
    order = epoch_order(length(images.labels), batch_size, seed, 0)
    made = trainer(network, initial_weights(network, seed), device)
    x = only(first_batches(network, images, order, 1, device)).images
    return layers(made.network.chain, x; device, title = "$(network.name), batch $batch_size", keywords...)
end

"""
    layers(chain, x; sweeps = 10, title, blas_threads, heap = "keep")

The same of a chain of one's own, for the input `x`. The gradient of `x` is not among them: a training needs none.
"""
function layers(
        chain::Chain, x; sweeps::Int = 10, device::AbstractString = "cpu", title::AbstractString = "a chain",
        blas_threads::Int = own_blas_threads(), heap::AbstractString = "keep",
    )
    sweeps >= 1 || throw(ArgumentError("$sweeps sweeps: there is at least one"))
    check_there(PolyBench.device(device))
    forbid_tf32!(PolyBench.device(device))
    keep_heap(heap)
    return with_blas_threads(blas_threads) do
        parts = chain_parts(PolyBench.device(device), chain, x)
        foreach(((_, part),) -> seconds(part, 1), parts)  # compiles
        times = [Float64[] for _ in parts]
        for _ in 1:sweeps, index in in_order_of_a_step(parts)
            push!(times[index], seconds(parts[index][2], 1))
        end
        rows = map(unique(first.(parts))) do layer
            mine = findall(part -> first(part) == layer, parts)
            LayerTime(layer, Dict(parts[index][2].name => median(times[index]) for index in mine))
        end
        LayerTimes("$title, $(Threads.nthreads()) threads", rows)
    end
end

"""
    chain_parts(device, chain, x)

`layer => part` for all parts of all layers, in order; `x` is the input of the first.
"""
function chain_parts(device::Device, chain::Chain, x)
    found = Tuple{String, Replayed}[]
    trained = false  # before the first layer with weights nothing needs the gradient of the data
    for (index, layer) in enumerate(chain.layers)
        y = layer(x)
        has_weights = !isempty(Flux.trainables(layer))
        title = "$index $(describe(layer))"
        made = layer_parts(device, layer, linear(layer), x, slope(y), wanted(layer, trained, has_weights))
        append!(found, [(title, part) for part in made])
        trained |= has_weights
        x = y
    end
    return found
end

wanted(::Union{Conv, Dense}, trained, _) = trained ? ("data gradient", "weight gradient") : ("weight gradient",)
wanted(_, trained, has_weights) = trained || has_weights ? ("gradient",) : ()

# Any gradient will do, as long as it is not zero: products do not take longer for some numbers.
slope(y) = (dy = similar(y); fill!(dy, inv(length(y))); dy)

"""
    linear(layer)

The layer without its activation; the layer itself where it has none.
"""
linear(layer) = layer
linear(layer::Conv) = layer.σ === identity ? layer :
    Conv(layer.weight, layer.bias; layer.stride, layer.pad, layer.dilation, layer.groups)
linear(layer::Dense) = layer.σ === identity ? layer : Dense(layer.weight, layer.bias)

describe(layer::Conv) = "Conv $(join(size(layer.weight)[1:2], "x")), $(size(layer.weight, 3)) => $(size(layer.weight, 4))"
describe(layer::Dense) = "Dense $(size(layer.weight, 2)) => $(size(layer.weight, 1))"
describe(layer) = string(nameof(typeof(layer)))
describe(layer::Function) = string(nameof(layer))

"""
    in_order_of_a_step(parts)

Forwards through all layers, then backwards, so that a part finds the caches as another left them, not its own output.
"""
function in_order_of_a_step(parts)
    forward = findall(((_, part),) -> part.name == "forward", parts)
    return [forward; reverse(setdiff(eachindex(parts), forward))]
end

Base.sum(times::LayerTimes) = sum(sum(values(row.parts)) for row in times.rows)

Base.show(io::IO, times::LayerTimes) = print(io, "LayerTimes(", pretty_seconds(sum(times)), ")")

function Base.show(io::IO, ::MIME"text/plain", times::LayerTimes)
    used = [part for part in PARTS if any(haskey(row.parts, part) for row in times.rows)]
    told(row, part) = haskey(row.parts, part) ? pretty_seconds(row.parts[part]) : ""
    cells = [["layer"; used], ([row.layer; [told(row, part) for part in used]] for row in times.rows)...]
    widths = [maximum(textwidth(row[column]) for row in cells) for column in eachindex(first(cells))]
    println(io, "PolyBench.LayerTimes of ", times.title)
    for row in cells
        line = rpad(row[1], widths[1]) * join("  " * lpad(row[c], widths[c]) for c in 2:length(row))
        println(io, "  ", rstrip(line))
    end
    return print(io, "  all layers: ", pretty_seconds(sum(times)), "; loss, update and what lies between them are no part of it")
end
