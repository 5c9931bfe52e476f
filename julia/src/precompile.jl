"""
Trains a tiny `lenet` while the package is precompiled, through the calls that Python makes, so that the code is there
when a worker starts. A process that reports what a plain user's first gradient costs includes this package's
source instead of loading it: nothing below runs then, and nothing that it compiled is used.
"""
const LENET = read(joinpath(MODELS, "lenet.toml"), String)

"""
    rehearse(layers, input_shape, classes)

A build, two steps, a snapshot, a count and a reset in both precisions, with two images.
"""
function rehearse(layers::String, input_shape::NTuple{3, Int}, classes::Int)
    images, labels = rand(Float32, reverse(input_shape)..., 2, 2), zeros(Int64, 2, 2)
    for (dtype, T) in ELEMENT_TYPES
        weights = [fill(T(0.01), shape) for (_, shape) in tensor_shapes(records(layers))]
        out = map(zero, weights)
        GC.@preserve images labels weights out begin
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
            collected(trainer)
            max_pool_within(dtype)
        end
    end
    set_blas_threads(BLAS.get_num_threads())
    return collected(), facts(), cuda_facts()
end

@setup_workload begin
    @compile_workload rehearse(LENET, (3, 32, 32), 10)
    include_dependency(joinpath(MODELS, "lenet.toml"))
end
