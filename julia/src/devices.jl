"""
Where a network trains. The methods for CUDA are in `ext/PolyBenchCUDAExt.jl`, which Julia loads together
with the packages CUDA and cuDNN, so a user of the CPU never needs them.
"""
abstract type Device end

"""The CPU: arrays are `Array`s."""
struct CPU <: Device end

"""
The CUDA device with this index, from 0, and how it multiplies: `:float32` and `:float64` as these types are, `:tf32`
`Float32` as TensorFloat-32.
"""
struct CUDADevice <: Device
    index::Int
    arithmetic::Symbol
end

"""
    device(name; tf32 = false, type = Float32)

The device of a name such as `cpu`, `cuda` or `cuda:1`, for arrays of `type`; only those of `Float32` can be TensorFloat-32.
"""
function device(name::AbstractString; tf32::Bool = false, type::Type{<:AbstractFloat} = Float32)
    kind, _, index = partition(name, ':')
    kind == "cpu" && !tf32 && return CPU()
    kind == "cpu" && throw(ArgumentError("TensorFloat-32 exists on cuda only"))
    arithmetic = type === Float64 ? :float64 : tf32 ? :tf32 : :float32
    kind == "cuda" && return CUDADevice(isempty(index) ? 0 : parse(Int, index), arithmetic)
    throw(ArgumentError("no device is called \"$name\""))
end

"""
    check_there(device)

An error in words where there is no such device in this session.
"""
check_there(::CPU) = nothing
function check_there(device::CUDADevice)
    device.index < cuda_devices() && return nothing
    wanted = "`using CUDA, cuDNN` comes first, on a machine that has the GPU"
    throw(ArgumentError("there is no cuda:$(device.index) here: $wanted"))
end

const TF32_OVERRIDE = "NVIDIA_TF32_OVERRIDE"

"""
    forbid_tf32!(device)

No TensorFloat-32 in this session, whatever its math mode. NVIDIA's libraries read the variable when they are first used,
so this comes before all else, once; a worker of `polybench compare` is started with it.
"""
forbid_tf32!(::CPU) = nothing
function forbid_tf32!(::CUDADevice)
    get(ENV, TF32_OVERRIDE, "") == "0" || (ENV[TF32_OVERRIDE] = "0")
    return nothing
end

"""
    place(device, x)

`x` (an array, or a model with arrays in it) on the device; the CPU copies nothing.
"""
place(::CPU, x) = x

"""
    synchronize(device)

Wait until the device has done what it was asked to do.
"""
synchronize(::CPU) = nothing

"""
    infer(device, model, x)

What the model makes of `x`, in the host's memory; its chain is in test mode.
"""
infer(::Device, model, x) = Array(chain_of(model)(x))

"""
    allocated(f, device)

What one call `f()` allocates, counted as `@time` does: (count, bytes) in Julia's heap, by all threads, and (count,
bytes) on the device, () if that is the CPU.
"""
function allocated(f, ::CPU)
    timed = @timed f()
    return (Base.gc_alloc_count(timed.gcstats), timed.bytes), ()
end

"""
    device_peak_bytes(device)

The most bytes that were ever in use on the device at one time; nothing for the CPU, or if it cannot be known.
"""
device_peak_bytes(::CPU) = nothing

"""
    device_reserved_bytes(device)

What the device's pool holds, in use or not; nothing for the CPU, or if it cannot be known.
"""
device_reserved_bytes(::CPU) = nothing

"""
    seed!(device, seed)

Start the generator that `Dropout` draws from on this device.
"""
seed!(::CPU, seed::Int) = Random.seed!(seed)

"""
    cuda_devices()

How many CUDA devices there are; 0 without the package extension.
"""
cuda_devices() = cuda_devices(Val(:extension))
cuda_devices(::Any) = 0

"""
    cuda_facts()

(name, text) of what CUDA code is made with and how it computes; none without the package extension or a GPU.
"""
cuda_facts() = cuda_facts(Val(:extension))
cuda_facts(::Any) = ()

function partition(text::AbstractString, separator::Char)
    parts = split(text, separator; limit = 2)
    return length(parts) == 2 ? (parts[1], separator, parts[2]) : (parts[1], "", "")
end
