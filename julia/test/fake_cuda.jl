"""
The functions of CUDA.jl that the extension calls, with the signatures of version 5.11.3 (the comments name their files).
Their arrays are JLArrays, which GPUArrays uses for tests and which reject operations that a GPU cannot do.
`calls` lists the calls that change a GPU's state, in order.
"""
module CUDA

    using JLArrays: JLArray
    using Random

    const CuArray = JLArray  # src/array.jl

    @enum MathMode PEDANTIC_MATH DEFAULT_MATH FAST_MATH  # lib/cudadrv/state.jl
    @enum PoolAttribute MEMPOOL_ATTR_USED_MEM_HIGH = 8  # lib/cudadrv/pool.jl, libcuda.jl
    struct CuDevice  # lib/cudadrv/devices.jl
        handle::Int32
    end
    struct CuMemoryPool end  # lib/cudadrv/pool.jl
    struct AllocStats  # src/memory.jl
        alloc_count::Int
        alloc_bytes::Int
    end

    const calls = Any[]
    const has_pool, is_functional = Ref(true), Ref(true)
    const generator = MersenneTwister(0)

    functional(show_reason::Bool = false) = is_functional[]  # src/initialization.jl
    ndevices() = 2  # lib/cudadrv/devices.jl
    runtime_version() = v"13.0"  # lib/cudadrv/version.jl
    device() = CuDevice(0)  # lib/cudadrv/state.jl
    device(::CuArray) = CuDevice(0)  # src/array.jl
    deviceid(device::CuDevice) = Int(device.handle)  # lib/cudadrv/devices.jl
    device!(index::Integer, flags = nothing) = (push!(calls, (:device, Int(index))); CuDevice(index))  # state.jl
    function math_mode!(mode::MathMode; precision = nothing)  # state.jl
        push!(calls, (:math_mode, mode, precision))
        return nothing
    end
    default_rng() = generator  # src/random.jl
    seed!(seed = rand(UInt64)) = Random.seed!(generator, seed)  # src/random.jl
    synchronize(; blocking::Bool = false, spin::Bool = true) = (push!(calls, :synchronize); nothing)  # synchronization.jl
    used_memory() = has_pool[] ? 5 : missing  # src/memory.jl
    cached_memory() = has_pool[] ? 7 : missing  # src/memory.jl
    memory_pool(::CuDevice) = CuMemoryPool()  # lib/cudadrv/pool.jl
    attribute(::Type{T}, ::CuMemoryPool, ::PoolAttribute) where {T} = T(11)  # lib/cudadrv/pool.jl

    macro timed(ex)  # src/memory.jl: its fields
        return quote
            local before = Base.gc_num()
            local value = $(esc(ex))
            local difference = Base.GC_Diff(Base.gc_num(), before)
            (
                value = value, time = 0.1, cpu_bytes = difference.allocd, cpu_gctime = 0.0, cpu_gcstats = difference,
                gpu_bytes = 64, gpu_memtime = 0.0, gpu_memstats = AllocStats(3, 64),
            )
        end
    end

end

"""The same for cuDNN.jl 1.4.6 (lib/cudnn/src/libcudnn.jl)."""
module cuDNN

cudnnGetVersion() = Csize_t(92000)

end
