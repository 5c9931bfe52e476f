"""
The border to Python. Arrays cross it as addresses of C-order memory, which Python owns and keeps alive during the
call (the images: as long as the batches live). Their shapes follow from the layer records.
"""
const ELEMENT_TYPES = Dict("float32" => Float32, "float64" => Float64)

"""    borrow(T, address, shape)

An array in memory that Python owns.
"""
borrow(::Type{T}, address::Int, shape::Tuple{Vararg{Int}}) where {T} = unsafe_wrap(Array, Ptr{T}(address), shape)

"""    build(layers, addresses, dtype, device_name, learning_rate, momentum, given_masks)

A trainer. `layers` is a TOML text, `addresses` those of its weights and state, of type `dtype`, in the order of
`tensor_shapes`. With `given_masks`, dropout waits for `give_masks!` before each step.
"""
function build(
    layers::String, addresses::Tuple{Vararg{Int}}, dtype::String, device_name::String,
    learning_rate::Real, momentum::Real, given_masks::Bool,
)
    T, layer_records = ELEMENT_TYPES[dtype], records(layers)
    given_masks && (layer_records = with_given_masks(layer_records))
    shapes = tensor_shapes(layer_records)
    weights = Dict(name => borrow(T, address, shape) for ((name, shape), address) in zip(shapes, addresses))
    return Trainer(device(device_name), T, layer_records, weights; learning_rate, momentum)
end

"""    load(trainer, images, shape, labels, classes)

Batches of float32 images (steps, batch, channels, height, width), whose shape is given in this order, and int64
labels (steps, batch), in memory that lives as long as the batches.
"""
function load(trainer::Trainer, images::Int, shape::NTuple{5,Int}, labels::Int, classes::Int)
    steps, batch = shape
    return batches(
        trainer.device, typeof(trainer.loss), borrow(Float32, images, reverse(shape)),
        borrow(Int64, labels, (batch, steps)), classes,
    )
end

"""    snapshot!(gradients, weights, trainer, batches, step)

Write gradients and weights, canonical, to these addresses, in the order of `tensor_shapes` (gradients: of what is
trained); returns the loss.
"""
function snapshot!(
    gradients::Tuple{Vararg{Int}}, weights::Tuple{Vararg{Int}}, trainer::Trainer, batches, step::Int,
)
    loss, named = loss_and_gradients(trainer, batches, step)
    write_canonical(gradients, named)
    write_canonical(weights, everything(trainer.network))
    return Float64(loss)
end

function write_canonical(addresses, named)
    for (address, (_, array)) in zip(addresses, named)
        host = canonical(array)
        GC.@preserve host unsafe_copyto!(Ptr{eltype(host)}(address), pointer(host), length(host))
    end
end

"""    give_masks!(trainer, names, addresses, shapes)

Masks of the dropout layers of these names, for one step: arrays (batch, channels, height, width) or (batch, features),
whose shapes are given in this order, of the element type of the trainer.
"""
function give_masks!(trainer::Trainer, names, addresses, shapes)
    T = typeof(trainer.loss)
    masks = Dict(
        String(name) => place(trainer.device, copy(borrow(T, address, reverse(shape)))) for
        (name, address, shape) in zip(names, addresses, shapes)
    )
    set_masks!(trainer.network, masks)
end

"""    last_loss(trainer)"""
last_loss(trainer::Trainer) = Float64(trainer.loss)
