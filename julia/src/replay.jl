"""
One layer alone: its forward pass and each of its gradients, to be timed.

Gradients are those of a training step. Flux's `Conv` and `Dense` are a product, and then bias and activation in one
pass (`NNlib.bias_act!`), each with a rule of its own: the rule of the product gives the gradients of data and weights as
thunks, and Zygote forces both; here each is forced alone.
"""
struct Replayed{F, D <: Device}
    name::String
    compute::F
    device::D
    "What was computed last, while it is timed: nothing that nobody reads may be left out."
    result::Base.RefValue{Any}
end

Replayed(name, compute, device) = Replayed(name, compute, device, Ref{Any}())

"""
    seconds(part, n)

Compute it `n` times, and return the seconds of all.
"""
function seconds(part::Replayed, n::Int)
    synchronize(part.device)
    start = time_ns()
    for _ in 1:n
        part.result[] = part.compute()
    end
    synchronize(part.device)
    took = (time_ns() - start) / 1.0e9
    part.result[] = nothing  # a pullback holds all that its layer has kept: whole steps would be timed beside it
    return took
end

"""
    layer_parts(device, T, records, weights, x, dy, wanted)

The parts of a layer: `forward`, the gradients in `wanted`, `activation` if it has one. `records` are the
layer's and then its ReLU's; `x` is its input and `dy` the gradient of its output, in Flux's layout.
"""
function layer_parts(device::Device, ::Type{T}, records, weights, x, dy, wanted) where {T}
    typed = Dict(name => convert(Array{T}, array) for (name, array) in weights)
    made(some) = place(device, alone(network(some, typed).chain))
    linear = made(records[1:1])
    whole = length(records) > 1 ? made(records) : linear
    # Nothing that a closure captures is assigned twice: it would have no type in there.
    return layer_parts(device, whole, linear, place(device, x), place(device, dy), wanted)
end

function layer_parts(device::Device, whole, linear, x, dy, wanted)
    forward = Replayed("forward", () -> Zygote.pullback(apply, whole, x), device)
    whole === linear && return [forward; gradient_parts(device, linear, x, dy, wanted)]
    z, _ = Zygote.pullback(apply, linear, x)  # as in training, where batch norm is another function
    back = activation_pullback(z, activation(whole))
    return [
        forward
        Replayed("activation", () -> back(dy), device)
        gradient_parts(device, linear, x, back(dy), wanted)
    ]
end

gradient_parts(device, layer, x, dy, wanted) =
    Replayed[Replayed(name, compute, device) for (name, compute) in gradients(layer, x, dy, wanted)]

apply(layer, x) = layer(x)

"""A layer without a chain around it."""
alone(chain::Chain) = length(chain) == 1 ? only(chain.layers) : chain

activation(::Any) = Flux.relu
activation(layer::Union{Conv, Dense}) = layer.σ

"""
    activation_pullback(z, σ = relu)

The gradient through an activation behind `z`, by the rule that Flux's layers have for it.
"""
function activation_pullback(z, σ = Flux.relu)
    _, back = rrule(Zygote.ZygoteRuleConfig(), NNlib.bias_act!, σ, copy(z), false)
    return dy -> unthunk(back(dy)[3])
end

"""
    gradients(layer, x, dy, wanted)

`name => compute` for each gradient in `wanted`: those of a convolution or a product each alone; of others together. Of an
LSTM `data gradient` is without the weights' and `weight gradient` with the data's: both need the way back through time,
and polybench takes the first off the second.
"""
gradients(layer::Conv, x, dy, wanted) =
    of_product(rrule(NNlib.conv, x, layer.weight, Flux.conv_dims(layer, x))..., layer, dy, (2, 3), wanted)
gradients(layer::Dense, x, dy, wanted) = of_product(rrule(*, layer.weight, x)..., layer, dy, (3, 2), wanted)

function gradients(layer, x, dy, wanted)
    _, back = Zygote.pullback(apply, layer, x)
    issubset(("data gradient", "weight gradient"), wanted) || return [name => (() -> back(dy)) for name in wanted]
    _, of_data = Zygote.pullback(apply, with_constant_weights(layer), x)
    return ["data gradient" => () -> last(of_data(dy)), "weight gradient" => () -> back(dy)]
end

"""
    of_product(y, back, layer, dy, (data, weight), wanted)

The gradients of the product `y` with the pullback `back`, which gives those of data and weight at these places.
"""
function of_product(y, back, layer, dy, (data, weight), wanted)
    rule = rrule(Zygote.ZygoteRuleConfig(), NNlib.bias_act!, identity, copy(y), shaped_bias(layer))
    of_bias = last(rule)
    found = Pair{String, Any}[]
    "data gradient" in wanted && push!(found, "data gradient" => () -> unthunk(back(dy)[data]))
    "weight gradient" in wanted &&
        push!(found, "weight gradient" => () -> (unthunk(back(dy)[weight]), unthunk(of_bias(dy)[4])))
    return found
end

shaped_bias(layer::Conv) = Flux.conv_reshape_bias(layer)
shaped_bias(layer::Dense) = layer.bias

"""
    step_parts(trainer, batches)

The parts of a training step that belong to no layer: `loss` with its gradient, `update`, and a `call` of nothing.
"""
function step_parts(trainer::Trainer, batches)
    batch, model = batches[1], trainer.network.chain
    logits, labels = model(batch.images), batch.labels
    grads = Flux.gradient(m -> Flux.logitcrossentropy(m(batch.images), labels), model)[1]
    return Replayed[
        Replayed("loss", () -> Flux.withgradient(y -> Flux.logitcrossentropy(y, labels), logits), trainer.device),
        Replayed("update", () -> Flux.update!(trainer.state, model, grads), trainer.device),
        Replayed("call", () -> nothing, trainer.device),
    ]
end
