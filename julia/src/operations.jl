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
    layer_operations(device, T, records, weights, x, dy, required)

Return the operations of a layer: `forward`, the gradients in `required`, and `activation` if it has one. `records` are the
layer's and its ReLU's; `x` is its input and `dy` the gradient of its output, in Flux's layout.
"""
function layer_operations(device::Device, ::Type{T}, records, weights, x, dy, required) where {T}
    linear = build_layer(device, T, records[1:1], weights)
    whole = length(records) > 1 ? build_layer(device, T, records, weights) : linear
    # Closures capture only variables that are assigned once; others would have no concrete type there.
    return layer_operations(device, whole, linear, to_device(device, x), to_device(device, dy), required)
end

function build_layer(device::Device, ::Type{T}, records, weights) where {T}
    typed = Dict(name => convert(Array{T}, array) for (name, array) in weights)
    return to_device(device, without_chain(network(records, typed).chain))
end

"""
    forward_operation(device, T, records, weights, x)

Return the operation `forward` of a layer in inference mode.
"""
forward_operation(device::Device, ::Type{T}, records, weights, x) where {T} =
    forward_operation(device, Flux.testmode!(build_layer(device, T, records, weights)), to_device(device, x))

forward_operation(device::Device, layer, x) = TimedOperation("forward", () -> layer(x), device)

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

"""Unwrap a chain of one layer."""
without_chain(chain::Chain) = length(chain) == 1 ? only(chain.layers) : chain

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

gradients(layer::Patches, x, dy, required) =
    gradients(layer.conv, x, from_sequence(dy, size(x, 1) ÷ first(layer.conv.stride)), required)

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
    step_operations(trainer, batches)

Return the operations of a training step outside of layers: `loss` with its gradient, `update`, and `call`, an empty call.
"""
function step_operations(trainer::Trainer, batches)
    batch, model, mode = batches[1], trainer.network.chain, trainer.mode
    logits, labels = model(batch.images), targets(mode, batch.labels)
    grads = Flux.gradient(m -> Flux.logitcrossentropy(m(batch.images), labels), model)[1]
    return TimedOperation[
        TimedOperation("loss", () -> Flux.withgradient(y -> Flux.logitcrossentropy(y, labels), logits), trainer.device),
        TimedOperation("update", () -> Flux.update!(trainer.state, model, clip(mode, trainer.state, grads)), trainer.device),
        TimedOperation("call", () -> nothing, trainer.device),
    ]
end
