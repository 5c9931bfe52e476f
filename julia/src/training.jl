"""
What runs training steps, times blocks of steps, and computes what the parity check compares.
"""
abstract type AbstractTrainer end

"""
A network with its optimizer on a device.
"""
mutable struct Trainer{D <: Device, N <: Network, M, S, T <: AbstractFloat, W <: StepMode} <: AbstractTrainer
    const device::D
    const network::N
    "The network's chain, wrapped for differentiation in this mode."
    const model::M
    const rule::AbstractRule
    const initial_rate::Float64
    const initial::Vector{AbstractArray{T}}
    const mode::W
    state::S
    rate::Float64
    loss::T
    "The last logits of a forward pass, on the device."
    logits::Any
    "Seconds of garbage collection that are not part of any step, in the mode `gc_off`."
    excluded_gc_seconds::Float64
end

"""
    Trainer(device, T, records, weights; optimizer = "momentum", learning_rate, mode = StepMode(), settings...)

Build a network of element type `T` from canonical initial `weights` and running statistics, and its optimizer from a name and
settings of `rule`.
"""
function Trainer(
        device::Device, ::Type{T}, records, weights; optimizer = "momentum", learning_rate, mode = StepMode(), settings...,
    ) where {T}
    # `to_device` moves the whole chain at once.
    built = network(records, Dict(name => convert(Array{T}, array) for (name, array) in weights))
    device = device_for(mode, device)
    placed = Network(to_device(device, built.chain), built.locations)
    initial = AbstractArray{T}[copy(array) for (_, array) in tensors(placed)]
    rate = Float64(learning_rate)
    update = rule(optimizer; learning_rate, settings...)
    is_forward_pass(mode) && Flux.testmode!(placed.chain)
    model = prepare_model(mode, placed.chain)
    state = initial_state(mode, update, model)
    return Trainer(device, placed, model, update, rate, initial, mode, state, rate, T(NaN), nothing, 0.0)
end

"""
    reset!(trainer, seed = 0)

Restore initial weights, running statistics and optimizer state. Dropout draws the masks of this seed.
"""
function reset!(trainer::Trainer, seed::Int = 0)
    for ((_, array), initial) in zip(tensors(trainer.network), trainer.initial)
        copyto!(array, initial)
    end
    seed!(trainer.device, seed)
    trainer.state = initial_state(trainer.mode, trainer.rule, trainer.model)
    trainer.rate = trainer.initial_rate
    return nothing
end

"""
    set_rate!(trainer, rate)

Set the learning rate from the next step on, if it differs from the current one.
"""
function set_rate!(trainer::Trainer, rate::Real)
    rate == trainer.rate && return nothing
    change_rate!(trainer.state, trainer.rate, rate)
    trainer.rate = rate
    return nothing
end

"""
    set_masks!(trainer, masks)

Set the masks of dropout layers by name, in Flux's layout, for the next step.
"""
set_masks!(trainer::Trainer, masks) = set_masks!(trainer.network, masks)

"""
    run_steps!(trainer, batches, first, n)

Train on batches `first`, `first + 1`, ... (from 0, cyclic), and return the seconds of the steps. The last loss is then in
`trainer.loss`. A forward pass only computes their logits; the last ones are then in `trainer.logits`.
"""
function run_steps!(
        trainer::Trainer{D, N, M, S, T, W}, batches::AbstractVector{<:Batch}, first::Int, n::Int,
    ) where {D, N, M, S, T, W}
    count = length(batches)
    chosen = (batches[step % count + 1] for step in first:(first + n - 1))
    forward = is_forward_pass(trainer.mode) ? unwrap(trainer.model) : nothing
    disable_gc(trainer.mode)
    synchronize(trainer.device)
    start = time_ns()
    if is_forward_pass(trainer.mode)
        trainer.logits = forward!(trainer.mode, forward, chosen)
    else
        trainer.loss = train!(trainer.mode, trainer.model, trainer.state, chosen, trainer.loss)::T
    end
    synchronize(trainer.device)
    seconds = (time_ns() - start) / 1.0e9
    trainer.excluded_gc_seconds += enable_gc(trainer.mode)
    return seconds
end

"""
    loss_and_gradients(trainer, batches, step)

Return the loss of one batch, and the gradients in the order of `parameters`, without changing the trainer.
"""
function loss_and_gradients(trainer::Trainer, batches::AbstractVector{<:Batch}, step::Int)
    batch = batches[step % length(batches) + 1]
    running = [array => copy(array) for (_, array) in tensors(trainer.network, :state)]
    loss, gradient = with_gradient(trainer.mode, trainer.model, batch.images, targets(trainer.mode, batch.labels))
    for (array, before) in running  # the forward pass has changed them
        copyto!(array, before)
    end
    return loss, named_gradients(trainer.network, gradient)
end

"""
    inference_logits(trainer, images)

Compute the logits (classes, batch) of images, or (classes, time, batch) of sequences, in inference mode.
"""
function inference_logits(trainer::Trainer, images::Array)
    chain = Flux.testmode!(trainer.network.chain)
    logits = infer(trainer.device, trainer.model, to_device(trainer.device, input(typeof(trainer.loss), images)))
    Flux.testmode!(chain, test_mode(trainer.mode))
    return logits
end

"""
    last_loss(trainer)

Return the loss of the last step.
"""
last_loss(trainer::AbstractTrainer) = Float64(trainer.loss)

device_peak_bytes(trainer::AbstractTrainer) = device_peak_bytes(trainer.device)
device_bytes_in_use(trainer::AbstractTrainer) = device_bytes_in_use(trainer.device)
device_reserved_bytes(trainer::AbstractTrainer) = device_reserved_bytes(trainer.device)
