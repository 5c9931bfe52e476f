"""
Layer records -> a Flux `Chain`, and its tensors by their canonical names.

A ReLU after a layer with weights becomes that layer's activation: so do Flux's users write it.
"""
struct Place
    layer::String
    part::Part
    "Fields and indices that lead to the layer: from the chain, and just as well from its gradient."
    path::Vector{Union{Symbol, Int}}
end

struct Network{C <: Chain}
    chain::C
    places::Vector{Place}
end

"""
    records(toml)

The records in a TOML text: `[[layers]]`, `type = "conv"`, `name = "conv1"`, ...
"""
records(toml::AbstractString) = Vector{Dict{String, Any}}(TOML.parse(toml)["layers"])

"""
    network(records, weights)

The network with these tensors, a `Dict` of `layer_name.weight` and the like to canonical arrays.
"""
function network(records, weights)
    places = Place[]
    return Network(chain(records, weights, places, Union{Symbol, Int}[]), places)
end

"""
    chain(records, weights, places, path)

The chain of these layers, which `path` leads to; where its tensors are is added to `places`.
"""
function chain(records, weights, places, path)
    layers = Any[]
    for (index, record) in enumerate(records)
        before, next = get(records, index - 1, nothing), get(records, index + 1, nothing)
        record["type"] == "relu" && before !== nothing && takes_activation(before) && continue
        activated = takes_activation(record) && next !== nothing && next["type"] == "relu"
        here = [path; :layers; length(layers) + 1]
        append!(layers, tuple_of(made(record, weights, places, here, activated ? Flux.relu : identity)))
    end
    # Zygote takes an empty chain's output for nothing.
    return isempty(layers) ? Chain(identity) : Chain(layers...)
end

tuple_of(layer) = (layer,)
tuple_of(layers::Tuple) = layers

function made(record, weights, places, path, activation)
    record["type"] == "residual" && return residual(record, weights, places, path)
    tensors = Dict{String, AbstractArray}()
    for part in parts(record)
        push!(places, Place(record["name"], part, path))
        part.role === :mask || (tensors[part.name] = flipped(weights["$(record["name"]).$(part.name)"], part.flips))
    end
    return layer(kind(record), record, tensors, activation)
end

function residual(record, weights, places, path)
    branch(name, path) = chain(record[name], weights, places, path)
    isempty(record["shortcut"]) && return SkipConnection(branch("body", [path; :layers]), +)
    return Parallel(+, branch("body", [path; :layers; 1]), branch("shortcut", [path; :layers; 2]))
end

"""
    tensor_shapes(records)

`layer_name.weight` and the like => canonical size, in the order of the layers: what is trained, then the state.
"""
tensor_shapes(records) = [
    "$(record["name"]).$(part.name)" => part.size for role in (:trained, :state) for record in walk(records) for
        part in parts(record) if part.role === role
]

"""Every record, also inside of residual blocks: the block, its body, its shortcut."""
walk(records) = mapreduce(walk, vcat, records; init = Record[])
walk(record::Record) = [record; walk(get(record, "body", ())); walk(get(record, "shortcut", ()))]

"""
    tensors(network, role, tree = network.chain)

`layer_name.part` => array for the parts of a role, in the order of the layers. `tree` is the chain itself, or what is
built like it: its gradient.
"""
tensors(network::Network, role::Symbol, tree = network.chain) = Pair{String, AbstractArray}[
    "$(place.layer).$(place.part.name)" => follow(follow(tree, place.path), place.part.field) for
        place in network.places if place.part.role === role
]

"""
    flips(network)

Whether each of `tensors(network)` is flipped between the canonical layout and Flux's.
"""
flips(network::Network) =
    [place.part.flips for role in (:trained, :state) for place in network.places if place.part.role === role]

"""
    parameters(network, tree = network.chain)

The tensors that are trained.
"""
parameters(network::Network, tree = network.chain) = tensors(network, :trained, tree)

"""
    tensors(network)

All that belongs to what was trained: parameters, then the state.
"""
tensors(network::Network) = [parameters(network); tensors(network, :state)]

follow(tree, path::AbstractVector) = foldl(follow, path; init = tree)
follow(tree, index::Int) = tree[index]
follow(tree, field::Symbol) = getproperty(tree, field)
# Zygote's gradient of a mutable struct, as `BatchNorm` is one.
follow(tree::Ref, index::Int) = follow(tree[], index)
follow(tree::Ref, field::Symbol) = follow(tree[], field)

"""
    set_masks!(network, masks)

Put these arrays, in Flux's layout, in place of the masks of the dropout layers of the names.
"""
function set_masks!(network::Network, masks)
    for place in network.places
        place.part.role === :mask || continue
        follow(network.chain, place.path).mask = masks[place.layer]
    end
    return nothing
end
