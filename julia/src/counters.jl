"""
Counters of Julia's runtime, and its build and threads.
"""
function gc_stats end

"""
    gc_stats()

Return the garbage collector's statistics since the process started: seconds that it stopped the program (as in `@time`), and the
number of full collections.
"""
function gc_stats()
    now = Base.gc_num()
    return now.total_time / 1.0e9, Int(now.full_sweep)
end

"""
    run_gc()

Run a full garbage collection.
"""
run_gc() = (GC.gc(true); nothing)

"""
    heap_bytes_in_use()

Return the bytes in use now in Julia's heap, with the small objects in its pools; right after `run_gc`, without garbage.
"""
heap_bytes_in_use() = Int(Base.gc_live_bytes())

"""
    resource_usage()

Return this process's seconds of CPU time, on all threads, and how many pages the kernel has mapped for it without reading from
disk (`ru_minflt` of getrusage(2)).
"""
function resource_usage()
    usage = zeros(Clong, 36)  # two times of seconds and microseconds, then maxrss, ixrss, idrss, isrss, minflt, and others
    ccall(:getrusage, Cint, (Cint, Ptr{Clong}), 0, usage)
    return (; cpu_seconds = usage[1] + usage[3] + (usage[2] + usage[4]) / 1.0e6, minor_faults = Int(usage[9]))
end

page_faults() = resource_usage().minor_faults

block_counters() = (; resource_usage()..., full_collections = last(gc_stats()))

"""
    gc_stats(trainer)

Return the same statistics without the collections that the trainer excludes from its steps.
"""
function gc_stats(trainer)
    seconds, full_collections = gc_stats()
    return seconds - trainer.excluded_gc_seconds, full_collections
end

"""
    count_allocations!(trainer, batches, first, n)

Run `n` steps like `run_steps!`, and return the total of `allocated`.
"""
count_allocations!(trainer::ProgramTrainer, batches::AbstractVector{<:Batch}, first::Int, n::Int) =
    allocated(() -> run_steps!(trainer, batches, first, n), trainer.device)

"""
    allocation_sites!(profile, trainer, batches, first, n)

Run `n` steps like `run_steps!`, and return (function, bytes, count) of allocations in Julia's heap, in total.
`profile` is the standard library's module; an argument, so that other callers need not load it.
"""
function allocation_sites!(profile::Module, trainer::ProgramTrainer, batches::AbstractVector{<:Batch}, first::Int, n::Int)
    profile.Allocs.clear()
    profile.Allocs.start(; sample_rate = 1.0)
    try
        run_steps!(trainer, batches, first, n)
    finally
        profile.Allocs.stop()
    end
    totals = Dict{String, Tuple{Int, Int}}()
    packages = package_folders()
    for allocation in profile.Allocs.fetch().allocs
        site = innermost_function(allocation.stacktrace, packages)
        bytes, count = get(totals, site, (0, 0))
        totals[site] = (bytes + Int(allocation.size), count + 1)
    end
    profile.Allocs.clear()
    return [(site, bytes, count) for (site, (bytes, count)) in totals]
end

"""
    package_folders()

Return the folder of each loaded package with its name, installed or developed, without Julia's own and this one.
"""
function package_folders()
    folders = Dict{String, String}()
    for package in values(Base.loaded_modules)
        file = pathof(package)
        (file === nothing || package === @__MODULE__) && continue
        is_extension = basename(dirname(file)) == "ext"
        is_of_julia = occursin("/stdlib/v$(VERSION.major).$(VERSION.minor)/", file)
        is_extension || is_of_julia || (folders[dirname(dirname(file)) * "/"] = string(nameof(package)))
    end
    return folders
end

"""
    innermost_function(stacktrace, packages)

Return the innermost function of a package; the functions of Julia that it calls say little.
"""
function innermost_function(stacktrace, packages::Dict{String, String})
    for frame in stacktrace
        file = string(frame.file)
        for (folder, package) in packages
            startswith(file, folder) && return "$package: $(frame.func) ($(chopprefix(file, folder)))"
        end
    end
    return "outside of packages"
end

"""
    build_info()

Return versions, build and thread pools as text.
"""
build_info() = (
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

Set the number of BLAS threads.
"""
set_blas_threads(n::Int) = BLAS.set_num_threads(n)
