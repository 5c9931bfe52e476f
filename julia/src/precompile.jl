"""
The network that the package trains during precompilation, so that a worker starts with compiled code. A process that measures the first gradient of a plain script includes this source file instead of
loading the package: then nothing below runs, and no compiled code is used.
"""
const LENET = read(joinpath(MODELS, "lenet.toml"), String)

"""
    warm_up(layers, input_shape, classes)

Build, train two steps, compute gradients, count allocations, and infer in both precisions, with two images.
"""
function warm_up(layers::String, input_shape::NTuple{3, Int}, classes::Int)
    images, labels = rand(Float32, reverse(input_shape)..., 2, 2), zeros(Int64, 2, 2)
    for (dtype, T) in ELEMENT_TYPES
        weights = Dict(name => fill(T(0.01), shape) for (name, shape) in tensor_shapes(records(layers)))
        trainer = Trainer(CPU(), T, records(layers), weights; learning_rate = 0.01)
        chosen = batches(CPU(), T, images, labels, classes)
        reset!(trainer)
        set_rate!(trainer, 0.01)
        run_steps!(trainer, chosen, 0, 2)
        last_loss(trainer)
        count_allocations!(trainer, chosen, 0, 2)
        loss_and_gradients(trainer, chosen, 0)
        device_peak_bytes(trainer)
        device_bytes_in_use(trainer)
        gc_stats(trainer)
        heap_bytes_in_use()
        inference_logits(trainer, images[:, :, :, :, 1])
        max_pool_within(dtype)
    end
    set_blas_threads(BLAS.get_num_threads())
    Python.declared("program.jl", "using Flux\nload(images, labels) = images, labels\n")
    return gc_stats(), build_info(), cuda_info()
end

"""
    warm_up_session()

Measure a small model of a user, and print the result.
"""
function warm_up_session()
    chain = Chain(Conv((3, 3), 3 => 2, Flux.relu), BatchNorm(2), MaxPool((2, 2)), Flux.flatten, Dense(18 => 3))
    loss(model, x, y) = Flux.logitcrossentropy(model(x), y)
    # "system": the malloc policy of this process is not that of the user's.
    options = (; rounds = 2, steps = 2, malloc = "system")
    trial = bench(chain, loss, rand(Float32, 8, 8, 3, 2), Flux.onehotbatch([1, 2], 1:3); options...)
    show(devnull, MIME("text/plain"), trial)
    show(devnull, MIME("text/plain"), median(trial))
    return show(devnull, MIME("text/plain"), compare(trial, trial))
end

@setup_workload begin
    @compile_workload begin
        warm_up(LENET, (3, 32, 32), 10)
        warm_up_session()
    end
    include_dependency(joinpath(MODELS, "lenet.toml"))
end
