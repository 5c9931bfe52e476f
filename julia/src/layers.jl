"""
Layer records -> Flux's layers, written as Flux's users write them.

A record is a `Dict` of names to values, as `polybench/core/layers.py` declares it; `type` says which layer it is.
"""
const Record = AbstractDict{String}

kind(record::Record) = Val(Symbol(record["type"]))

"""
A tensor of a layer: its canonical name and size (see `weights.jl`), Flux's field, or the fields that lead to it, and
its role: `:trained` by the optimizer, `:state` that a training step changes, or `:mask` of a dropout layer that is given
its masks. It is `flipped` between the canonical layout and Flux's, unless both are the same.
"""
struct Part
    name::String
    field::Union{Symbol, Vector{Symbol}}
    size::Tuple{Vararg{Int}}
    role::Symbol
    flips::Bool
end

Part(name, field, size, role) = Part(name, field, size, role, true)

"""
    parts(record)

The tensors of a layer, in the order of `polybench/core/layers.py`.
"""
parts(record::Record) = parts(kind(record), record)
parts(::Val, _) = Part[]

function parts(::Val{:conv}, record)
    kernel, inputs, outputs = record["kernel"], record["inputs"], record["outputs"]
    weight = Part("weight", :weight, (kernel, kernel, inputs, outputs), :trained)
    return record["bias"] ? [weight, Part("bias", :bias, (outputs,), :trained)] : [weight]
end

parts(::Val{:dense}, record) = [
    Part("weight", :weight, (record["inputs"], record["outputs"]), :trained),
    Part("bias", :bias, (record["outputs"],), :trained),
]

function parts(::Val{:batch_norm}, record)
    size = (record["channels"],)
    return [
        Part("weight", :γ, size, :trained), Part("bias", :β, size, :trained),
        Part("running_mean", :μ, size, :state), Part("running_variance", :σ², size, :state),
    ]
end

# Flux has a token's row in a column, which is the same in memory.
parts(::Val{:embedding}, record) =
    [Part("weight", :weight, (record["features"], record["vocabulary"]), :trained, false)]

parts(::Val{:lstm}, record) = [
    Part(prefix * name, [place; :cell; field], size, :trained) for (prefix, place) in lstm_directions(record) for
        (name, field, size) in lstm_tensors(record)
]

parts(::Val{:given_dropout}, _) = [Part("mask", :mask, (), :mask)]

"""Layers that take a ReLU right after them as their activation."""
takes_activation(record::Record) = record["type"] in ("conv", "dense", "batch_norm")

"""
    layer(kind, record, tensors, activation)

The record's layer, or layers. `tensors` are its own in Flux's layout, by their canonical names.
Residual blocks are made in `network.jl`.
"""
layer(::Val{:conv}, record, tensors, activation) = Conv(
    tensors["weight"], record["bias"] && tensors["bias"], activation;
    stride = record["stride"], pad = padding(record["padding"]),
)
layer(::Val{:dense}, _, tensors, activation) = Dense(tensors["weight"], tensors["bias"], activation)
layer(::Val{:max_pool}, record, _, _) = MaxPool(window(record); stride = record["stride"])
layer(::Val{:average_pool}, record, _, _) = MeanPool(window(record); stride = record["stride"])
layer(::Val{:global_average_pool}, _, _, _) = (GlobalMeanPool(), Flux.flatten)
layer(::Val{:dropout}, record, _, _) = Dropout(record["rate"])
layer(::Val{:given_dropout}, _, _, _) = GivenDropout()
layer(::Val{:relu}, _, _, _) = x -> Flux.relu.(x)
layer(::Val{:flatten}, _, _, _) = Flux.flatten
layer(::Val{T}, _, _, _) where {T} = throw(ArgumentError("PolyBench has no layer of type \"$T\""))

function layer(::Val{:batch_norm}, record, tensors, activation)
    T = eltype(tensors["weight"])
    # What `BatchNorm(channels, activation; eps, momentum)` makes, which has Float32 only.
    return BatchNorm(
        activation, tensors["bias"], tensors["weight"], tensors["running_mean"], tensors["running_variance"],
        T(record["epsilon"]), T(record["momentum"]), true, true, nothing, record["channels"],
    )
end

padding(zeros::Integer) = zeros
padding(name::AbstractString) = name == "same" ? SamePad() : 0
window(record) = (record["size"], record["size"])

"""
Multiplies with a mask that is set before each step, in place of `Dropout`: engines' own masks would never agree.
"""
mutable struct GivenDropout
    mask::AbstractArray
end

GivenDropout() = GivenDropout(zeros(0))
Flux.@layer GivenDropout trainable = ()

(dropout::GivenDropout)(x) = x .* dropout.mask

"""
    with_given_masks(records)

The records with every dropout layer as one that is given its masks.
"""
with_given_masks(records::AbstractVector) = map(with_given_masks, records)
function with_given_masks(record::Record)
    record["type"] == "dropout" && return merge(record, Dict("type" => "given_dropout"))
    return Dict{String, Any}(k => v isa AbstractVector ? with_given_masks(v) : v for (k, v) in record)
end
