"""
A device for training. The methods for CUDA are in `ext/PolyBenchCUDAExt.jl`, which Julia loads with
the packages CUDA and cuDNN, so users of the CPU need neither.
"""
abstract type Device end

"""Element types of networks by the name that saved studies and Python use."""
const ELEMENT_TYPES = Dict("float32" => Float32, "float64" => Float64)

"""The CPU, with `Array`s."""
struct CPU <: Device end

"""The CUDA device with this index, from 0. A program that polybench prints selects the arithmetic, which is a state of CUDA.jl."""
struct CUDADevice <: Device
    index::Int
end

"""
    device(name)

Return the device of a name such as `cpu`, `cuda` or `cuda:1`.
"""
function device(name::AbstractString)
    kind, _, index = partition(name, ':')
    kind == "cpu" && return CPU()
    kind == "cuda" && return CUDADevice(isempty(index) ? 0 : parse(Int, index))
    throw(ArgumentError("unknown device \"$name\": expected cpu, cuda or cuda:N"))
end

"""
    device_name(device)

Return the name of a device, as in `device`.
"""
device_name(::CPU) = "cpu"
device_name(device::CUDADevice) = device.index == 0 ? "cuda" : "cuda:$(device.index)"

"""
    check_available(device)

Throw an ArgumentError with a fix if this session does not have the device.
"""
check_available(::CPU) = nothing
function check_available(device::CUDADevice)
    device.index < cuda_devices() && return nothing
    hint = "run `using CUDA, cuDNN` first, on a machine with this GPU"
    throw(ArgumentError("cuda:$(device.index) is not available: $hint"))
end

const TF32_OVERRIDE = "NVIDIA_TF32_OVERRIDE"

"""
    disable_tf32!(device)

Disable TensorFloat-32 in this session, whatever its math mode. NVIDIA's libraries read the variable at their first use,
so call this first. Workers of `polybench compare` start with this variable.
"""
disable_tf32!(::CPU) = nothing
function disable_tf32!(::CUDADevice)
    get(ENV, TF32_OVERRIDE, "") == "0" || (ENV[TF32_OVERRIDE] = "0")
    return nothing
end

"""
    to_device(device, x)

Move `x` (an array, or a model with arrays) to the device; the CPU copies nothing.
"""
to_device(::CPU, x) = x

"""
    synchronize(device)

Wait until the device has completed all of its work.
"""
synchronize(::CPU) = nothing

"""
    infer(device, model, x)

Return the output of the model for `x` in the host's memory; its chain must be in test mode.
"""
infer(::Device, model, x) = Array(model(x))

"""
    allocated(f, device)

Count the allocations of `f()` like `@time`: (count, bytes) in Julia's heap, of all threads, and (count, bytes) on the device, or ()
for the CPU.
"""
function allocated(f, ::CPU)
    timed = @timed f()
    return (Base.gc_alloc_count(timed.gcstats), timed.bytes), ()
end

"""
    device_peak_bytes(device)

Return the peak number of bytes in use on the device; nothing for the CPU, or if unknown.
"""
device_peak_bytes(::CPU) = nothing

"""
    device_bytes_in_use(device)

Return the bytes in use now in the device's memory pool; `nothing` on the CPU, or if unknown.
"""
device_bytes_in_use(device) = nothing

"""
    device_reserved_bytes(device)

Return the size of the device's memory pool in bytes; nothing for the CPU, or if unknown.
"""
device_reserved_bytes(::CPU) = nothing

"""
    seed!(device, seed)

Seed the generator that `Dropout` uses on this device.
"""
seed!(::CPU, seed::Int) = Random.seed!(seed)

"""
    cuda_devices()

Count the CUDA devices; 0 without the package extension.
"""
cuda_devices() = cuda_devices(Val(:extension))
cuda_devices(::Any) = 0

"""
    cuda_info()

Return (name, text) of CUDA's versions and settings; empty without the package extension or a GPU.
"""
cuda_info() = cuda_info(Val(:extension))
cuda_info(::Any) = ()

function partition(text::AbstractString, separator::Char)
    parts = split(text, separator; limit = 2)
    return length(parts) == 2 ? (parts[1], separator, parts[2]) : (parts[1], "", "")
end
