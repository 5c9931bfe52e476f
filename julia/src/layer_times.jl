"""
The times of a layer's operations (see `operations.jl`).
"""
struct LayerTime
    layer::String
    "Seconds by operation: `forward`, `activation`, `input gradient`, `weight gradient`, or `gradient` for both together."
    operations::Dict{String, Float64}
end

struct LayerTimes
    title::String
    rows::Vector{LayerTime}
end

const OPERATIONS = ("forward", "activation", "input gradient", "weight gradient", "gradient")

"""
    layers(name; batch, data = "synthetic", device = "cpu", seed = 0, rounds = 10, blas_threads, malloc)

Time each layer of one of polybench's networks; a residual block counts as one layer. `polybench layers` also times the layers
inside of blocks, reports unattributed time, and compares engines. The options are those of `bench`. Returns `LayerTimes`, whose
`rows` have the seconds of each operation.

```jldoctest
julia> using PolyBench

julia> times = PolyBench.layers(:lenet; batch = 4, rounds = 2);

julia> times.rows[1].layer, sum(times) > 0
("1 Conv 5x5, 3 => 16", true)
```
"""
function layers(
        name::Union{Symbol, AbstractString}; batch::Union{Int, Nothing} = nothing, data::AbstractString = "synthetic",
        device::AbstractString = "cpu", seed::Integer = 0, keywords...,
    )
    check_available(PolyBench.device(device))
    disable_tf32!(PolyBench.device(device))
    network = model(name)
    batch_size = something(batch, network.batch_size)
    images = dataset(network, data, seed)
    order = epoch_order(length(images.labels), batch_size, seed, 0)
    chain, (x, _) = PolyBench.network(network, initial_weights(network, seed)), only(first_batches(network, images, order, 1))
    chain, x = map(part -> to_device(PolyBench.device(device), part), (chain, x))
    return layers(chain, x; device, title = "$(network.name), batch $batch_size", keywords...)
end

"""
    layers(chain, x; rounds = 10, title, blas_threads, malloc)

Time each layer of a copy of your own chain, and of the chains in it, with the input `x`. The gradient of `x` is not timed, because
training does not need it. Returns `LayerTimes`.

```jldoctest
julia> using Flux, PolyBench

julia> times = PolyBench.layers(Chain(Dense(4 => 3), Dense(3 => 2)), ones(Float32, 4, 8));

julia> sort!(collect(keys(times.rows[2].operations)))
3-element Vector{String}:
 "forward"
 "input gradient"
 "weight gradient"
```
"""
function layers(
        chain::Chain, x; rounds::Int = 10, device::AbstractString = "cpu", title::AbstractString = "a chain",
        blas_threads::Int = BLAS.get_num_threads(), malloc::AbstractString = default_malloc_policy(),
    )
    rounds >= 1 || throw(ArgumentError("$rounds rounds: expected at least 1"))
    check_available(PolyBench.device(device))
    disable_tf32!(PolyBench.device(device))
    apply_malloc_policy(malloc)
    return restoring_process(blas_threads) do
        operations = chain_operations(PolyBench.device(device), deepcopy(chain), x)  # batch norm changes its statistics
        foreach(((_, operation),) -> seconds(operation, 1), operations)  # compiles them
        times = [Float64[] for _ in operations]
        for _ in 1:rounds, index in step_order(operations)
            push!(times[index], seconds(operations[index][2], 1))
        end
        rows = map(unique(first.(operations))) do layer
            of_layer = findall(operation -> first(operation) == layer, operations)
            LayerTime(layer, Dict(operations[index][2].name => mean(times[index]) for index in of_layer))
        end
        LayerTimes("$title, $(describe_process(malloc))", rows)
    end
end

"""
    chain_operations(device, chain, x)

Return (layer, operation) for all operations of all layers in order; `x` is the input of the first layer.
"""
function chain_operations(device::Device, chain::Chain, x)
    found = Tuple{String, TimedOperation}[]
    needs_input_gradient = false  # layers before the first one with weights need no input gradient
    for (index, layer) in enumerate(flat_layers(chain))
        y = layer(x)
        has_weights = !isempty(Flux.trainables(layer))
        title = "$index $(describe(layer))"
        required = required_gradients(layer, needs_input_gradient, has_weights)
        operations = layer_operations(device, layer, without_activation(layer), x, output_gradient(y), required)
        append!(found, [(title, operation) for operation in operations])
        needs_input_gradient |= has_weights
        x = y
    end
    return found
end

flat_layers(chain::Chain) = reduce(vcat, map(flat_layers, collect(values(chain.layers))); init = Any[])
flat_layers(layer) = Any[layer]

required_gradients(::Union{Conv, Dense}, needs_input_gradient, _) =
    needs_input_gradient ? ("input gradient", "weight gradient") : ("weight gradient",)
required_gradients(_, needs_input_gradient, has_weights) = needs_input_gradient || has_weights ? ("gradient",) : ()

# The time of a product does not depend on its numbers, so any gradient except zero is suitable.
output_gradient(y) = (dy = similar(y); fill!(dy, inv(length(y))); dy)

"""
    without_activation(layer)

Return the layer without its activation, or the layer itself if it has none.
"""
without_activation(layer) = layer
without_activation(layer::Conv) = layer.σ === identity ? layer :
    Conv(layer.weight, layer.bias; layer.stride, layer.pad, layer.dilation, layer.groups)
without_activation(layer::Dense) = layer.σ === identity ? layer : Dense(layer.weight, layer.bias)

describe(layer::Conv) = "Conv $(join(size(layer.weight)[1:2], "x")), $(size(layer.weight, 3)) => $(size(layer.weight, 4))"
describe(layer::Dense) = "Dense $(size(layer.weight, 2)) => $(size(layer.weight, 1))"
describe(layer) = string(nameof(typeof(layer)))
describe(layer::Function) = string(nameof(layer))

"""
    step_order(operations)

Return the order of a step: forward through all layers, then backward. So each operation finds the caches as another one left them, not
its own output.
"""
function step_order(operations)
    forward = findall(((_, operation),) -> operation.name == "forward", operations)
    return [forward; reverse(setdiff(eachindex(operations), forward))]
end

Base.sum(times::LayerTimes) = sum(sum(values(row.operations)) for row in times.rows)

Base.show(io::IO, times::LayerTimes) = print(io, "LayerTimes(", format_seconds(sum(times)), ")")

function Base.show(io::IO, ::MIME"text/plain", times::LayerTimes)
    used = [operation for operation in OPERATIONS if any(haskey(row.operations, operation) for row in times.rows)]
    format_cell(row, operation) = haskey(row.operations, operation) ? format_seconds(row.operations[operation]) : ""
    table = [["layer"; used], ([row.layer; [format_cell(row, operation) for operation in used]] for row in times.rows)...]
    widths = [maximum(textwidth(row[column]) for row in table) for column in eachindex(first(table))]
    println(io, "PolyBench.LayerTimes of ", times.title)
    for row in table
        line = rpad(row[1], widths[1]) * join("  " * lpad(row[c], widths[c]) for c in 2:length(row))
        println(io, "  ", rstrip(line))
    end
    return print(io, "  all layers: ", format_seconds(sum(times)), "; excludes loss, update and everything between layers")
end
