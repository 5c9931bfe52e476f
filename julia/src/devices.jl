"""
Where a network trains. The methods for CUDA are in `ext/PolyBenchCUDAExt.jl`, which Julia loads together
with the packages CUDA and cuDNN, so a user of the CPU never needs them.
"""
abstract type Device end

"""The CPU: arrays are `Array`s."""
struct CPU <: Device end

"""The CUDA device with this index, from 0."""
struct CUDADevice <: Device
    index::Int
end

"""    device(name)

The device of a name such as `cpu`, `cuda` or `cuda:1`.
"""
function device(name::AbstractString)
    kind, _, index = partition(name, ':')
    kind == "cpu" && return CPU()
    kind == "cuda" && return CUDADevice(isempty(index) ? 0 : parse(Int, index))
    throw(ArgumentError("no device is called \"$name\""))
end

"""    place(device, x)

`x` (an array, or a model with arrays in it) on the device; the CPU copies nothing.
"""
place(::CPU, x) = x

"""    synchronize(device)

Wait until the device has done what it was asked to do.
"""
synchronize(::CPU) = nothing

"""    seed!(device, seed)

Start the generator that `Dropout` draws from on this device.
"""
seed!(::CPU, seed::Int) = Random.seed!(seed)

"""    cuda_devices()

How many CUDA devices there are; 0 without the package extension.
"""
cuda_devices() = cuda_devices(Val(:extension))
cuda_devices(::Any) = 0

function partition(text::AbstractString, separator::Char)
    parts = split(text, separator; limit = 2)
    return length(parts) == 2 ? (parts[1], separator, parts[2]) : (parts[1], "", "")
end
