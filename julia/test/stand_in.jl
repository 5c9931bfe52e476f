# An extension without its package, for tests: a module of the same name in Main stands in for it.

const STAND_IN_RECORDS = PolyBench.records(
    """
    layers = [
        {type = "conv", name = "conv", kernel = 3, inputs = 2, outputs = 4, stride = 1, padding = "same", bias = false},
        {type = "batch_norm", name = "norm", channels = 4, epsilon = 1e-5, momentum = 0.1}, {type = "relu"},
        {type = "flatten"}, {type = "dense", name = "dense", inputs = 64, outputs = 3},
    ]
    """
)

function include_extension(package, replacements...)
    source = read(joinpath(pkgdir(PolyBench), "ext", "PolyBench$(package)Ext.jl"), String)
    return include_string(Main, replace(source, "using $package:" => "using Main.$package:", replacements...))
end

both_ways(name, records = STAND_IN_RECORDS) = map((PolyBench.Way(), PolyBench.Way(name))) do way
    weights = Dict(
        place => sin.((1:prod(shape)) .+ index) |> x -> reshape(x, shape) |> x -> endswith(place, "variance") ? abs.(x) : x
            for (index, (place, shape)) in enumerate(PolyBench.tensor_shapes(records))
    )
    PolyBench.Trainer(PolyBench.CPU(), Float64, records, weights; learning_rate = 0.05, way)
end

const STAND_IN_IMAGES = reshape(Float32.(cos.(1:(4 * 4 * 2 * 5 * 2))), 4, 4, 2, 5, 2)

stand_in_batches(trainer) = PolyBench.batches(trainer.device, Float64, STAND_IN_IMAGES, [0 1; 2 0; 1 1; 0 2; 2 2], 3)

"""Losses, the gradient after two steps, what the network answers, and all tensors at the end."""
function trained(trainer)
    batches = stand_in_batches(trainer)
    PolyBench.reset!(trainer)
    losses = map(0:1) do step
        PolyBench.run_steps!(trainer, batches, step, 1)
        trainer.loss
    end
    gradient = PolyBench.loss_and_gradients(trainer, batches, 0)
    right = PolyBench.correct(trainer, STAND_IN_IMAGES[:, :, :, :, 1], [0, 2, 1, 0, 2])
    PolyBench.run_steps!(trainer, batches, 0, 1)
    host(named) = [name => Array(array) for (name, array) in named]
    return losses, gradient[1], host(gradient[2]), right, trainer.loss, host(PolyBench.tensors(trainer.network))
end

"""All numbers of what `trained` answers, in a vector."""
flat(x::Number) = [Float64(x)]
flat(x::Union{Tuple, AbstractVector}) = reduce(vcat, map(flat, x))
flat(x::Pair) = flat(x[2])
flat(x::AbstractArray{<:Number}) = vec(x)
