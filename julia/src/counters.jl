"""
What Julia counts by itself: allocations and garbage collection since the process started, and its threads.
"""
function counters end

"""    counters()

Cumulative numbers of this process; what a block of steps did is the difference of two calls. They see Julia's own
heap, not the memory that BLAS or a GPU allocates.
"""
function counters()
    now = Base.gc_num()
    return (
        allocations = now.malloc + now.realloc + now.poolalloc + now.bigalloc,
        bytes = Base.gc_total_bytes(now),
        gc_seconds = now.total_time / 1e9,
        sweeps = Int(now.pause),
        full_sweeps = Int(now.full_sweep),
    )
end

"""    counting(f)

The `counters` of one call `f()`.
"""
function counting(f)
    before = counters()
    f()
    after = counters()
    return map(-, after, before)
end

"""    facts()

What the build and its thread pools are, as text.
"""
facts() = (
    julia = string(VERSION),
    flux = string(pkgversion(Flux)),
    nnlib = string(pkgversion(Flux.NNlib)),
    zygote = string(pkgversion(Flux.Zygote)),
    optimisers = string(pkgversion(Flux.Optimisers)),
    blas = join((basename(library.libname) for library in BLAS.get_config().loaded_libs), " "),
    cpu = Sys.CPU_NAME,
    julia_threads = string(Threads.nthreads()),
    blas_threads = string(BLAS.get_num_threads()),
    gc_threads = string(Threads.ngcthreads()),
)

"""    set_blas_threads(n)"""
set_blas_threads(n::Int) = BLAS.set_num_threads(n)
