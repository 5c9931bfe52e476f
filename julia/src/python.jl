"""
The border to Python. Arrays cross it as addresses of C-order memory, which Python owns and keeps alive during the
call (the images: as long as the batches live). Their shapes follow from the layer records.
"""
const ELEMENT_TYPES = Dict("float32" => Float32, "float64" => Float64)

"""
    borrow(T, address, shape)

An array in memory that Python owns.
"""
borrow(::Type{T}, address::Int, shape::Tuple{Vararg{Int}}) where {T} = unsafe_wrap(Array, Ptr{T}(address), shape)

"""
    build(
        layers, addresses, dtype, device_name, precision, optimizer, learning_rate, momentum, weight_decay, given_masks,
        variants,
    )

A trainer. `layers` is a TOML text, `addresses` those of its weights and state, of type `dtype`, in the order of
`tensor_shapes`; `precision` is `fp32` or `tf32`. `optimizer` is a name for `rule`, which has no use for the momentum
of some. With `given_masks`, dropout waits for `give_masks!` before each step. `variants` are names for `Way`, joined by +.
"""
function build(
        layers::String, addresses::Tuple{Vararg{Int}}, dtype::String, device_name::String, precision::String,
        optimizer::String, learning_rate::Real, momentum::Real, weight_decay::Real, given_masks::Bool, variants::String,
    )
    T, layer_records = ELEMENT_TYPES[dtype], records(layers)
    given_masks && (layer_records = with_given_masks(layer_records))
    shapes = tensor_shapes(layer_records)
    weights = Dict(name => borrow(T, address, shape) for ((name, shape), address) in zip(shapes, addresses))
    target = device(device_name; tf32 = precision == "tf32", type = T)
    way = Way(split(variants, '+')...)
    return Trainer(target, T, layer_records, weights; optimizer, learning_rate, momentum, weight_decay, way)
end

"""
    load(trainer, images, shape, labels, classes, tokens = false)

Batches of float32 images (steps, batch, channels, height, width) or features (steps, batch, time, features), or of int32
`tokens` (steps, batch, time), whose shape is given in this order, and int64 labels (steps, batch), in memory that lives as
long as the batches.
"""
function load(
        trainer::Trainer, images::Int, shape::Tuple{Vararg{Int}}, labels::Int, classes::Int, tokens::Bool = false,
    )
    steps, batch = shape
    return batches(
        trainer.device, typeof(trainer.loss), borrow_input(tokens, images, shape),
        borrow(Int64, labels, (batch, steps)), classes,
    )
end

borrow_input(tokens::Bool, address::Int, shape) = borrow(tokens ? Int32 : Float32, address, reverse(shape))

"""
    open_stream(trainer, images, shape, labels, order, order_shape, decisions, classes, workers)

A pipeline of uint8 images (images, channels, height, width) and int64 labels (images), in the order (steps, batch),
varied by int8 decisions (steps, batch, 3) or, if their address is 0, by none. Shapes are given in these orders;
the memory lives as long as the pipeline.
"""
function open_stream(
        trainer::Trainer, images::Int, shape::NTuple{4, Int}, labels::Int,
        order::Int, order_shape::NTuple{2, Int}, decisions::Int, classes::Int, workers::Int,
    )
    steps, batch = order_shape
    data = Augmented(
        borrow(UInt8, images, reverse(shape)), borrow(Int64, labels, (shape[1],)),
        borrow(Int64, order, (batch, steps)),
        decisions == 0 ? nothing : borrow(Int8, decisions, (3, batch, steps)), classes, workers,
    )
    return Pipeline(trainer.device, typeof(trainer.loss), data)
end

"""
    hand_out!(images, labels, batches, step)

Write one batch, canonical, to these addresses: float32 images, int64 labels.
"""
function hand_out!(images::Int, labels::Int, batches, step::Int)
    batch = batches[step % length(batches) + 1]
    write_to(images, Array{Float32}(Array(batch.images)))
    return write_to(labels, Int64.(Flux.onecold(Array(batch.labels))) .- 1)
end

function write_to(address::Int, host::Array)
    GC.@preserve host unsafe_copyto!(Ptr{eltype(host)}(address), pointer(host), length(host))
    return nothing
end

"""
    start_from!(trainer, addresses)

Take these weights, given as in `build`, as the initial ones, which `reset!` goes back to.
"""
function start_from!(trainer::Trainer, addresses::Tuple{Vararg{Int}})
    for (initial, flips, address) in zip(trainer.initial, flips(trainer.network), addresses)
        copyto!(initial, flipped(borrow(eltype(initial), address, canonical_size(initial, flips)), flips))
    end
    return nothing
end

"""
    go_on_from!(trainer, numbers, count, rate, generator)

The training of a `KeptTraining`, whose `count` numbers and four words are at these addresses.
"""
function go_on_from!(trainer::Trainer, numbers::Int, count::Int, rate::Real, generator::Int)
    words = borrow(UInt64, generator, (4,))
    return go_on_from!(trainer, KeptTraining(borrow(typeof(trainer.loss), numbers, (count,)), Float64(rate), words))
end

"""
    correct(trainer, images, shape, labels, tokens = false)

How many images, or sequences, are classified as their labels say: one batch of what `load` takes, and int64 labels.
"""
correct(trainer::Trainer, images::Int, shape::Tuple{Vararg{Int}}, labels::Int, tokens::Bool = false) =
    correct(trainer, borrow_input(tokens, images, shape), borrow(Int64, labels, (first(shape),)))

"""
    snapshot!(gradients, weights, trainer, batches, step)

Write gradients and weights, canonical, to these addresses, in the order of `tensor_shapes` (gradients: of what is
trained); returns the loss.
"""
function snapshot!(
        gradients::Tuple{Vararg{Int}}, weights::Tuple{Vararg{Int}}, trainer::Trainer, batches, step::Int,
    )
    loss, named = loss_and_gradients(trainer, batches, step)
    # What is trained comes first in both.
    write_canonical(gradients, named, flips(trainer.network))
    write_canonical(weights, tensors(trainer.network), flips(trainer.network))
    return Float64(loss)
end

function write_canonical(addresses, named, flipped)
    for (address, (_, array), flips) in zip(addresses, named, flipped)
        write_to(address, canonical(array, flips))
    end
    return nothing
end

"""
    replay(trainer, layers, addresses, x, x_shape, dy, dy_shape, wanted, tokens = false)

`name => part` for the parts of one layer, see `layer_parts`. `layers` and `addresses` are as in `build`; x and dy are
float32 arrays whose shapes are given in their own, C order; x may be int32 `tokens`. Nothing of their memory is used
afterwards.
"""
function replay(
        trainer::Trainer, layers::String, addresses, x::Int, x_shape, dy::Int, dy_shape, wanted, tokens::Bool = false,
    )
    T, layer_records = typeof(trainer.loss), records(layers)
    weights = Dict(
        name => borrow(T, address, shape) for ((name, shape), address) in zip(tensor_shapes(layer_records), addresses)
    )
    arrays = (input(T, copy(borrow_input(tokens, x, x_shape))), T.(borrow(Float32, dy, reverse(dy_shape))))
    return named(layer_parts(trainer.device, T, layer_records, weights, arrays..., wanted))
end

"""
    replay_step(trainer, batches)

The same for the parts of `step_parts`.
"""
replay_step(trainer::Trainer, batches) = named(step_parts(trainer, batches))

named(parts) = Tuple((part.name, part) for part in parts)

"""
    give_masks!(trainer, names, addresses, shapes)

Masks of the dropout layers of these names, for one step: arrays (batch, channels, height, width), (batch, time, features)
or (batch, features), whose shapes are given in this order, of the element type of the trainer.
"""
function give_masks!(trainer::Trainer, names, addresses, shapes)
    T = typeof(trainer.loss)
    masks = Dict(
        String(name) => place(trainer.device, copy(borrow(T, address, reverse(shape)))) for
            (name, address, shape) in zip(names, addresses, shapes)
    )
    return set_masks!(trainer.network, masks)
end

"""
    last_loss(trainer)
"""
last_loss(trainer::Trainer) = Float64(trainer.loss)

device_peak_bytes(trainer::Trainer) = device_peak_bytes(trainer.device)
device_reserved_bytes(trainer::Trainer) = device_reserved_bytes(trainer.device)
