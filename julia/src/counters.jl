"""
What Julia counts by itself, its build, and its threads.
"""
function collected end

"""
    collected()

What the garbage collector did since the process started: seconds that the program stood still for it (as `@time`
has them), and full sweeps.
"""
function collected()
    now = Base.gc_num()
    return now.total_time / 1.0e9, Int(now.full_sweep)
end

"""
    collect!()

Collect all garbage, old and young.
"""
collect!() = (GC.gc(true); nothing)

"""
    collected(trainer)

The same without what the trainer kept out of its steps.
"""
function collected(trainer)
    seconds, sweeps = collected()
    return seconds - trainer.aside, sweeps
end

"""
    count_allocations!(trainer, batches, first, n)

`run_steps!`, and what `allocated` says of the `n` steps together.
"""
count_allocations!(trainer::Trainer, batches::AbstractVector{<:Batch}, first::Int, n::Int) =
    around_steps(() -> allocated(() -> timed_steps!(trainer, batches, first, n), trainer.device), trainer)

"""
    allocation_places!(profile, trainer, batches, first, n)

`run_steps!`, and which functions allocated in Julia's heap: (function, bytes, count), in the `n` steps together.
`profile` is the standard library's module, handed in so that nobody else waits until it is loaded.
"""
function allocation_places!(profile::Module, trainer::Trainer, batches::AbstractVector{<:Batch}, first::Int, n::Int)
    profile.Allocs.clear()
    around_steps(trainer) do
        profile.Allocs.start(; sample_rate = 1.0)
        try
            timed_steps!(trainer, batches, first, n)
        finally
            profile.Allocs.stop()
        end
    end
    found = Dict{String, Tuple{Int, Int}}()
    for allocation in profile.Allocs.fetch().allocs
        place = innermost_function(allocation.stacktrace)
        bytes, count = get(found, place, (0, 0))
        found[place] = (bytes + Int(allocation.size), count + 1)
    end
    profile.Allocs.clear()
    return [(place, bytes, count) for (place, (bytes, count)) in found]
end

"""
    innermost_function(stacktrace)

The function of a package that is nearest to the allocation: Julia's own, which it called, say little.
"""
function innermost_function(stacktrace)
    for frame in stacktrace
        found = match(r"/packages/(?<package>[^/]+)/[^/]+/(?<file>.+)$", string(frame.file))
        found === nothing || return "$(found[:package]): $(frame.func) ($(found[:file]))"
    end
    return "outside of packages"
end

"""
    facts()

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

"""
    set_blas_threads(n)
"""
set_blas_threads(n::Int) = BLAS.set_num_threads(n)
