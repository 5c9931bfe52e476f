"""
Functions that Python calls. Python passes arrays as addresses of C-order memory, which it owns and keeps alive during the
call (of images: as long as the batches live). Nothing else in PolyBench knows addresses.
"""
module Python

using ..PolyBench:
    AugmentedData, ELEMENT_TYPES, Flux, Pipeline, ProgramPipeline, ProgramTrainer, StepMode, TrainingState, UserProgram, batches,
    declarations, forward_operation, inference_logits, input, is_forward_pass, layer_operations, loss_and_gradients, resolve_path,
    rule, start_training!, step_operations, to_device, user_program_step!, uuids, variables
using ..PolyBench: Random
import ..PolyBench

"""
    wrap_array(T, address, shape)

Wrap memory that Python owns as an array.
"""
wrap_array(::Type{T}, address::Int, shape::Tuple{Vararg{Int}}) where {T} = unsafe_wrap(Array, Ptr{T}(address), shape)

"""
    build_program(program, names, addresses, variants)

Set up a program (see `ProgramTrainer`). `addresses` are those of its weights and state, of type `DTYPE`, in the order of `names`,
which are lines: trained tensors, then state. `variants` are names for `StepMode`, joined by +.
"""
function build_program(program::Module, names::String, addresses::Tuple{Vararg{Int}}, variants::String)
    trainer = ProgramTrainer(program, StepMode(split(variants, '+')...), String.(split(names, '\n')))
    set_initial_weights!(trainer, addresses)
    PolyBench.reset!(trainer)
    return trainer
end

"""
    build_own_program(program, dtype, names, addresses, shapes)

Set up a user's program; `addresses` are those of initial weights of type `dtype` with these shapes in C order.
"""
function build_own_program(program::Module, dtype::String, names::String, addresses::Tuple{Vararg{Int}}, shapes)
    T, listed = ELEMENT_TYPES[dtype], String.(split(names, '\n'))
    initial = Dict{String, Array{T}}(
        name => copy(wrap_array(T, address, reverse(shape))) for (name, address, shape) in zip(listed, addresses, shapes)
    )
    return ProgramTrainer(program, listed, initial)
end

"""
    warm_up_own(program, names, shapes, images, labels)

Do for a user's program what `warm_up` does for one of polybench; names and shapes are as above.
"""
function warm_up_own(program::Module, names::String, shapes, images::Array, labels::Array{Int64})
    arrays = map(shape -> fill(0.01f0, reverse(shape)), shapes)
    trainer = GC.@preserve arrays build_own_program(program, "float32", names, map(Int ∘ pointer, arrays), shapes)
    PolyBench.warm_up(trainer, images, labels)
    isdefined(program, :weights) && program.weights(trainer.state)
    return nothing
end

"""
    declared(path, text)

Return a line with the packages that a program loads, `name=UUID`, if installed, and then the names and texts of the files that it
includes; an empty text if `declarations` returns nothing.
"""
function declared(path::String, text::String)
    found = declarations(path, text)
    found === nothing && return ""
    packages = join(("$name=$uuid" for (name, uuid) in uuids(found.packages)), ' ')
    return join([packages; [part for file in found.files for part in file]], '\n') * "\n"
end

"""
    write_weights!(addresses, trainer)

Write the weights of a user's program to these addresses, in the order of its names, in the type of the initial weights.
"""
function write_weights!(addresses::Tuple{Vararg{Int}}, trainer::ProgramTrainer)
    found = trainer.program.weights(trainer.state)
    for (name, address) in zip(trainer.names, addresses)
        initial = trainer.initial[name]
        haskey(found, name) || throw(ArgumentError("weights() lacks $name"))
        size(found[name]) == size(initial) ||
            throw(ArgumentError("$name of weights() is $(size(found[name])): expected $(size(initial)), Python's axes reversed"))
        write_to(address, Array{eltype(initial)}(found[name]))
    end
    return nothing
end

"""
    load(trainer, images, shape, labels, classes, tokens = false, label_shape = ())

Return batches of float32 images (steps, batch, channels, height, width), features (steps, batch, time, features), or int32
`tokens` (steps, batch, time), with `shape` in this order, and int64 labels (steps, batch, label_shape...). The memory must live
as long as the batches.
"""
function load(
        trainer::ProgramTrainer, images::Int, shape::Tuple{Vararg{Int}}, labels::Int, ::Int, tokens::Bool = false,
        label_shape::Tuple{Vararg{Int}} = (),
    )
    steps, batch = shape
    labels = wrap_array(Int64, labels, (reverse(label_shape)..., batch, steps))
    return batches(trainer, wrap_input(tokens, images, shape), labels)
end

wrap_input(tokens::Bool, address::Int, shape) = wrap_array(tokens ? Int32 : Float32, address, reverse(shape))

"""
    open_pipeline(trainer, images, shape, labels, order, order_shape, augmentations, classes, workers)

Return a pipeline of uint8 images (images, channels, height, width) and int64 labels (images), in the order (steps, batch),
with int8 augmentations (steps, batch, 3), or none if their address is 0. Shapes are in these orders. The memory must live as
long as the pipeline.
"""
function open_pipeline(
        trainer::ProgramTrainer, images::Int, shape::NTuple{4, Int}, labels::Int,
        order::Int, order_shape::NTuple{2, Int}, augmentations::Int, classes::Int, workers::Int,
    )
    steps, batch = order_shape
    data = AugmentedData(
        wrap_array(UInt8, images, reverse(shape)), wrap_array(Int64, labels, (shape[1],)),
        wrap_array(Int64, order, (batch, steps)),
        augmentations == 0 ? nothing : wrap_array(Int8, augmentations, (3, batch, steps)), classes, workers,
    )
    return Pipeline(trainer.device, typeof(trainer.loss), data)
end

"""
    open_own_pipeline(trainer, images, shape, labels, order, order_shape)

Return the pipeline of a user's program, with arguments as in `open_pipeline`. The order is copied, and counted from 1.
"""
function open_own_pipeline(
        trainer::ProgramTrainer, images::Int, shape::Tuple{Vararg{Int}}, labels::Int, order::Int, order_shape::NTuple{2, Int},
    )
    numbers = wrap_array(Int64, order, reverse(order_shape)) .+ 1
    stored = wrap_array(UInt8, images, reverse(shape))
    return ProgramPipeline(trainer.program, stored, wrap_array(Int64, labels, (shape[1],)), numbers)
end

"""
    fill_buffers!(images, labels, batches, step)

Write one canonical batch to these addresses: float32 images, int64 labels.
"""
function fill_buffers!(images::Int, labels::Int, batches, step::Int)
    batch = batches[step % length(batches) + 1]
    write_to(images, Array{Float32}(Array(batch.images)))
    return write_to(labels, Int64.(Flux.onecold(Array(batch.labels))) .- 1)
end

function write_to(address::Int, host::Array)
    GC.@preserve host unsafe_copyto!(Ptr{eltype(host)}(address), pointer(host), length(host))
    return nothing
end

"""
    set_initial_weights!(trainer, addresses)

Set the initial weights, which `reset!` restores; addresses as in `build_program`.
"""
function set_initial_weights!(trainer::ProgramTrainer, addresses::Tuple{Vararg{Int}})
    for (name, address) in zip(trainer.names, addresses)
        initial = trainer.initial[name]
        copyto!(initial, wrap_array(eltype(initial), address, size(initial)))
    end
    return nothing
end

"""
    restore!(trainer, numbers, count, rate, generator)

Restore a training state from the addresses of its `count` numbers and of the generator's four words.
"""
function restore!(trainer::ProgramTrainer, numbers::Int, count::Int, rate::Real, generator::Int)
    words = wrap_array(UInt64, generator, (4,))
    return PolyBench.restore!(trainer, TrainingState(wrap_array(typeof(trainer.loss), numbers, (count,)), Float64(rate), words))
end

"""
    write_logits!(address, trainer, images, shape, tokens = false)

Write the logits of images, or sequences (as in `load`), in inference mode, (batch, classes) in C order, to this address.
"""
write_logits!(address::Int, trainer::ProgramTrainer, images::Int, shape::Tuple{Vararg{Int}}, tokens::Bool = false) =
    write_to(address, inference_logits(trainer, wrap_input(tokens, images, shape)))

"""
    snapshot!(gradients, weights, trainer, batches, step)

Write gradients and weights to these addresses, in the order of the trainer's names (gradients only of trained tensors), and
return the loss.
"""
function snapshot!(
        gradients::Tuple{Vararg{Int}}, weights::Tuple{Vararg{Int}}, trainer::ProgramTrainer, batches, step::Int,
    )
    loss, computed, current = loss_and_gradients(trainer, batches, step)
    for (addresses, arrays) in ((gradients, computed), (weights, current)), (name, address) in zip(trainer.names, addresses)
        write_to(address, arrays[name])
    end
    return Float64(loss)
end

"""
    build_layer_operations(trainer, whole, linear, names, addresses, x, x_shape, dy, dy_shape, required, tokens = false)

Return (name, operation) for each operation of one layer; see `layer_operations`. `whole` and `linear` are programs that have `network`
and `tensors` only, of the layer with and without its ReLU. `addresses` are those of the layer's arrays, in the order of the lines of
`names`. x and dy are float32 arrays with shapes in C order; x may be int32 `tokens`. Their memory is not used after the call.
"""
function build_layer_operations(
        trainer::ProgramTrainer, whole::Module, linear::Module, names::String, addresses::Tuple{Vararg{Int}},
        x::Int, x_shape, dy::Int, dy_shape, required, tokens::Bool = false,
    )
    T, device, found = typeof(trainer.loss), trainer.device, Dict(zip(split(names, '\n'), addresses))
    layers = [to_device(device, build_layer(T, program, found)) for program in unique((whole, linear))]
    inputs = to_device(device, input(T, copy(wrap_input(tokens, x, x_shape))))
    is_forward_pass(trainer.mode) && return with_names((forward_operation(device, Flux.testmode!(first(layers)), inputs),))
    gradient = to_device(device, T.(wrap_array(Float32, dy, reverse(dy_shape))))
    return with_names(layer_operations(device, first(layers), last(layers), inputs, gradient, required))
end

"Return the layer of a program, with arrays of type `T` at these addresses by name; more than one Flux layer is a chain."
function build_layer(::Type{T}, program::Module, addresses) where {T}
    chain = (T == Float64 ? Flux.f64 : Flux.f32)(program.network())
    for (name, array) in program.tensors(chain)
        array .= wrap_array(T, addresses[name], size(array))
    end
    return length(chain) == 1 ? only(chain.layers) : chain
end

"""
    build_step_operations(trainer, batches)

Return (name, operation) for each operation of `step_operations`.
"""
build_step_operations(trainer::ProgramTrainer, batches) = with_names(step_operations(trainer, batches))

with_names(operations) = Tuple((operation.name, operation) for operation in operations)

"""
    set_masks!(trainer, names, addresses, shapes)

Set the masks of dropout layers by name for one step: arrays (batch, channels, height, width), (batch, time, features) or (batch,
features), with shapes in this order, of the trainer's element type.
"""
function set_masks!(trainer::ProgramTrainer, names, addresses, shapes)
    T = typeof(trainer.loss)
    masks = Dict(
        String(name) => to_device(trainer.device, copy(wrap_array(T, address, reverse(shape)))) for
            (name, address, shape) in zip(names, addresses, shapes)
    )
    return PolyBench.set_masks!(trainer, masks)
end

"""
    fill_logits!(address, trainer)

Write the last logits of a forward pass, (batch, label_shape..., classes) in C order, to this address.
"""
fill_logits!(address::Int, trainer::ProgramTrainer) = write_to(address, Array(trainer.logits))

"""
    read_variables!(addresses, program)

Write the arrays of a user's program to these addresses, in the order of its names.
"""
read_variables!(addresses::Tuple{Vararg{Int}}, program::UserProgram) =
    foreach((address, array) -> write_to(address, Array{Float64}(array)), addresses, variables(program))

"""
    user_program(model, returns_probabilities, optimizer, learning_rate, momentum)

Return a user's chain in float64, which trains with the optimizer of this name.
"""
user_program(model, returns_probabilities::Bool, optimizer::String, learning_rate::Real, momentum::Real) =
    UserProgram(model, returns_probabilities, rule(optimizer; learning_rate, momentum))

"""
    start_program!(program, addresses)

Replace the arrays of a user's program, and begin a training.
"""
function start_program!(program::UserProgram, addresses::Tuple{Vararg{Int}})
    foreach((array, address) -> copyto!(array, wrap_array(Float64, address, size(array))), variables(program), addresses)
    start_training!(program)
    return nothing
end

"""
    train_program!(addresses, program, x, shape, tokens, labels, label_shape, paths, masks, mask_shapes)

Take a training step: write the gradients to these addresses, and return the loss before it. Inputs are float64 or, with `tokens`,
int32; shapes are in this order. `paths` lead to the dropout layers of the `masks`.
"""
function train_program!(
        addresses::Tuple{Vararg{Int}}, program::UserProgram, x::Int, shape::Tuple{Vararg{Int}}, tokens::Bool, labels::Int,
        label_shape::Tuple{Vararg{Int}}, paths, masks::Tuple{Vararg{Int}}, mask_shapes,
    )
    for (path, mask, mask_shape) in zip(paths, masks, mask_shapes)
        keys = Any[something(tryparse(Int, part), Symbol(part)) for part in split(String(path), '.')]
        resolve_path(program.model, keys).mask = copy(wrap_array(Float64, mask, reverse(mask_shape)))
    end
    input = program_input(x, shape, tokens)
    loss, gradients = user_program_step!(program, input, wrap_array(Int64, labels, reverse(label_shape)))
    foreach(write_to, addresses, gradients)
    return loss
end

"""
    evaluate_program!(address, program, x, shape, tokens, output_shape)

Write the output of a batch outside of training, which has this shape in C order, to the address.
"""
function evaluate_program!(
        address::Int, program::UserProgram, x::Int, shape::Tuple{Vararg{Int}}, tokens::Bool, output_shape::Tuple{Vararg{Int}},
    )
    y = program.model(program_input(x, shape, tokens))
    size(y) == reverse(output_shape) || throw(ArgumentError("the output has size $(size(y)): expected $(reverse(output_shape))"))
    return write_to(address, Array{Float64}(y))
end

"Return the batch of a user's program at this address."
program_input(x::Int, shape::Tuple{Vararg{Int}}, tokens::Bool) =
    tokens ? wrap_array(Int32, x, reverse(shape)) .+ 1 : wrap_array(Float64, x, reverse(shape))

"Return the state of Julia's random generator as text."
generator_state() = repr(copy(Random.default_rng()))

end
