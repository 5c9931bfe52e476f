"""
Builds the parts of transformers, written as Flux's users write them: a sequence is (features, time, batch).
"""
layer(::Val{:positions}, _, tensors, _) = WithTensor(add_positions, tensors["weight"])
layer(::Val{:class_token}, _, tensors, _) = WithTensor(prepend_token, tensors["token"])
layer(::Val{:first_position}, _, _, _) = first_position
layer(::Val{:patches}, record, tensors, _) =
    Patches(Conv(tensors["weight"], get(tensors, "bias", false); stride = record["size"]))

# Flux stores a position's row as a column, which is the same in memory.
tensor_specs(::Val{:positions}, record) =
    [TensorSpec("weight", :tensor, (record["features"], record["length"]), :trained, false)]
tensor_specs(::Val{:class_token}, record) = [TensorSpec("token", :tensor, (record["features"],), :trained)]

function tensor_specs(::Val{:patches}, record)
    weight = TensorSpec("weight", [:conv, :weight], (record["size"], record["size"], record["inputs"], record["outputs"]), :trained)
    return has_bias(record) ? [weight, TensorSpec("bias", [:conv, :bias], (record["outputs"],), :trained)] : [weight]
end

const PROJECTIONS = ("query" => :q_proj, "key" => :k_proj, "value" => :v_proj, "output" => :out_proj)

function tensor_specs(::Val{:attention}, record)
    features = record["features"]
    parts = has_bias(record) ? (:weight => (features, features), :bias => (features,)) : (:weight => (features, features),)
    return [
        TensorSpec("$(name)_$part", [:attention, projection, part], size, :trained) for (part, size) in parts for
            (name, projection) in PROJECTIONS
    ]
end

function layer(::Val{:attention}, record, tensors, _)
    projections = (Dense(tensors["$(name)_weight"], get(tensors, "$(name)_bias", false)) for (name, _) in PROJECTIONS)
    q, k, v, output = projections
    # Flux's default, `Dropout(0.0)`, draws a random number for each score (NNlib 0.9.36, `rrule` of `dropout`).
    return SelfAttention(MultiHeadAttention(record["heads"], q, k, v, identity, output), record["causal"])
end

"""
Flux's `MultiHeadAttention` of a sequence with itself, without its second result, the scores. It calls
`NNlib.dot_product_attention`.
"""
struct SelfAttention{A}
    attention::A
    causal::Bool
end

Flux.@layer SelfAttention

(layer::SelfAttention)(x) = first(layer.attention(x; mask = layer.causal ? NNlib.make_causal_mask(x) : nothing))

"""A convolution whose outputs become a sequence, row by row."""
struct Patches{C}
    conv::C
end

Flux.@layer Patches

(patches::Patches)(x) = to_sequence(patches.conv(x))

# (width, height, features, batch) to (features, time, batch) and back
to_sequence(x) = permutedims(reshape(x, :, size(x, 3), size(x, 4)), (2, 1, 3))
from_sequence(x, width) = reshape(permutedims(x, (2, 1, 3)), width, :, size(x, 1), size(x, 3))

"""A function of one trained tensor and the input."""
struct WithTensor{F, T}
    compute::F
    tensor::T
end

Flux.@layer WithTensor trainable = (tensor,)

(layer::WithTensor)(x) = layer.compute(layer.tensor, x)

add_positions(table, x) = x .+ table[:, 1:size(x, 2)]
prepend_token(token, x) = hcat(token .* ignore_derivatives(() -> fill!(similar(x, 1, 1, size(x, 3)), 1)), x)
first_position(x) = x[:, 1, :]

"""Multiply each position with the table of an embedding, whose tokens are its columns."""
multiply_table(table, x) = reshape(transpose(table) * reshape(x, size(x, 1), :), :, size(x)[2:end]...)

"""
    mark_tables(records)

Return the records with `table` in each dense layer that uses the weight of an embedding or of positions.
"""
function mark_tables(records)
    tables = Set(record["name"] for record in walk(records) if record["type"] in ("embedding", "positions"))
    return mark_tables(records, tables)
end
mark_tables(records::AbstractVector, tables) = Record[mark_tables(record, tables) for record in records]
function mark_tables(record::Record, tables)
    get(record, "tied", nothing) in tables && return merge(record, Dict("table" => true))
    return map_branches(records -> mark_tables(records, tables), record)
end

is_table(record::Record) = get(record, "table", false)

"""A layer whose weights are constants, so that their gradients are never computed; see `ConstantCell`."""
struct ConstantLayer{L}
    layer::L
end

(constant::ConstantLayer)(x) = ignore_derivatives(constant.layer)(x)

function with_constant_weights(layer::SelfAttention)
    inner = layer.attention
    q, k, v, output = map(ConstantLayer, (inner.q_proj, inner.k_proj, inner.v_proj, inner.out_proj))
    return SelfAttention(MultiHeadAttention(inner.nheads, q, k, v, inner.attn_drop, output), layer.causal)
end
