"""
Training on a CUDA device. Held against the sources of CUDA.jl 5.11.3, cuDNN.jl 1.4.6, NNlib 0.9.36 and Flux 0.16.10, and
run with arrays of JLArrays in place of CUDA's (`test/cuda.jl`); it has not run on a GPU yet.
"""
module PolyBenchCUDAExt

using CUDA: CUDA, CuArray
using PolyBench: PolyBench, CUDADevice
using PolyBench.Flux: adapt, fmap
using PolyBench.Random: AbstractRNG
using cuDNN: cuDNN  # Flux needs it for convolutions on the GPU

PolyBench.cuda_devices(::Val{:extension}) = CUDA.functional() ? Int(CUDA.ndevices()) : 0

function PolyBench.cuda_facts(::Val{:extension})
    CUDA.functional() || return ()
    return (
        ("cuda_jl", string(pkgversion(CUDA))),
        ("cudnn_jl", string(pkgversion(cuDNN))),
        ("cuda", string(CUDA.runtime_version())),
        ("cudnn", string(cuDNN.cudnnGetVersion())),
        # NNlib asks cuDNN.jl, which times the algorithms for each new convolution (cudnnFindConvolution*AlgorithmEx
        # in lib/cudnn/src/convolution.jl) and keeps the one with the least memory of those about as fast as the
        # fastest. There is no switch for that.
        ("cudnn_autotune", "on"),
    )
end

# `adapt(CuArray, _)` keeps the element type; `cu` would turn Float64, which the parity check needs, into Float32.
function PolyBench.place(device::CUDADevice, array::AbstractArray)
    select(device)
    return adapt(CuArray, array)
end

function PolyBench.place(device::CUDADevice, model)
    select(device)
    return fmap(moved, model)
end

moved(leaf) = leaf
moved(array::AbstractArray) = adapt(CuArray, array)
# As Flux's own `gpu` does for `Dropout`: NNlib takes no generator of the host for arrays of the device.
moved(::AbstractRNG) = CUDA.default_rng()

function PolyBench.seed!(device::CUDADevice, seed::Int)
    select(device)
    return CUDA.seed!(seed)
end

# The device first: whatever else asks CUDA.jl for its state makes a context on GPU 0.
function select(device::CUDADevice)
    CUDA.device!(device.index)
    return set_arithmetic(Val(device.arithmetic))
end

"""
    set_arithmetic(arithmetic)

TensorFloat-32 for products and convolutions alike, or for neither.

CUDA.jl's math mode alone does not do that. Under `DEFAULT_MATH` products are exact to float32, but cuDNN.jl asks for
`CUDNN_TENSOR_OP_MATH`, and under `PEDANTIC_MATH` for `CUDNN_DEFAULT_MATH` (`math_mode` in lib/cudnn/src/cuDNN.jl):
both let cuDNN convolve in TensorFloat-32 on Ampere and later. NVIDIA's way to forbid that to all its libraries is
the variable `NVIDIA_TF32_OVERRIDE`, which they read when they are first used: workers are started with it (`forbid_tf32!`).
Under `FAST_MATH` cuDNN.jl asks for `CUDNN_TENSOR_OP_MATH_ALLOW_CONVERSION`, which lets cuDNN take float16 as well:
as many bits of mantissa, but a smaller range. CUDA.jl has no mode with TensorFloat-32 products and without that.
For Float64 cuDNN has no algorithm with tensor cores, and cuDNN.jl would warn that it found no valid one.
"""
set_arithmetic(::Val{:tf32}) = CUDA.math_mode!(CUDA.FAST_MATH; precision = :TensorFloat32)
set_arithmetic(::Val{:float32}) = CUDA.math_mode!(CUDA.DEFAULT_MATH)
set_arithmetic(::Val{:float64}) = CUDA.math_mode!(CUDA.PEDANTIC_MATH)

# At both ends of a block only. Flux's users wait for the GPU once more in each step: the loss is a number of the host.
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
    # Without a pool (an old driver, JULIA_CUDA_MEMORY_POOL=none) nobody knows.
    ismissing(CUDA.used_memory()) && return nothing
    pool = CUDA.memory_pool(CUDA.device())
    return Int(CUDA.attribute(UInt64, pool, CUDA.MEMPOOL_ATTR_USED_MEM_HIGH))
end

function PolyBench.device_reserved_bytes(device::CUDADevice)
    select(device)
    return coalesce(CUDA.cached_memory(), nothing)
end

end
