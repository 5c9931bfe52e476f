"""
Training on a CUDA device. Written from the sources of CUDA.jl 5.11.3, cuDNN.jl 1.4.6, NNlib 0.9.36 and Flux 0.16.10, and
tested with JLArrays instead of CUDA's arrays (`test/cuda.jl`, and `tests/engines/flux/test_stand_in_device.py` for whole networks). It has
never been run on a GPU.
"""
module PolyBenchCUDAExt

using CUDA: CUDA, CuArray
using PolyBench: PolyBench, CUDADevice
using PolyBench.Flux: adapt, fmap
using PolyBench.Random: AbstractRNG
using cuDNN: cuDNN  # Flux needs it for convolutions on the GPU

PolyBench.cuda_devices(::Val{:extension}) = CUDA.functional() ? Int(CUDA.ndevices()) : 0

function PolyBench.cuda_info(::Val{:extension})
    CUDA.functional() || return ()
    return (
        ("cuda_jl", string(pkgversion(CUDA))),
        ("cudnn_jl", string(pkgversion(cuDNN))),
        ("cuda", string(CUDA.runtime_version())),
        ("cudnn", string(cuDNN.cudnnGetVersion())),
        # NNlib uses cuDNN.jl, which times the algorithms for each new convolution (cudnnFindConvolution*AlgorithmEx
        # in lib/cudnn/src/convolution.jl), and selects the one with the least memory among those about as fast as the
        # fastest. This cannot be disabled.
        ("cudnn_autotune", "on"),
    )
end

# `adapt(CuArray, _)` keeps the element type; `cu` would convert Float64, which the parity check needs, to Float32.
function PolyBench.to_device(device::CUDADevice, array::AbstractArray)
    select(device)
    return adapt(CuArray, array)
end

function PolyBench.to_device(device::CUDADevice, model)
    select(device)
    return fmap(to_cuda, model)
end

to_cuda(leaf) = leaf
to_cuda(array::AbstractArray) = adapt(CuArray, array)
# Like Flux's own `gpu` for `Dropout`: NNlib accepts no generator of the host for arrays of the device.
to_cuda(::AbstractRNG) = CUDA.default_rng()

PolyBench.device_of(array::CuArray) = CUDADevice(CUDA.deviceid(CUDA.device(array)))

function PolyBench.seed!(device::CUDADevice, seed::Int)
    select(device)
    return CUDA.seed!(seed)
end

# Select the device first: any other use of CUDA.jl's state creates a context on GPU 0.
select(device::CUDADevice) = CUDA.device!(device.index)

# Only at both ends of a timing block. Flux's users also wait for the GPU in each step, because the loss is a number on the host.
PolyBench.synchronize(::CUDADevice) = CUDA.synchronize()

function PolyBench.allocated(f, device::CUDADevice)
    select(device)
    timed = CUDA.@timed f()
    return (
        (Base.gc_alloc_count(timed.cpu_gcstats), timed.cpu_bytes),
        (timed.gpu_memstats.alloc_count, timed.gpu_bytes),
    )
end

function PolyBench.device_peak_bytes(device::CUDADevice)
    select(device)
    # Unknown without a pool (an old driver, JULIA_CUDA_MEMORY_POOL=none).
    ismissing(CUDA.used_memory()) && return nothing
    pool = CUDA.memory_pool(CUDA.device())
    return Int(CUDA.attribute(UInt64, pool, CUDA.MEMPOOL_ATTR_USED_MEM_HIGH))
end

function PolyBench.device_bytes_in_use(device::CUDADevice)
    select(device)
    return coalesce(CUDA.used_memory(), nothing)
end

function PolyBench.device_reserved_bytes(device::CUDADevice)
    select(device)
    return coalesce(CUDA.cached_memory(), nothing)
end

end
