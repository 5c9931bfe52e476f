"""
The training: one step, the timed block of steps, and what the parity check looks at.

The optimizer is Flux's own `Momentum`, v <- mu v + lr g and w <- w - v: as long as the rate does not change, v is lr
times the velocity of the canonical formula v <- mu v + g, w <- w - lr v, so the weights are the same.
"""
mutable struct Trainer{D<:Device,N<:Network,S,T<:AbstractFloat}
    const device::D
    const network::N
    const rule::Flux.Momentum
    const initial::Vector{AbstractArray{T}}
    state::S
    loss::T
end

"""    Trainer(device, T, records, weights; learning_rate, momentum)

A network of element type `T` with canonical initial `weights` and running statistics, and its optimizer.
"""
function Trainer(device::Device, ::Type{T}, records, weights; learning_rate, momentum) where {T}
    # Once, after any number of layers: `place` moves the whole chain.
    made = network(records, Dict(name => convert(Array{T}, array) for (name, array) in weights))
    placed = Network(place(device, made.chain), made.places)
    rule = Flux.Momentum(Float64(learning_rate), Float64(momentum))
    initial = AbstractArray{T}[copy(array) for (_, array) in everything(placed)]
    return Trainer(device, placed, rule, initial, Flux.setup(rule, placed.chain), T(NaN))
end

"""    reset!(trainer, seed = 0)

Initial weights and running statistics, zero optimizer state; dropout draws the masks of this seed.
"""
function reset!(trainer::Trainer, seed::Int = 0)
    for ((_, array), initial) in zip(everything(trainer.network), trainer.initial)
        copyto!(array, initial)
    end
    seed!(trainer.device, seed)
    trainer.state = Flux.setup(trainer.rule, trainer.network.chain)
    return nothing
end

"""    train_step!(model, state, batch)

One step; its loss, before the update.
"""
function train_step!(model, state, batch)
    images, labels = batch.images, batch.labels
    loss, gradients = Flux.withgradient(m -> Flux.logitcrossentropy(m(images), labels), model)
    Flux.update!(state, model, gradients[1])
    return loss
end

"""    run_steps!(trainer, batches, first, n)

Train on batches `first`, `first + 1`, ... (from 0, and again from the first after the last): the hot loop.
Returns its seconds; the loss of the last step is then in `trainer.loss`.
"""
function run_steps!(
    trainer::Trainer{D,N,S,T}, batches::Vector{<:Batch}, first::Int, n::Int,
) where {D,N,S,T}
    model, state, count = trainer.network.chain, trainer.state, length(batches)
    loss = trainer.loss
    synchronize(trainer.device)
    start = time_ns()
    for step in first:(first + n - 1)
        # Zygote's gradient is not inferred, for no user of Flux; the loop around it is.
        loss = train_step!(model, state, batches[step % count + 1])::T
    end
    synchronize(trainer.device)
    seconds = (time_ns() - start) / 1e9
    trainer.loss = loss
    return seconds
end

"""    loss_and_gradients(trainer, batches, step)

The loss of one batch, and the gradient for every weight, as `parameters` gives them; changes nothing.
"""
function loss_and_gradients(trainer::Trainer, batches::Vector{<:Batch}, step::Int)
    batch = batches[step % length(batches) + 1]
    images, labels = batch.images, batch.labels
    running = [array => copy(array) for (_, array) in tensors(trainer.network, :state)]
    loss, gradients =
        Flux.withgradient(m -> Flux.logitcrossentropy(m(images), labels), trainer.network.chain)
    for (array, before) in running  # the forward pass has moved them
        copyto!(array, before)
    end
    return loss, parameters(trainer.network, gradients[1])
end
