"""
Benchmarks in a Julia session of one's own: polybench's networks, or any model with a loss.

A round starts from the initial weights and the optimizer's initial state, takes two steps that are not timed, and times the
next ones: all rounds time the same steps of the same training, as those of `polybench compare` do.
"""
const UNTIMED_STEPS = 2

"""What `measure` runs: a network of polybench's on its own batches. See `Own` for the other kind."""
struct Named{T <: Trainer, B}
    trainer::T
    batches::B
end

restart!(run::Named) = reset!(run.trainer)
steps!(run::Named, first::Int, n::Int) = run_steps!(run.trainer, run.batches, first, n)
last_loss(run::Named) = last_loss(run.trainer)
count_steps!(run::Named, first::Int, n::Int) = count_allocations!(run.trainer, run.batches, first, n)[1]
sample_steps(run::Named) = run.trainer.device isa CPU ? 1 : typemax(Int)

"""A model of the user's, on one batch; the model itself stays as it is."""
mutable struct Own{M, F, B, R}
    const initial::M
    const model::M
    const loss::F
    const batch::B
    const rule::R
    state::Any
    value::Float64
end

Own(model, loss, batch, rule) =
    Own(model, deepcopy(model), loss, batch, rule, Flux.setup(rule, model), NaN)

function restart!(run::Own)
    Flux.loadmodel!(run.model, run.initial)
    run.state = Flux.setup(run.rule, run.model)
    return nothing
end

function steps!(run::Own, ::Int, n::Int)
    start = time_ns()
    for _ in 1:n
        run.value = own_step!(run.model, run.state, run.loss, run.batch)
    end
    return (time_ns() - start) / 1.0e9
end

function own_step!(model, state, loss, batch)
    value, gradients = Flux.withgradient(m -> loss(m, batch...), model)
    Flux.update!(state, model, gradients[1])
    return Float64(value)
end

last_loss(run::Own) = run.value
count_steps!(run::Own, first::Int, n::Int) = allocated(() -> steps!(run, first, n), CPU())[1]
sample_steps(::Own) = 1

"""
    bench(name; batch, data = "synthetic", device = "cpu", seed = 0, rounds = 5, steps = 14, blas_threads, heap = "keep")

Train one of polybench's networks (`:lenet`, `:resnet32`, ...; see `model_names()`) and time its steps.

Weights, images and batches are those of `polybench compare` with the same seed, bit for bit; `data` is `"synthetic"` or a
folder with CIFAR-10's binary files. The batch size and the optimizer are the network's own unless told otherwise.
Without another word BLAS has one thread where Julia has several: NNlib runs one task a Julia thread, and each calls BLAS.
With `heap = "keep"`, as `polybench compare` has it, the C library keeps what is freed from now on, in the whole process;
`"system"` leaves it as it is, and is refused after `"keep"`. For `device = "cuda"` load CUDA and cuDNN first. Nothing of that
has run on a GPU yet.

```julia
trial = bench(:lenet; batch = 128)
median(trial), minimum(trial), gcshare(trial)
```
"""
function bench(
        name::Union{Symbol, AbstractString}; batch::Union{Int, Nothing} = nothing, data::AbstractString = "synthetic",
        device::AbstractString = "cpu", seed::Integer = 0, rounds::Int = 5, steps::Int = 14,
        blas_threads::Int = own_blas_threads(), heap::AbstractString = "keep",
    )
    check_rounds(rounds, steps)
    check_there(PolyBench.device(device))
    forbid_tf32!(PolyBench.device(device))
    keep_heap(heap)
    network = model(name)
    batch_size = something(batch, network.batch_size)
    images = dataset(network, data, seed)
    order = epoch_order(length(images.labels), batch_size, seed, 0)
    weights = initial_weights(network, seed)
    return with_blas_threads(blas_threads) do
        drawn = first_batches(network, images, order, UNTIMED_STEPS + steps, device)
        run = Named(trainer(network, weights, device), drawn)
        title = "$(network.name) ($(grouped(parameter_count(network))) parameters) on $(images.name), batch $batch_size, " *
            "Float32, $device, $(Threads.nthreads()) threads"
        circumstances = (; model = network, images, order, weights, batch_size, device, seed, steps, heap, here_and_now()...)
        measure(run, title, rounds, steps, circumstances)
    end
end

"""
    bench(model, loss, batch; optimizer = Flux.Descent(0.01), title, rounds = 5, steps = 14, blas_threads, heap = "keep")

The same of a model of one's own, a `Chain` or any other that Flux trains, on one batch. The loss is called as `Flux.train!`
calls it, `loss(model, batch...)`. The model is copied, and stays as it is.

```julia
bench(Chain(Dense(8 => 3)), (m, x, y) -> Flux.mse(m(x), y), (rand(Float32, 8, 64), rand(Float32, 3, 64)))
```
"""
function bench(
        own, loss, batch::Tuple; optimizer = Flux.Descent(0.01), title::AbstractString = "a model of $(nameof(typeof(own)))",
        rounds::Int = 5, steps::Int = 14, blas_threads::Int = own_blas_threads(), heap::AbstractString = "keep",
    )
    check_rounds(rounds, steps)
    applicable(loss, own, batch...) ||
        throw(ArgumentError("the loss is called as loss(model, batch...), and this one takes no such arguments"))
    keep_heap(heap)
    return with_blas_threads(blas_threads) do
        run = Own(own, loss, batch, optimizer)
        measure(run, "$title, $(Threads.nthreads()) threads", rounds, steps, nothing)
    end
end

"""
What a document says of the process and its machine, as they are while BLAS has the threads that are measured.
"""
here_and_now() = (; started = Dates.now(Dates.UTC), host = this_host(), facts = facts())

check_rounds(rounds, steps) =
    min(rounds, steps) >= 1 || throw(ArgumentError("$rounds rounds of $steps steps: there is at least one of each"))

trainer(network::Model, weights, name) = Trainer(
    device(name), Float32, network.records, weights;
    optimizer = network.optimizer["name"], learning_rate = network.optimizer["learning_rate"],
    momentum = get(network.optimizer, "momentum", 0.0), weight_decay = get(network.optimizer, "weight_decay", 0.0),
)

function first_batches(network::Model, dataset::Dataset, order, count, name)
    places = order[:, mod1.(1:count, size(order, 2))]
    pixels = dataset.images[:, :, :, vec(places) .+ 1] ./ 255.0f0
    shaped = reshape(pixels, reverse(network.input_shape)..., size(places)...)
    return batches(device(name), Float32, shaped, dataset.labels[places .+ 1], network.classes)
end

"""
    measure(run, title, rounds, steps, circumstances)

The timed rounds. What a step allocates is counted in a pass of its own, after them.
"""
function measure(run, title, rounds, steps, circumstances)
    restart!(run)
    first_step = steps!(run, 0, 1)
    losses = [last_loss(run)]
    for step in 1:(UNTIMED_STEPS + min(steps, 3) - 1)
        steps!(run, step, 1)
        push!(losses, last_loss(run))
    end
    times, collector = Vector{Float64}[], Vector{Float64}[]
    timed = UNTIMED_STEPS:(UNTIMED_STEPS + steps - 1)
    for _ in 1:rounds
        restart!(run)
        steps!(run, 0, UNTIMED_STEPS)
        of_round = [sample(run, part) for part in Iterators.partition(timed, min(steps, sample_steps(run)))]
        push!(times, first.(of_round))
        push!(collector, last.(of_round))
        isfinite(last_loss(run)) || throw(ErrorException("the loss is $(last_loss(run)): this training diverges"))
    end
    restart!(run)
    steps!(run, 0, UNTIMED_STEPS)
    count, bytes = count_steps!(run, UNTIMED_STEPS, steps)
    kind = sample_steps(run) == 1 ? "step" : "block"
    return Trial(title, times, collector, kind, bytes / steps, count / steps, first_step, losses, circumstances)
end

"""
    sample(run, part)

Seconds of a step of these, and what the collector took of it.
"""
function sample(run, part)
    before, _ = collected()
    seconds = steps!(run, first(part), length(part))
    return seconds / length(part), (first(collected()) - before) / length(part)
end

own_blas_threads() = Threads.nthreads() > 1 ? 1 : BLAS.get_num_threads()

function with_blas_threads(f, n::Int)
    before = BLAS.get_num_threads()
    BLAS.set_num_threads(n)
    try
        return f()
    finally
        BLAS.set_num_threads(before)
    end
end

"""
    keep_heap(policy)

With `"keep"`, what `GLIBC_TUNABLES` says to a worker of polybench (`polybench/wire/environment.py`): no block below 1 GiB
has a mapping of its own, what is free at the heap's top stays, and all threads share one arena. glibc only.
Nothing takes that back: `"system"` is refused where this process keeps already.
"""
function keep_heap(policy::AbstractString)
    policy in ("keep", "system") || throw(ArgumentError("heap is \"keep\" or \"system\", and not \"$policy\""))
    policy == "system" && KEEPS_HEAP[] && throw(
        ArgumentError(
            "this process keeps what is freed, since something was measured with heap = \"keep\": " *
                "measure heap = \"system\" in a Julia that was started for it",
        )
    )
    policy == "keep" && Sys.islinux() || return nothing
    KEEPS_HEAP[] = true
    # malloc.h: M_TRIM_THRESHOLD, M_MMAP_THRESHOLD, M_ARENA_MAX. As an int, mallopt takes at most 2 GiB less one.
    for (parameter, value) in ((-1, typemax(Cint)), (-3, Cint(1 << 30)), (-8, Cint(1)))
        ccall(:mallopt, Cint, (Cint, Cint), parameter, value)
    end
    return nothing
end

const KEEPS_HEAP = Ref(false)

grouped(n::Integer) = replace(string(n), r"(?<=\d)(?=(\d{3})+$)" => ",")
