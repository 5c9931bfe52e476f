"""
A layer record: a `Dict` of names to values, as `polybench/networks/layers.py` declares it; `type` is the type of the layer.
This file builds Flux's layers from records, written as Flux's users write them.
"""
const Record = AbstractDict{String}

kind(record::Record) = Val(Symbol(record["type"]))

"""
A tensor of a layer: its canonical name and size (see `weights.jl`), the field or fields in Flux's layer, and its role:
`:trained` by the optimizer, `:state` that a training step changes, `:mask` of a dropout layer with given masks, or `:tied` if
it is the same array as another layer's.
`needs_conversion` is true if the canonical layout differs from Flux's.
"""
struct TensorSpec
    name::String
    field::Union{Symbol, Vector{Symbol}}
    size::Tuple{Vararg{Int}}
    role::Symbol
    needs_conversion::Bool
end

TensorSpec(name, field, size, role) = TensorSpec(name, field, size, role, true)

"""
    tensor_specs(record)

Return the tensors of a layer, in the order of `polybench/networks/layers.py`.
"""
tensor_specs(record::Record) = tensor_specs(kind(record), record)
tensor_specs(::Val, _) = TensorSpec[]

function tensor_specs(::Val{:conv}, record)
    kernel, inputs, outputs = record["kernel"], record["inputs"], record["outputs"]
    weight = TensorSpec("weight", :weight, (kernel, kernel, inputs ÷ get(record, "groups", 1), outputs), :trained)
    return has_bias(record) ? [weight, TensorSpec("bias", :bias, (outputs,), :trained)] : [weight]
end

function tensor_specs(::Val{:dense}, record)
    size = (record["inputs"], record["outputs"])
    haskey(record, "tied") && return [TensorSpec("weight", is_table(record) ? :tensor : :weight, size, :tied)]
    weight = TensorSpec("weight", :weight, size, :trained)
    return has_bias(record) ? [weight, TensorSpec("bias", :bias, (record["outputs"],), :trained)] : [weight]
end

has_bias(record) = get(record, "bias", true)

function tensor_specs(::Val{:layer_norm}, record)
    size = (record["features"],)
    weight = TensorSpec("weight", [:diag, :scale], size, :trained)
    return has_bias(record) ? [weight, TensorSpec("bias", [:diag, :bias], size, :trained)] : [weight]
end

function tensor_specs(::Val{:group_norm}, record)
    size = (record["channels"],)
    return [TensorSpec("weight", :γ, size, :trained), TensorSpec("bias", :β, size, :trained)]
end

function tensor_specs(::Val{:batch_norm}, record)
    size = (record["channels"],)
    return [
        TensorSpec("weight", :γ, size, :trained), TensorSpec("bias", :β, size, :trained),
        TensorSpec("running_mean", :μ, size, :state), TensorSpec("running_variance", :σ², size, :state),
    ]
end

# Flux stores a token's row as a column, which is the same in memory.
tensor_specs(::Val{:embedding}, record) =
    [TensorSpec("weight", :weight, (record["features"], record["vocabulary"]), :trained, false)]

tensor_specs(::Val{:lstm}, record) = [
    TensorSpec(prefix * name, [path; :cell; field], size, :trained) for (prefix, path) in lstm_directions(record) for
        (name, field, size) in lstm_tensors(record)
]

tensor_specs(::Val{:fixed_mask_dropout}, _) = [TensorSpec("mask", :mask, (), :mask)]

"""True for layers that fuse a following activation."""
fuses_activation(record::Record) = record["type"] in ("conv", "dense", "batch_norm") && !is_table(record)

"""
    activation(kind, record)

Return the function of an activation's record; nothing for other layers.

`gelu` is the exact one, and NNlib's `gelu_tanh`, which it also calls `gelu`, the approximation.
"""
activation(::Val{:relu}, _) = Flux.relu
activation(::Val{:relu6}, _) = Flux.relu6
activation(::Val{:silu}, _) = Flux.swish
activation(::Val{:gelu}, record) = get(record, "approximate", "none") == "tanh" ? NNlib.gelu_tanh : NNlib.gelu_erf
activation(::Val, _) = nothing

"""
    layer(kind, record, tensors, activation)

Build the record's layer, or layers, from `tensors` in Flux's layout by canonical name. `network.jl` builds residual blocks.
"""
layer(::Val{:conv}, record, tensors, activation) = Conv(
    tensors["weight"], get(tensors, "bias", false), activation;
    stride = record["stride"], pad = padding(record["padding"]), groups = get(record, "groups", 1),
)
layer(::Val{:dense}, record, tensors, activation) = is_table(record) ? WithTensor(multiply_table, tensors["weight"]) :
    Dense(tensors["weight"], get(tensors, "bias", false), activation)
layer(::Val{:max_pool}, record, _, _) = pool(MaxPool, -Inf, record)
function layer(::Val{:average_pool}, record, _, _)
    layers = tuple_of(pool(MeanPool, 0, record))
    return get(record, "count_padding", true) ? layers : ImageMean(without_chain(Chain(layers...)))
end
layer(::Val{:global_average_pool}, _, _, _) = (GlobalMeanPool(), Flux.flatten)
layer(::Val{:dropout}, record, _, _) = Dropout(record["rate"])
layer(::Val{:fixed_mask_dropout}, _, _, _) = FixedMaskDropout()
layer(::Val{:flatten}, _, _, _) = Flux.flatten
function layer(kind::Val{T}, record, _, _) where {T}
    found = activation(kind, record)
    found === nothing && throw(ArgumentError("PolyBench has no layer of type \"$T\""))
    return x -> found.(x)
end

# Flux adds the square of its epsilon to the variance (Flux 0.16.10, `normalise`), in `GroupNorm` epsilon itself.
function layer(::Val{:layer_norm}, record, tensors, _)
    weight, features = tensors["weight"], record["features"]
    scale = Flux.Scale(weight, get(tensors, "bias", false))
    return Flux.LayerNorm(identity, scale, eltype(weight)(sqrt(record["epsilon"])), (features,), true)
end

function layer(::Val{:group_norm}, record, tensors, _)
    T = eltype(tensors["weight"])
    # As with `BatchNorm` below. There are no running statistics, so the momentum has no effect.
    return Flux.GroupNorm(
        record["groups"], identity, tensors["bias"], tensors["weight"], nothing, nothing, T(record["epsilon"]), T(0.1), true,
        false, nothing, record["channels"],
    )
end

function layer(::Val{:batch_norm}, record, tensors, activation)
    T = eltype(tensors["weight"])
    # `BatchNorm(channels, activation; eps, momentum)` constructs the same layer, but only for Float32.
    return BatchNorm(
        activation, tensors["bias"], tensors["weight"], tensors["running_mean"], tensors["running_variance"],
        T(record["epsilon"]), T(record["momentum"]), true, true, nothing, record["channels"],
    )
end

"""
    padding(padding)

Return the padding of a record for Flux, which has the sides of the width first.
"""
padding(pixels::Integer) = pixels
padding(name::AbstractString) = name == "same" ? SamePad() : 0
function padding(sides::AbstractVector)
    (top, bottom), (left, right) = sides
    return top == bottom && left == right ? (left, top) : (left, right, top, bottom)
end

"""
    pool(kind, outside, record)

Return a pool. One with other padding on opposite sides follows a function that pads with the value `outside`: cuDNN pads both sides
alike, and NNlib 0.9.36 only warns (`nnlibPadding`).
"""
function pool(kind, outside, record)
    window, stride = (record["size"], record["size"]), record["stride"]
    sides = padding(get(record, "padding", 0))
    sides isa NTuple{4} || return kind(window; pad = sides, stride)
    return (x -> NNlib.pad_constant(x, sides, eltype(x)(outside); dims = (1, 2)), kind(window; stride))
end

"""
Mean pool that does not count padding; `pool` counts it.
"""
struct ImageMean{P}
    pool::P
end

(layer::ImageMean)(x) = layer.pool(x) ./ ignore_derivatives(() -> layer.pool(fill!(similar(x, size(x, 1), size(x, 2), 1, 1), 1)))

"""
Dropout with a mask that is set before each step, because the masks of different engines never agree. As in Flux, `nothing` makes it
active in a gradient only.
"""
mutable struct FixedMaskDropout
    mask::AbstractArray
    active::Union{Bool, Nothing}
end

FixedMaskDropout() = FixedMaskDropout(zeros(0), true)
Flux.@layer FixedMaskDropout trainable = ()

is_active(dropout::FixedMaskDropout, x) = dropout.active === nothing ? NNlib.within_gradient(x) : dropout.active
(dropout::FixedMaskDropout)(x) = is_active(dropout, x) ? x .* dropout.mask : x

function Flux.testmode!(dropout::FixedMaskDropout, mode = true)
    dropout.active = mode !== true
    return dropout
end

"""
    with_fixed_masks(records)

Return the records with `fixed_mask_dropout` in place of each dropout layer.
"""
with_fixed_masks(records::AbstractVector) = map(with_fixed_masks, records)
function with_fixed_masks(record::Record)
    record["type"] == "dropout" && return merge(record, Dict("type" => "fixed_mask_dropout"))
    return map_branches(with_fixed_masks, record)
end
