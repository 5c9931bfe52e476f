"""
The network that the package trains during precompilation, through the functions that Python calls, so that a worker starts
with compiled code. A process that measures the first gradient of a plain script includes this source file instead of
loading the package: then nothing below runs, and no compiled code is used.
"""
const LENET = read(joinpath(MODELS, "lenet.toml"), String)

"""
    warm_up(layers, input_shape, classes)

Build, train two steps, take a snapshot, count allocations, and reset in both precisions, with two images; then the forward pass.
"""
function warm_up(layers::String, input_shape::NTuple{3, Int}, classes::Int)
    images, labels = rand(Float32, reverse(input_shape)..., 2, 2), zeros(Int64, 2, 2)
    for (dtype, T) in ELEMENT_TYPES
        weights = [fill(T(0.01), shape) for (_, shape) in tensor_shapes(records(layers))]
        out, logits = map(zero, weights), zeros(T, classes, 2)
        GC.@preserve images labels weights out logits begin
            addresses(arrays) = Tuple(Int(pointer(array)) for array in arrays)
            trainer = build(layers, addresses(weights), dtype, "cpu", "fp32", "momentum", 0.01, 0.9, 0.0, false, "")
            batches = load(
                trainer, Int(pointer(images)), (2, 2, input_shape...), Int(pointer(labels)), classes,
            )
            reset!(trainer)
            set_rate!(trainer, 0.01)
            run_steps!(trainer, batches, 0, 2)
            last_loss(trainer)
            count_allocations!(trainer, batches, 0, 2)
            device_peak_bytes(trainer)
            snapshot!(addresses(out), addresses(weights), trainer, batches, 0)
            gc_stats(trainer)
            forward = build(layers, addresses(weights), dtype, "cpu", "fp32", "sgd", 0.01, 0.0, 0.0, false, "forward")
            reset!(forward)
            run_steps!(forward, batches, 0, 2)
            fill_logits!(Int(pointer(logits)), forward)
            max_pool_within(dtype)
        end
    end
    set_blas_threads(BLAS.get_num_threads())
    return gc_stats(), build_info(), cuda_info()
end

@setup_workload begin
    @compile_workload warm_up(LENET, (3, 32, 32), 10)
    include_dependency(joinpath(MODELS, "lenet.toml"))
end
