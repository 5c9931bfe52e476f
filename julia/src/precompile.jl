"""
    warm_up_session()

Train a network and a small model of a user, and print the result.

A worker, and a session, then start with compiled code. A process that measures the first gradient of a plain script includes this
source file instead of loading the package: then nothing below runs, and no compiled code is used.
"""
function warm_up_session()
    # "system": the malloc policy of this process is not that of the user's.
    options = (; rounds = 2, steps = 2, malloc = "system")
    bench(:lenet; batch = 2, options...)
    chain = Chain(Conv((3, 3), 3 => 2, Flux.relu), BatchNorm(2), MaxPool((2, 2)), Flux.flatten, Dense(18 => 3))
    loss(model, x, y) = Flux.logitcrossentropy(model(x), y)
    trial = bench(chain, loss, rand(Float32, 8, 8, 3, 2), Flux.onehotbatch([1, 2], 1:3); options...)
    show(devnull, MIME("text/plain"), trial)
    show(devnull, MIME("text/plain"), median(trial))
    return show(devnull, MIME("text/plain"), compare(trial, trial))
end

"""
    warm_up_worker()

Call what a worker calls in both precisions.
"""
function warm_up_worker()
    for (dtype, T) in ELEMENT_TYPES
        model = (T == Float64 ? Flux.f64 : Flux.f32)(PROGRAMS["lenet"].network())
        x, y = rand(T, 32, 32, 3, 2), Flux.onehotbatch([0, 1], 0:9)
        _, gradients = Flux.withgradient(one -> cross_entropy(one, x, y), model)
        Flux.update!(Flux.setup(rule("momentum"; learning_rate = 0.01), model), model, gradients[1])
        Flux.testmode!(model)(x)
        max_pool_within(dtype)
    end
    set_blas_threads(BLAS.get_num_threads())
    Python.declared("program.jl", "using Flux\nload(images, labels) = images, labels\n")
    return gc_stats(), heap_bytes_in_use(), build_info(), cuda_info()
end

@setup_workload begin
    @compile_workload begin
        warm_up_worker()
        warm_up_session()
    end
end
