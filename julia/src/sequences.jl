"""
Builds the layers for sequences, written as Flux's users write them: tokens (time, batch), counted from 1; features (features,
time, batch). Flux's gates are in the canonical order, and its single bias is that of the inputs.
"""
layer(::Val{:embedding}, _, tensors, _) = Embedding(tensors["weight"])
layer(::Val{:mean_over_time}, _, _, _) = mean_over_time

mean_over_time(x) = dropdims(mean(x; dims = 2); dims = 2)
last_output(x) = x[:, end, :]

"""
    layer(Val(:lstm), record, tensors, activation)

Build one `LSTM` per direction, and the selection of the last output if the record requests it.
"""
function layer(::Val{:lstm}, record, tensors, _)
    lstms = [
        LSTM(LSTMCell((tensors[prefix * name] for (name, _, _) in lstm_tensors(record))...)) for
            (prefix, _) in lstm_directions(record)
    ]
    record["bidirectional"] && return Bidirectional(lstms..., record["sequence"] ? identity : last_output)
    return record["sequence"] ? only(lstms) : (only(lstms), last_output)
end

"""
    lstm_directions(record)

Return name prefix => path of the `LSTM` for each direction.
"""
lstm_directions(record) = record["bidirectional"] ? ["" => [:forward], "reverse_" => [:backward]] : ["" => Symbol[]]

"""
    lstm_tensors(record)

Return (canonical name, field of Flux's `LSTMCell`, canonical size) in the order of the fields.
"""
function lstm_tensors(record)
    rows = 4 * record["units"]
    return [("weight", :Wi, (record["inputs"], rows)), ("recurrent", :Wh, (record["units"], rows)), ("bias", :bias, (rows,))]
end

"""
Two layers for sequences; `backward` reads from the end. `output` selects from both sequences.
"""
struct Bidirectional{F, B, T}
    forward::F
    backward::B
    output::T
end

Flux.@layer Bidirectional trainable = (forward, backward)

(both::Bidirectional)(x) = join_outputs(both.output, both.forward(x), both.backward(reverse(x; dims = 2)))

"""
An `LSTMCell` without weight gradients: their products are thunks that are never forced.
"""
struct ConstantCell{C <: LSTMCell}
    cell::C
end

Flux.initialstates(constant::ConstantCell) = Flux.initialstates(constant.cell)

# Per time step, because summing a weight's gradients over several time steps would force them.
(constant::ConstantCell)(x, state) = ignore_derivatives(constant.cell)(x, state)

"""
    with_constant_weights(layer)

Return the layer with constant LSTM weights, so that only its input gradient is computed.
"""
with_constant_weights(lstm::LSTM) = Flux.Recurrence(ConstantCell(lstm.cell))
with_constant_weights(both::Bidirectional) =
    Bidirectional(with_constant_weights(both.forward), with_constant_weights(both.backward), both.output)
with_constant_weights(chain::Chain) = Chain(map(with_constant_weights, chain.layers))
with_constant_weights(layer) = layer

# The backward layer's last output belongs to the beginning of the sequence.
join_outputs(::typeof(identity), forwards, backwards) = vcat(forwards, reverse(backwards; dims = 2))
join_outputs(::typeof(last_output), forwards, backwards) = vcat(last_output(forwards), last_output(backwards))
