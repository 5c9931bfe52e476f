"""
Layer records -> a Flux `Chain`.

A record is a `Dict` of names to values, as `polybench/core/layers.py` declares it; `type` says which layer it is.
A ReLU after a layer with weights becomes that layer's activation: so do Flux's users write it.
"""
struct Network{C<:Chain}
    chain::C
    "Names of the layers with weights, \"\" for the others; one for each of the chain's layers."
    names::Vector{String}
end

const Record = AbstractDict{String}
const TAKE_ACTIVATION = ("conv", "dense")

"""    records(toml)

The records in a TOML text: `[[layers]]`, `type = "conv"`, `name = "conv1"`, ...
"""
records(toml::AbstractString) = Vector{Dict{String,Any}}(TOML.parse(toml)["layers"])

"""    weight_shapes(records)

`layer_name.weight` or `layer_name.bias` => canonical shape, in the order of the layers.
"""
function weight_shapes(records)
    shapes = Pair{String,Tuple{Vararg{Int}}}[]
    for record in records
        weight = weight_shape(record)
        weight === nothing && continue
        push!(shapes, "$(record["name"]).weight" => weight, "$(record["name"]).bias" => (record["outputs"],))
    end
    return shapes
end

function weight_shape(record::Record)
    type = record["type"]
    type == "conv" && return (record["kernel"], record["kernel"], record["inputs"], record["outputs"])
    type == "dense" && return (record["inputs"], record["outputs"])
    return nothing
end

"""    network(records, weights)

The network with these weights, a `Dict` of `layer_name.weight` and `layer_name.bias` to canonical arrays.
"""
function network(records, weights)
    layers, names = Any[], String[]
    activated = false
    for (index, record) in enumerate(records)
        if activated  # the ReLU is in the layer before
            activated = false
            continue
        end
        next = get(records, index + 1, nothing)
        activated = record["type"] in TAKE_ACTIVATION && next !== nothing && next["type"] == "relu"
        push!(layers, layer(Val(Symbol(record["type"])), record, weights, activated ? Flux.relu : identity))
        push!(names, weight_shape(record) === nothing ? "" : record["name"])
    end
    return Network(Chain(layers...), names)
end

layer(::Val{:conv}, record, weights, activation) =
    Conv(flux_weights(record, weights)..., activation)
layer(::Val{:dense}, record, weights, activation) =
    Dense(flux_weights(record, weights)..., activation)
layer(::Val{:max_pool}, record, _, _) = MaxPool((record["size"], record["size"]))
layer(::Val{:relu}, _, _, _) = x -> Flux.relu.(x)
layer(::Val{:flatten}, _, _, _) = Flux.flatten
layer(::Val{T}, _, _, _) where {T} = throw(ArgumentError("PolyBench has no layer of type \"$T\""))

flux_weights(record, weights) =
    (flipped(weights["$(record["name"]).weight"]), flipped(weights["$(record["name"]).bias"]))

"""    parameters(network, tree = network.chain)

`layer_name.weight` or `layer_name.bias` => array, in the order of the layers. `tree` is the chain itself, or what
is built like it: its gradient.
"""
function parameters(network::Network, tree = network.chain)
    named = Pair{String,AbstractArray}[]
    for (name, layer) in zip(network.names, tree.layers)
        isempty(name) && continue
        push!(named, "$name.weight" => layer.weight, "$name.bias" => layer.bias)
    end
    return named
end
