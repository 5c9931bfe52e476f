"""
A tensor of a network and its location. A network is a Flux `Chain` built from layer records.

An activation after a layer with weights becomes that layer's own, as Flux's users write it.
"""
struct TensorLocation
    layer::String
    spec::TensorSpec
    "Fields and indices from the chain to the layer; the same path leads through the chain's gradient."
    path::Vector{Union{Symbol, Int}}
end

struct Network{C <: Chain}
    chain::C
    locations::Vector{TensorLocation}
end

"""
    records(toml)

Parse the layer records in TOML: `[[layers]]`, `type = "conv"`, `name = "conv1"`, ...
"""
records(toml::AbstractString) = Vector{Dict{String, Any}}(TOML.parse(toml)["layers"])

"""
    network(records, weights)

Build the network with these tensors, a `Dict` of names such as `conv1.weight` to canonical arrays.
"""
function network(records, weights)
    locations, arrays, marked = TensorLocation[], Dict{String, AbstractArray}(), mark_tables(records)
    for record in walk(marked), spec in tensor_specs(record)
        spec.role in (:trained, :state) || continue
        name = tensor_name(record, spec)
        arrays[name] = convert_layout(weights[name], spec.needs_conversion)  # once, so that tied layers share an array
    end
    return Network(chain(marked, arrays, locations, Union{Symbol, Int}[]), locations)
end

tensor_name(record, spec) = "$(spec.role === :tied ? record["tied"] : record["name"]).$(spec.name)"

"""
    chain(records, arrays, locations, path)

Build the chain of these layers at `path` from the arrays in Flux's layout, and add the locations of its tensors to `locations`.
"""
function chain(records, arrays, locations, path)
    layers = Any[]
    for (index, record) in enumerate(records)
        before, next = get(records, index - 1, nothing), get(records, index + 1, nothing)
        activation_of(record) !== nothing && before !== nothing && fuses_activation(before) && continue
        fused = fuses_activation(record) && next !== nothing ? something(activation_of(next), identity) : identity
        here = [path; :layers; length(layers) + 1]
        append!(layers, tuple_of(build_layer(record, arrays, locations, here, fused)))
    end
    # Zygote treats the output of an empty chain as nothing.
    return isempty(layers) ? Chain(identity) : Chain(layers...)
end

activation_of(record) = activation(kind(record), record)

tuple_of(layer) = (layer,)
tuple_of(layers::Tuple) = layers

function build_layer(record, arrays, locations, path, activation)
    record["type"] == "residual" && return residual(record, arrays, locations, path)
    tensors = Dict{String, AbstractArray}()
    for spec in tensor_specs(record)
        push!(locations, TensorLocation(spec.role === :tied ? record["tied"] : record["name"], spec, path))
        spec.role === :mask || (tensors[spec.name] = arrays[tensor_name(record, spec)])
    end
    return layer(kind(record), record, tensors, activation)
end

function residual(record, arrays, locations, path)
    branch(name, path) = chain(record[name], arrays, locations, path)
    isempty(record["shortcut"]) && return SkipConnection(branch("body", [path; :layers]), +)
    return Parallel(+, branch("body", [path; :layers; 1]), branch("shortcut", [path; :layers; 2]))
end

"""
    tensor_shapes(records)

Return names such as `conv1.weight` => canonical size, in the order of the layers: trained tensors, then state.
"""
tensor_shapes(records) = [
    "$(record["name"]).$(spec.name)" => spec.size for role in (:trained, :state) for record in walk(records) for
        spec in tensor_specs(record) if spec.role === role
]

"""List all records, also those in residual blocks: the block, its body, its shortcut."""
walk(records) = mapreduce(walk, vcat, records; init = Record[])
walk(record::Record) = [record; walk(get(record, "body", ())); walk(get(record, "shortcut", ()))]

"""
    map_branches(f, record)

Return the record with `f(records)` in place of the records of each branch. Other fields may be lists too, such as padding.
"""
map_branches(f, record::Record) =
    Dict{String, Any}(key => key in ("body", "shortcut") ? f(value) : value for (key, value) in record)

"""
    tensors(network, role, tree = network.chain)

Return names such as `conv1.weight` => array for a role, in the order of the layers. `tree` is the chain, or its gradient, which has the
same structure.
"""
tensors(network::Network, role::Symbol, tree = network.chain) = Pair{String, AbstractArray}[
    "$(location.layer).$(location.spec.name)" => resolve_path(resolve_path(tree, location.path), location.spec.field) for
        location in network.locations if location.spec.role === role
]

"""
    needs_conversion(network)

Return for each of `tensors(network)` if the canonical layout differs from Flux's.
"""
needs_conversion(network::Network) =
    [location.spec.needs_conversion for role in (:trained, :state) for location in network.locations if location.spec.role === role]

"""
    parameters(network, tree = network.chain)

Return the trained tensors.
"""
parameters(network::Network, tree = network.chain) = tensors(network, :trained, tree)

"""
    named_gradients(network, gradient)

Return the gradients of the trained tensors. That of a tensor that several layers use is the sum of theirs.
"""
function named_gradients(network::Network, gradient)
    tied = tensors(network, :tied, gradient)
    return [
        name => foldl(+, (other for (tied_name, other) in tied if tied_name == name); init = array) for
            (name, array) in parameters(network, gradient)
    ]
end

"""
    tensors(network)

Return all tensors of a trained network: parameters, then state.
"""
tensors(network::Network) = [parameters(network); tensors(network, :state)]

resolve_path(tree, path::AbstractVector) = foldl(resolve_path, path; init = tree)
resolve_path(tree, index::Int) = tree[index]
resolve_path(tree, field::Symbol) = getproperty(tree, field)
# Zygote's gradient of a mutable struct, such as `BatchNorm`, is a `Ref`.
resolve_path(tree::Ref, index::Int) = resolve_path(tree[], index)
resolve_path(tree::Ref, field::Symbol) = resolve_path(tree[], field)

"""
    set_masks!(network, masks)

Set the masks of dropout layers by name, in Flux's layout.
"""
function set_masks!(network::Network, masks)
    for location in network.locations
        location.spec.role === :mask || continue
        resolve_path(network.chain, location.path).mask = masks[location.layer]
    end
    return nothing
end
