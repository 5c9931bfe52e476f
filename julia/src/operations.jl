"""
A timed operation of a layer or of a step, such as a layer's forward pass or one of its gradients.

Gradients are those of a training step. Flux's `Conv` and `Dense` are a product, followed by bias and activation in one
pass (`NNlib.bias_act!`), each with its own rule. The product's rule returns the gradients of input and weights as
thunks, and Zygote forces both; here each is forced separately.
"""
struct TimedOperation{F, D <: Device}
    name::String
    compute::F
    device::D
    "Its last result during timing, so that the compiler cannot remove the computation."
    result::Base.RefValue{Any}
end

TimedOperation(name, compute, device) = TimedOperation(name, compute, device, Ref{Any}())

"""
    seconds(operation, n)

Run the operation `n` times, and return the total seconds.
"""
function seconds(operation::TimedOperation, n::Int)
    synchronize(operation.device)
    start = time_ns()
    for _ in 1:n
        operation.result[] = operation.compute()
    end
    synchronize(operation.device)
    elapsed = (time_ns() - start) / 1.0e9
    operation.result[] = nothing  # a pullback retains a layer's arrays, which would affect the timing of whole steps
    return elapsed
end

"""
    forward_operation(device, layer, x)

Return the operation `forward` of a layer.
"""
forward_operation(device::Device, layer, x) = TimedOperation("forward", () -> layer(x), device)

"""
    layer_operations(device, whole, linear, x, dy, required)

Return the operations of a layer: `forward`, the gradients in `required`, and `activation` if it has one. `linear` is the layer without
its activation, `x` its input, and `dy` the gradient of its output, in Flux's layout.
"""
function layer_operations(device::Device, whole, linear, x, dy, required)
    forward = TimedOperation("forward", () -> Zygote.pullback(apply, whole, x), device)
    whole === linear && return [forward; gradient_operations(device, linear, x, dy, required)]
    z, _ = Zygote.pullback(apply, linear, x)  # as in training, where batch norm is another function
    back = activation_pullback(z, activation(whole))
    return [
        forward
        TimedOperation("activation", () -> back(dy), device)
        gradient_operations(device, linear, x, back(dy), required)
    ]
end

gradient_operations(device, layer, x, dy, required) =
    TimedOperation[TimedOperation(name, compute, device) for (name, compute) in gradients(layer, x, dy, required)]

apply(layer, x) = layer(x)

activation(::Any) = Flux.relu
activation(layer::Union{Conv, Dense}) = layer.σ

"""
    activation_pullback(z, σ = relu)

Return the pullback of an activation after `z`, by the rule of Flux's layers.
"""
function activation_pullback(z, σ = Flux.relu)
    _, back = rrule(Zygote.ZygoteRuleConfig(), NNlib.bias_act!, σ, copy(z), false)
    return dy -> unthunk(back(dy)[3])
end

"""
    gradients(layer, x, dy, required)

Return `name => compute` for each gradient in `required`: separate gradients for convolutions and products, a joint gradient for other
layers. The input gradient of an LSTM or of attention excludes the weight gradients, but the weight gradient includes the input
gradient, because both need the backward pass through time or scores; polybench subtracts the former from the latter.
"""
gradients(layer::Conv, x, dy, required) =
    product_gradients(rrule(NNlib.conv, x, layer.weight, Flux.conv_dims(layer, x))..., layer, dy, (2, 3), required)

# Flux's `Dense` also makes a matrix of a sequence.
function gradients(layer::Dense, x, dy, required)
    columns, column_gradients = map(array -> reshape(array, size(array, 1), :), (x, dy))
    return product_gradients(rrule(*, layer.weight, columns)..., layer, column_gradients, (3, 2), required)
end

# A convolution whose outputs become a sequence.
function gradients(chain::Chain{<:Tuple{Conv, Function}}, x, dy, required)
    layer, change = chain.layers
    _, back = Zygote.pullback(change, layer(x))
    return gradients(layer, x, only(back(dy)), required)
end

function gradients(layer, x, dy, required)
    _, back = Zygote.pullback(apply, layer, x)
    issubset(("input gradient", "weight gradient"), required) || return [name => (() -> back(dy)) for name in required]
    _, input_pullback = Zygote.pullback(apply, with_constant_weights(layer), x)
    return ["input gradient" => () -> last(input_pullback(dy)), "weight gradient" => () -> back(dy)]
end

"""
    product_gradients(y, back, layer, dy, (input_index, weight_index), required)

Return the gradients of the product `y`, whose pullback `back` has the gradients of input and weight at these indices.
"""
function product_gradients(y, back, layer, dy, (input_index, weight_index), required)
    rule = rrule(Zygote.ZygoteRuleConfig(), NNlib.bias_act!, identity, copy(y), shaped_bias(layer))
    bias_pullback = last(rule)
    found = Pair{String, Any}[]
    "input gradient" in required && push!(found, "input gradient" => () -> unthunk(back(dy)[input_index]))
    "weight gradient" in required &&
        push!(found, "weight gradient" => () -> (unthunk(back(dy)[weight_index]), unthunk(bias_pullback(dy)[4])))
    return found
end

shaped_bias(layer::Conv) = Flux.conv_reshape_bias(layer)
shaped_bias(layer::Dense) = layer.bias

"""
    with_constant_weights(layer)

Return the layer with constant weights of LSTMs and of attention, so that only its input gradient is computed.
"""
with_constant_weights(layer) = Flux.fmap(constant, layer; exclude = one -> one isa Union{LSTM, MultiHeadAttention})

constant(layer) = layer
constant(lstm::LSTM) = Flux.Recurrence(ConstantCell(lstm.cell))
function constant(layer::MultiHeadAttention)
    q, k, v, output = map(ConstantLayer, (layer.q_proj, layer.k_proj, layer.v_proj, layer.out_proj))
    return MultiHeadAttention(layer.nheads, q, k, v, layer.attn_drop, output)
end

"""A layer whose weights are constants, so that their gradients are never computed; see `ConstantCell`."""
struct ConstantLayer{L}
    layer::L
end

(constant::ConstantLayer)(x) = ignore_derivatives(constant.layer)(x)

"""An `LSTMCell` without weight gradients: their products are thunks that are never forced."""
struct ConstantCell{C <: LSTMCell}
    cell::C
end

Flux.initialstates(constant::ConstantCell) = Flux.initialstates(constant.cell)

# Per time step, because summing a weight's gradients over several time steps would force them.
(constant::ConstantCell)(x, state) = ignore_derivatives(constant.cell)(x, state)
