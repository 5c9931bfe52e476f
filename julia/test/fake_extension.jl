# Loads an extension without its package: a fake module of the same name in Main replaces the package.

const TEST_RECORDS = PolyBench.records(
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

both_modes(name, records = TEST_RECORDS, pass...) = map((PolyBench.StepMode(pass...), PolyBench.StepMode(name, pass...))) do mode
    weights = Dict(
        name => sin.((1:prod(shape)) .+ index) |> x -> reshape(x, shape) |> x -> endswith(name, "variance") ? abs.(x) : x
            for (index, (name, shape)) in enumerate(PolyBench.tensor_shapes(records))
    )
    PolyBench.Trainer(PolyBench.CPU(), Float64, records, weights; learning_rate = 0.05, mode)
end

const TEST_IMAGES = reshape(Float32.(cos.(1:(4 * 4 * 2 * 5 * 2))), 4, 4, 2, 5, 2)

test_batches(trainer) = PolyBench.batches(trainer.device, Float64, TEST_IMAGES, [0 1; 2 0; 1 1; 0 2; 2 2], 3)

"""Train, and return losses, the gradient after two steps, the logits in inference mode, and all tensors at the end."""
function train(trainer)
    batches = test_batches(trainer)
    PolyBench.reset!(trainer)
    losses = map(0:1) do step
        PolyBench.run_steps!(trainer, batches, step, 1)
        trainer.loss
    end
    gradient = PolyBench.loss_and_gradients(trainer, batches, 0)
    logits = PolyBench.inference_logits(trainer, TEST_IMAGES[:, :, :, :, 1])
    PolyBench.run_steps!(trainer, batches, 0, 1)
    host(named) = [name => Array(array) for (name, array) in named]
    return losses, gradient[1], host(gradient[2]), logits, trainer.loss, host(PolyBench.tensors(trainer.network))
end

"""Collect all numbers of a result of `train` in a vector."""
flat(x::Number) = [Float64(x)]
flat(x::Union{Tuple, AbstractVector}) = reduce(vcat, map(flat, x))
flat(x::Pair) = flat(x[2])
flat(x::AbstractArray{<:Number}) = vec(x)
