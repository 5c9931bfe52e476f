"""
The training: one step, the timed block of steps, and what the parity check looks at.
"""
mutable struct Trainer{D <: Device, N <: Network, M, S, T <: AbstractFloat, W <: Way}
    const device::D
    const network::N
    "The network's chain, as the way takes gradients of it."
    const model::M
    const rule::AbstractRule
    const initial_rate::Float64
    const initial::Vector{AbstractArray{T}}
    const way::W
    state::S
    rate::Float64
    loss::T
    "Seconds of the collector that belong to no step, where it was kept out of them."
    aside::Float64
end

"""
    Trainer(device, T, records, weights; optimizer = "momentum", learning_rate, way = Way(), settings...)

A network of element type `T` with canonical initial `weights` and running statistics, and its optimizer: a name and
settings of `rule`.
"""
function Trainer(
        device::Device, ::Type{T}, records, weights; optimizer = "momentum", learning_rate, way = Way(), settings...,
    ) where {T}
    # Once, after any number of layers: `place` moves the whole chain.
    made = network(records, Dict(name => convert(Array{T}, array) for (name, array) in weights))
    device = made_for(way, device)
    placed = Network(place(device, made.chain), made.places)
    initial = AbstractArray{T}[copy(array) for (_, array) in tensors(placed)]
    rate = Float64(learning_rate)
    update = rule(optimizer; learning_rate, settings...)
    model = differentiable(way, placed.chain)
    state = fresh_state(way, update, model)
    return Trainer(device, placed, model, update, rate, initial, way, state, rate, T(NaN), 0.0)
end

"""
    reset!(trainer, seed = 0)

Initial weights and running statistics, zero optimizer state; dropout draws the masks of this seed.
"""
function reset!(trainer::Trainer, seed::Int = 0)
    for ((_, array), initial) in zip(tensors(trainer.network), trainer.initial)
        copyto!(array, initial)
    end
    seed!(trainer.device, seed)
    trainer.state = fresh_state(trainer.way, trainer.rule, trainer.model)
    trainer.rate = trainer.initial_rate
    return nothing
end

"""
    set_rate!(trainer, rate)

The learning rate from the next step on; nothing is done where it is the rate already.
"""
function set_rate!(trainer::Trainer, rate::Real)
    rate == trainer.rate && return nothing
    change_rate!(trainer.state, trainer.rate, rate)
    trainer.rate = rate
    return nothing
end

"""
    run_steps!(trainer, batches, first, n)

Train on batches `first`, `first + 1`, ... (from 0, and again from the first after the last).
Returns the seconds of the steps; the loss of the last one is then in `trainer.loss`.
"""
run_steps!(trainer::Trainer, batches::AbstractVector{<:Batch}, first::Int, n::Int) =
    around_steps(() -> timed_steps!(trainer, batches, first, n), trainer)

"""
    around_steps(f, trainer)

`f()`, which makes steps and may measure them: what is moved before and after them is in no measurement.
"""
function around_steps(f, trainer::Trainer)
    before_steps!(trainer.model)
    result = f()
    after_steps!(trainer.model)
    return result
end

"""
    timed_steps!(trainer, batches, first, n)

The hot loop of `run_steps!`, inside of `around_steps`.
"""
function timed_steps!(
        trainer::Trainer{D, N, M, S, T, W}, batches::AbstractVector{<:Batch}, first::Int, n::Int,
    ) where {D, N, M, S, T, W}
    count = length(batches)
    chosen = (batches[step % count + 1] for step in first:(first + n - 1))
    hold(trainer.way)
    synchronize(trainer.device)
    start = time_ns()
    loss = train!(trainer.way, trainer.model, trainer.state, chosen, trainer.loss)::T
    synchronize(trainer.device)
    seconds = (time_ns() - start) / 1.0e9
    trainer.aside += release(trainer.way)
    trainer.loss = loss
    return seconds
end

"""
    loss_and_gradients(trainer, batches, step)

The loss of one batch, and the gradient for every weight, as `parameters` gives them; changes nothing.
"""
function loss_and_gradients(trainer::Trainer, batches::AbstractVector{<:Batch}, step::Int)
    batch = batches[step % length(batches) + 1]
    running = [array => copy(array) for (_, array) in tensors(trainer.network, :state)]
    before_steps!(trainer.model)
    loss, gradient = with_gradient(trainer.way, trainer.model, batch.images, batch.labels)
    for (array, before) in running  # the forward pass has moved them
        copyto!(array, before)
    end
    return loss, parameters(trainer.network, gradient)
end

"""
    correct(trainer, images, labels)

How many of the images, or sequences, of a batch are classified as their labels, from 0, say; as at inference.
"""
function correct(trainer::Trainer, images::Array, labels::AbstractVector{<:Integer})
    chain = Flux.testmode!(trainer.network.chain)
    before_steps!(trainer.model)
    logits = infer(trainer.device, trainer.model, place(trainer.device, input(typeof(trainer.loss), images)))
    Flux.testmode!(chain, test_mode(trainer.way))
    return count(argmax(column) - 1 == label for (column, label) in zip(eachcol(logits), labels))
end
