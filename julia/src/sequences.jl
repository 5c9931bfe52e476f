"""
The layers of sequences, written as Flux's users write them: tokens (time, batch), counted from 1; features (features,
time, batch). Flux's gates come in the canonical order, and its one bias is that of the inputs.
"""
layer(::Val{:embedding}, _, tensors, _) = Embedding(tensors["weight"])
layer(::Val{:mean_over_time}, _, _, _) = mean_over_time

mean_over_time(x) = dropdims(mean(x; dims = 2); dims = 2)
last_output(x) = x[:, end, :]

"""
    layer(Val(:lstm), record, tensors, activation)

One `LSTM` for each direction, and what takes the last output of a sequence where that is wanted.
"""
function layer(::Val{:lstm}, record, tensors, _)
    cells = [
        LSTM(LSTMCell((tensors[prefix * name] for (name, _, _) in lstm_tensors(record))...)) for
            (prefix, _) in lstm_directions(record)
    ]
    record["bidirectional"] && return Bidirectional(cells..., record["sequence"] ? identity : last_output)
    return record["sequence"] ? only(cells) : (only(cells), last_output)
end

"""
    lstm_directions(record)

What the names of each direction's tensors begin with => the field that leads to its `LSTM`.
"""
lstm_directions(record) = record["bidirectional"] ? ["" => [:forward], "reverse_" => [:backward]] : ["" => Symbol[]]

"""
    lstm_tensors(record)

(canonical name, field of Flux's `LSTMCell`, canonical size), in the order of the fields.
"""
function lstm_tensors(record)
    rows = 4 * record["units"]
    return [("weight", :Wi, (record["inputs"], rows)), ("recurrent", :Wh, (record["units"], rows)), ("bias", :bias, (rows,))]
end

"""
Two layers for sequences, of which one reads from the end. What comes out of both, for each time, is `taken`.
"""
struct Bidirectional{F, B, T}
    forward::F
    backward::B
    taken::T
end

Flux.@layer Bidirectional trainable = (forward, backward)

(both::Bidirectional)(x) = joined(both.taken, both.forward(x), both.backward(reverse(x; dims = 2)))

"""
An `LSTMCell` of whose weights no gradient is taken: the products that it takes are thunks, which nobody forces.
"""
struct ConstantCell{C <: LSTMCell}
    cell::C
end

Flux.initialstates(constant::ConstantCell) = Flux.initialstates(constant.cell)

# Once a step of time: what several times give to a weight would be forced to be added up.
(constant::ConstantCell)(x, state) = ignore_derivatives(constant.cell)(x, state)

"""
    with_constant_weights(layer)

The layer, whatever is around its LSTMs, of which only the gradient of the data is computed.
"""
with_constant_weights(lstm::LSTM) = Flux.Recurrence(ConstantCell(lstm.cell))
with_constant_weights(both::Bidirectional) =
    Bidirectional(with_constant_weights(both.forward), with_constant_weights(both.backward), both.taken)
with_constant_weights(chain::Chain) = Chain(map(with_constant_weights, chain.layers))
with_constant_weights(layer) = layer

# The second one's last output is the one at the beginning of the sequence.
joined(::typeof(identity), forwards, backwards) = vcat(forwards, reverse(backwards; dims = 2))
joined(::typeof(last_output), forwards, backwards) = vcat(last_output(forwards), last_output(backwards))
