"""
A program that polybench prints (`emitter.py` in `polybench/engines/flux` and its folder `lux`) and runs here: a module with the
functions `setup`, `reset!`, `load`, `tensors`, `weights`, and `compute_loss` with `train_step!` or `train_steps!`, or `forward_pass`.
Its arrays by name have the canonical layout, that of Python with the axes reversed.
"""
mutable struct ProgramTrainer{D <: Device, F, S, M, T <: AbstractFloat, W <: StepMode}
    const device::D
    const program::Module
    "The program's `train_step!`, `train_steps!` or `forward_pass`."
    const step::F
    state::S
    "The names of all arrays: trained tensors, then running statistics."
    const names::Vector{String}
    const initial::Dict{String, Array{T}}
    const mode::W
    "The masks of dropout layers by name, which are a part of each batch; nothing if the program does not take them."
    const masks::M
    loss::T
    "The last logits of a forward pass."
    logits::Any
    "Seconds of garbage collection that are not part of any step, in the mode `gc_off`."
    excluded_gc_seconds::Float64
end

"""
    ProgramTrainer(program, mode, names)

Set up the training of a program, with its own initial weights. The mode selects its function and the garbage collection.
"""
function ProgramTrainer(program::Module, mode::StepMode, names::Vector{String})
    T, state, device = program.DTYPE, program.setup(), device_for(mode, PolyBench.device(program.DEVICE))
    masks = isdefined(program, :set_masks!) ? Dict{String, AbstractArray{T}}() : nothing
    initial = Dict{String, Array{T}}(program.weights(state))
    return ProgramTrainer(device, program, step_function(program, mode), state, names, initial, mode, masks, T(NaN), nothing, 0.0)
end

"""
    ProgramTrainer(program, names, initial)

Set up a user's program, which may lack `reset!`, `weights`, `tensors` and `compute_loss`, and whose `load` may return anything.
"""
function ProgramTrainer(program::Module, names::Vector{String}, initial::Dict{String, Array{T}}) where {T}
    train_step! = program.train_step!
    step(state, batch) = T(train_step!(state, batch))
    state = begin_training(program, initial)
    return ProgramTrainer(CPU(), program, step, state, names, initial, StepMode(), OWN_BATCHES, T(NaN), nothing, 0.0)
end

"""In place of masks: a batch is what the user's `load` has returned."""
const OWN_BATCHES = Val(:own)

takes_weights(program::Module) = any(method -> method.nargs > 1, methods(program.setup))
# Copies, which the program may train in place.
begin_training(program::Module, initial) = takes_weights(program) ? program.setup(deepcopy(initial)) : program.setup()

step_function(program::Module, mode::StepMode) = is_forward_pass(mode) ? program.forward_pass : program.train_step!
step_function(program::Module, ::StepMode{:train, <:Any, :training}) = program.train_steps!

"""
    reset!(trainer, _)

Restore initial weights, running statistics and optimizer state. Dropout draws the masks of the program's own seed.
"""
function reset!(trainer::ProgramTrainer, _ = nothing)
    (; program, state, initial) = trainer
    isdefined(program, :reset!) ? program.reset!(state, deepcopy(initial)) : (trainer.state = begin_training(program, initial))
    return nothing
end

"""
    batches(trainer, images, labels)

Return one batch per step of `labels` (batch, steps) or (time, batch, steps), whose values count from 0, made by the program's `load`.

`images` are (width, height, channels, batch, steps), or (features, time, batch, steps), `Float32`, or tokens (time, batch, steps),
`Int32`, counted from 0. A batch on the CPU, in `Float32`, is a part of `images` and not a copy, so `images` must not be modified.
"""
function batches(trainer::ProgramTrainer, images::Array{<:Union{Float32, Int32}}, labels::Array{Int64})
    shape = Base.front(size(images))
    return map(axes(labels, ndims(labels))) do step
        # An `Array`, which data loaders return to their users, and not a `SubArray`.
        array = unsafe_wrap(Array, pointer(images, (step - 1) * prod(shape) + 1), shape)
        loaded(trainer.masks, trainer.program.load(array, selectdim(labels, ndims(labels), step)), images)
    end
end

loaded(_, (inputs, targets), images) = Batch(inputs, targets, images)
loaded(::typeof(OWN_BATCHES), batch, images) = Batch(batch, nothing, images)

"""
    arguments(batch, masks)

Return the batch as the program takes it.
"""
arguments(batch::Batch, ::typeof(OWN_BATCHES)) = batch.images
arguments(batch::Batch, ::Nothing) = (batch.images, batch.labels)
arguments(batch::Batch, masks::Dict) = (batch.images, batch.labels, masks)

"""
    set_masks!(trainer, masks)

Set the masks of dropout layers by name for the next step. A network without dropout has none.
"""
set_masks!(trainer::ProgramTrainer, masks) = (trainer.masks === nothing || merge!(trainer.masks, masks); nothing)

"""
    run_steps!(trainer, batches, first, n)

Train on batches `first`, `first + 1`, ... (from 0, cyclic), and return the seconds of the steps. The last loss is then in
`trainer.loss`. A forward pass only computes their logits; the last ones are then in `trainer.logits`.
"""
function run_steps!(  # the type parameters of the trainer, and with them those of the loop, are known here
        trainer::ProgramTrainer{D, F, S, M, T}, batches::AbstractVector{<:Batch}, first::Int, n::Int,
    ) where {D, F, S, M, T}
    count = length(batches)
    chosen = (arguments(batches[step % count + 1], trainer.masks) for step in first:(first + n - 1))
    set_step!(trainer.state, trainer.masks, first)
    disable_gc(trainer.mode)
    synchronize(trainer.device)
    start = time_ns()
    if is_forward_pass(trainer.mode)
        trainer.logits = run_forward(trainer.step, trainer.mode, trainer.state, chosen)
    else
        trainer.loss = run_training(trainer.step, trainer.mode, trainer.state, chosen, trainer.loss)::T
    end
    synchronize(trainer.device)
    seconds = (time_ns() - start) / 1.0e9
    trainer.excluded_gc_seconds += enable_gc(trainer.mode)
    return seconds
end

"""
    set_step!(state, masks, step)

Set the number of the next step, if a program of polybench has a schedule. A user's program counts its steps itself.
"""
set_step!(state, _, step) = hasproperty(state, :step) && (state.step = step)
set_step!(_, ::typeof(OWN_BATCHES), _) = nothing

"""
    last_loss(trainer)

Return the loss of the last step.
"""
last_loss(trainer::ProgramTrainer) = Float64(trainer.loss)

device_peak_bytes(trainer::ProgramTrainer) = device_peak_bytes(trainer.device)
device_bytes_in_use(trainer::ProgramTrainer) = device_bytes_in_use(trainer.device)
device_reserved_bytes(trainer::ProgramTrainer) = device_reserved_bytes(trainer.device)

"""
    run_training(step, mode, state, batches, loss)

Run one step per batch, and return the last loss, or `loss` if there are no batches.
"""
function run_training(step, mode::StepMode, state, batches, loss)
    for batch in batches
        # The type of Zygote's gradient is never inferred; that of this loop is.
        loss = step(state, batch)::typeof(loss)
        after_step(mode)
    end
    return loss
end

run_training(step, mode::StepMode{:train}, state, batches, loss) = step(state, with_after_step(mode, batches))

"""
    run_forward(step, mode, state, batches)

Compute the logits of each batch, and return the last ones.
"""
function run_forward(step, mode::StepMode, state, batches)
    logits = nothing
    for batch in batches
        logits = step(state, batch)
        after_step(mode)
    end
    return logits
end

"""
    loss_and_gradients(trainer, batches, step)

Return the loss of one batch, and its gradients and the weights by name, without changing the trainer.
"""
function loss_and_gradients(trainer::ProgramTrainer, batches::AbstractVector{<:Batch}, step::Int)
    (; program, state) = trainer
    inputs, labels, masks... = arguments(batches[step % length(batches) + 1], trainer.masks)
    foreach(given -> program.set_masks!(state, given), masks)
    # Of a copy, because the forward pass changes running statistics.
    loss, gradients = loss_and_gradients(trainer.mode, program, deepcopy(trained(state)), inputs, labels)
    named = program.tensors(Flux.cpu(gradients))
    return loss, Dict(name => Array(array) for (name, array) in named), program.weights(state)
end

"""
    loss_and_gradients(mode, program, model, inputs, labels)

Return the loss, and the model, or what else `trained` returns, with gradients in place of its arrays.
"""
function loss_and_gradients(mode::StepMode, program::Module, model, inputs, labels)
    loss, gradients = Flux.withgradient(differentiated(mode, model)...) do model
        return program.compute_loss(model, inputs, labels)
    end
    return loss, replace_arrays(model, gradients[1])
end

"""
    replace_arrays(model, gradient)

Return the model with gradients in place of its arrays, so that the program itself names them.
"""
function replace_arrays(model, gradient)
    found = IdDict{AbstractArray, AbstractArray}()
    add_gradients!(found, model, gradient)
    return Flux.fmap(leaf -> leaf isa AbstractArray ? get(() -> zero(leaf), found, leaf) : leaf, model)
end

"""
    trained(state)

Return what a program's `tensors` takes: Flux's model, Lux's `TrainState`, or the state of a forward pass in Lux.
"""
trained(state) =
    hasproperty(state, :train_state) ? state.train_state : hasproperty(state, :parameters) ? state : state.model

"""
    add_gradients!(found, model, gradient)

Add the gradient of each of the model's arrays to `found`. Layers that share an array have several gradients, whose sum counts.
"""
add_gradients!(_, _, ::Nothing) = nothing
add_gradients!(found, array::AbstractArray, gradient::AbstractArray) =
    (found[array] = haskey(found, array) ? found[array] + gradient : gradient; nothing)
# Zygote's gradient of a mutable struct, such as `BatchNorm`, is a `Ref`.
add_gradients!(found, model, gradient::Ref) = add_gradients!(found, model, gradient[])
# A tuple, or Mooncake's gradient of a struct, which has its type; a number has no fields.
add_gradients!(found, model, gradient) =
    foreach(name -> add_gradients!(found, getfield(model, name), getfield(gradient, name)), fieldnames(typeof(gradient)))

"""
    inference_logits(trainer, images)

Compute the logits (classes, batch) of images, or (classes, time, batch) of sequences, in inference mode.
"""
function inference_logits(trainer::ProgramTrainer, images::Array)
    (; program, state) = trainer
    x = to_device(trainer.device, input(program.DTYPE, images))
    return is_forward_pass(trainer.mode) ? Array(program.forward_pass(state, (x,))) : test_logits(trainer, trained(state), x)
end

"""
    test_logits(trainer, model, x)

Return the logits of inputs in inference mode, in the host's memory.
"""
function test_logits(trainer::ProgramTrainer, model, x)
    logits = infer(trainer.device, Flux.testmode!(model), x)
    Flux.testmode!(model, test_mode(trainer.mode))
    return logits
end

arrays(trainer::ProgramTrainer) = map(last, trainer.program.tensors(trained(trainer.state)))
optimizer(trainer::ProgramTrainer) =
    hasproperty(trainer.state, :train_state) ? trainer.state.train_state.optimizer_state : trainer.state.optimizer
has_schedule(trainer::ProgramTrainer) = hasproperty(trainer.state, :rate)
rate(trainer::ProgramTrainer) = has_schedule(trainer) ? trainer.state.rate : 0.0
function restore_rate!(trainer::ProgramTrainer, rate)
    has_schedule(trainer) || return nothing
    Flux.adjust!(optimizer(trainer), rate)
    trainer.state.rate = rate
    return nothing
end

"""
    step_operations(trainer, batches)

Return the operations of a training step outside of layers: `loss` with its gradient, `update`, and `call`, an empty call.
"""
function step_operations(trainer::ProgramTrainer, batches)
    (; program, state) = trainer
    inputs, labels, _... = arguments(batches[1], trainer.masks)
    logits = state.model(inputs)
    grads = Flux.gradient(model -> program.compute_loss(model, inputs, labels), state.model)[1]
    clipped() = isdefined(program, :clip) ? program.clip(state.optimizer, grads) : grads
    update() = Flux.update!(state.optimizer, state.model, clipped())
    return TimedOperation[
        TimedOperation("loss", () -> Flux.withgradient(y -> program.compute_loss(identity, y, labels), logits), trainer.device),
        TimedOperation("update", update, trainer.device),
        TimedOperation("call", () -> nothing, trainer.device),
    ]
end

"""
    warm_up(program, variants, images, labels)

Run what a worker calls to time a program, with batches as in the method of `batches` for its trainer. Its package does so during
its precompilation.
"""
function warm_up(program::Module, variants::String, images::Array, labels::Array{Int64})
    warm_up(ProgramTrainer(program, StepMode(split(variants, '+')...), String[]), images, labels)
    return nothing
end

function warm_up(trainer::ProgramTrainer, images::Array, labels::Array{Int64})
    chosen = batches(trainer, images, labels)
    reset!(trainer)
    run_steps!(trainer, chosen, 0, 2)
    count_allocations!(trainer, chosen, 0, 2)
    last_loss(trainer)
    gc_stats(trainer)
    return nothing
end
