"""
Training on a CUDA device. Written against the documentation of CUDA.jl 5 and Flux 0.16; it has not run on a GPU yet.
"""
module PolyBenchCUDAExt

using CUDA: CUDA, CuArray
using PolyBench: PolyBench, CUDADevice
using PolyBench.Flux: adapt, fmap
using PolyBench.Random: AbstractRNG
using cuDNN: cuDNN  # Flux needs it for convolutions on the GPU

PolyBench.cuda_devices(::Val{:extension}) = CUDA.functional() ? Int(CUDA.ndevices()) : 0

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
    CUDA.seed!(seed)
end

function select(device::CUDADevice)
    CUDA.device!(device.index)
    # No TensorFloat-32: polybench sets the precision and inherits none.
    CUDA.math_mode!(CUDA.DEFAULT_MATH)
end

PolyBench.synchronize(::CUDADevice) = CUDA.synchronize()

end
