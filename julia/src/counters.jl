"""
What Julia counts by itself, its build, and its threads.
"""
function collected end

"""    collected()

What the garbage collector did since the process started: seconds that the program stood still for it (as `@time`
has them), and full sweeps.
"""
function collected()
    now = Base.gc_num()
    return now.total_time / 1e9, Int(now.full_sweep)
end

"""    count_allocations!(trainer, batches, first, n)

`run_steps!`, and what `allocated` says of the `n` steps together.
"""
count_allocations!(trainer::Trainer, batches::AbstractVector{<:Batch}, first::Int, n::Int) =
    allocated(() -> run_steps!(trainer, batches, first, n), trainer.device)

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
