"""
Benchmarks in a Julia session: polybench's networks, or any model with a loss.

Each round starts from the initial weights and optimizer state, takes two untimed steps, and times the next ones. All
rounds time the same steps of the same training, as in `polybench compare`.
"""
const WARMUP_STEPS = 2

"""
The training of a model on its batches, which repeat. It trains a copy; `initial` is not modified.
"""
mutable struct ModelRun{M, F, B, S, W, D <: Device}
    const initial::M
    model::M
    const loss::F
    const batches::Vector{B}
    "Makes the state of the optimizer for a model."
    const setup::S
    "The `StepMode`, or the type of an automatic differentiation."
    const way::W
    const device::D
    state::Any
    "What `Flux.withgradient` takes after the function."
    differentiated::Any
    value::Float64
end

ModelRun(model, loss, batches, setup, way) =
    ModelRun(model, deepcopy(model), loss, batches, setup, way, device_of(model), nothing, nothing, NaN)

"""
    device_of(model)

Return the device of a model's first array. `ext/PolyBenchCUDAExt.jl` has the method for arrays on a GPU.
"""
device_of(array::AbstractArray) = CPU()
function device_of(model)
    arrays = Flux.trainables(model)
    return isempty(arrays) ? CPU() : device_of(first(arrays))
end

function reset!(run::ModelRun)
    seed!(run.device, 0)  # first: dropout draws the same masks in each round, maybe from a copied generator
    run.model = fresh_model(run.way, run)
    run.state = run.setup(run.model)
    run.differentiated = differentiated(run.way, run.model)
    return nothing
end

"""
    fresh_model(way, run)

Return the model with its initial arrays: a copy, which also has states that `Flux.loadmodel!` leaves out.
"""
fresh_model(_, run) = deepcopy(run.initial)

function run_steps!(run::ModelRun, first::Int, n::Int)
    disable_gc(run.way)
    synchronize(run.device)
    start = time_ns()
    for step in first:(first + n - 1)
        batch = run.batches[step % length(run.batches) + 1]
        run.value = train_step!(run.way, run.differentiated, run.model, run.state, run.loss, batch)
        after_step(run.way)
    end
    synchronize(run.device)
    seconds = (time_ns() - start) / 1.0e9
    enable_gc(run.way)
    return seconds
end

"""
    train_step!(way, differentiated, model, state, loss, batch)

Run one step, and return its loss as a number.
"""
function train_step!(_, differentiated, model, state, loss, batch)
    value, gradients = Flux.withgradient(m -> call(loss, m, batch), differentiated...)
    Flux.update!(state, model, gradients[1])
    return Float64(first(value))  # of (loss, aux)
end

function train_step!(::StepMode{:train}, _, model, state, loss, batch)
    last_loss = Ref(NaN)
    Flux.train!(model, (batch,), state) do m, parts...
        value = loss(m, parts...)
        ignore_derivatives(() -> (last_loss[] = first(value); nothing))  # `train!` does not return it
        return value
    end
    return last_loss[]
end

# As `Flux.train!` does: a tuple is several arguments.
call(loss, model, batch::Tuple) = loss(model, batch...)
call(loss, model, batch) = loss(model, batch)

last_loss(run::ModelRun) = run.value
count_allocations!(run::ModelRun, first::Int, n::Int) = allocated(() -> run_steps!(run, first, n), run.device)[1]
steps_per_value(run::ModelRun) = run.device isa CPU ? 1 : typemax(Int)

"""
    bench(name; batch, optimizer, learning_rate, way, data = "synthetic", device = "cpu", seed = 0, rounds = 5, steps = 14, ...)

Train one of polybench's networks (`:lenet`, `:resnet32`, ...; see `model_names()`) and time its steps.

Weights, images and batches equal those of `polybench compare` with the same seed, bit for bit. `data` is `"synthetic"` or a
folder with CIFAR-10's binary files. The defaults of batch size and optimizer are those of the network; an `optimizer` of another
name, such as `"adam"`, needs a `learning_rate`. `way` is a variant of `polybench engines`, such as `"train"` for `Flux.train!`, or
`"enzyme"`, `"mooncake"` and `"reactant"` after you load that package.

BLAS keeps its threads unless you set `blas_threads`; `polybench compare` uses one if Julia has several, because NNlib runs one
task per Julia thread, and each task calls BLAS. With `malloc = "retain"`, the default of `polybench compare` and of scripts, the
C library retains freed memory in the whole process from now on, which cannot be undone. `"system"`, the default in a REPL,
leaves the C library as it is, and is an error after `"retain"`. BLAS threads and the state of the random number generator are
restored. Load CUDA and cuDNN before you use `device = "cuda"`, which has never been run on a GPU.

Returns a `Trial` with `rounds` times `steps` step times. Throws an `ArgumentError` for an unknown name or option, for a data set that does
not fit the network, and for a missing device; throws an `ErrorException` if the loss is not finite.

```jldoctest
julia> using PolyBench

julia> trial = bench(:lenet; batch = 4, rounds = 2, steps = 3);

julia> length(trial), minimum(trial) <= median(trial), 0 <= gc_fraction(trial) < 1
(6, true, true)

julia> bench(:lenet5)
ERROR: ArgumentError: unknown network "lenet5": expected one of catdog-2, dlframeworks-cnn, keras-cnn, lenet, resnet32, small-vgg
```
"""
function bench(
        name::Union{Symbol, AbstractString}; batch::Union{Int, Nothing} = nothing, optimizer::Union{AbstractString, Nothing} = nothing,
        learning_rate::Union{Real, Nothing} = nothing, way::AbstractString = "", data::AbstractString = "synthetic",
        device::AbstractString = "cpu", seed::Integer = 0, rounds::Int = 5, steps::Int = 14,
        blas_threads::Int = BLAS.get_num_threads(), malloc::AbstractString = default_malloc_policy(),
    )
    check_rounds(rounds, steps)
    check_way(way)
    check_available(PolyBench.device(device))
    disable_tf32!(PolyBench.device(device))
    apply_malloc_policy(malloc)
    network = with_optimizer(model(name), optimizer, learning_rate)
    batch_size = something(batch, network.batch_size)
    images = dataset(network, data, seed)
    order = epoch_order(length(images.labels), batch_size, seed, 0)
    weights = initial_weights(network, seed)
    return restoring_process(blas_threads) do
        run = network_run(network, weights, way, first_batches(network, images, order, WARMUP_STEPS + steps), PolyBench.device(device))
        with_way = isempty(way) ? "" : ", $way"
        title = "$(network.name) ($(group_digits(parameter_count(network))) parameters) on $(images.name), batch $batch_size, " *
            "Float32, $device$with_way, $(describe_process(malloc))"
        work = BuiltinWork(network, images, order, weights, batch_size)
        metadata = (; work, device, way, seed, steps, malloc, process_info()...)
        measure(run, title, rounds, steps, metadata)
    end
end

"""
    bench(model, loss, x, y...; optimizer = Flux.Descent(0.01), way = AutoZygote(), title, rounds = 5, steps = 14, blas_threads, malloc)
    bench(model, loss, data; ...)

Train your own model, a `Chain` or any other model that Flux trains, and time its steps. It trains a copy of the model.

`data` is a batch, or an iterator of batches such as a `DataLoader`, whose first batches are used in turn. `bench` calls the loss like
`Flux.train!`: as `loss(model, batch...)` for a tuple, else as `loss(model, batch)`, for example for a `NamedTuple`. The loss may also
return `(loss, aux)`. The steps run where the model's arrays are. `way` is `"train"` for `Flux.train!`, or another automatic
differentiation, such as `AutoMooncake()`, after you load its package.

`optimizer` is a rule of Flux; `title` names the model in results and in saved studies. Returns a `Trial`. Throws an `ArgumentError` for
data without a batch, a loss without a method for the batch, and an unknown `way`; throws an `ErrorException` if the loss is not finite.

```jldoctest
julia> using Flux, PolyBench

julia> line, loss = Dense(2 => 1), (m, x, y) -> Flux.mse(m(x), y);

julia> x, y = ones(Float32, 2, 4), ones(Float32, 1, 4);

julia> trial = bench(line, loss, x, y; optimizer = Flux.Adam(), rounds = 2, steps = 3);

julia> length(trial), trial.losses[1] > trial.losses[end]
(6, true)

julia> bench(line, loss, Flux.DataLoader((x, y); batchsize = 2); way = "train") isa PolyBench.Trial
true
```
"""
bench(user_model, loss, x, y, others...; options...) = bench(user_model, loss, (x, y, others...); options...)

function bench(
        user_model, loss, data; optimizer = Flux.Descent(0.01), way = AutoZygote(),
        title::AbstractString = "a model of $(nameof(typeof(user_model)))", rounds::Int = 5, steps::Int = 14, blas_threads::Int = BLAS.get_num_threads(),
        malloc::AbstractString = default_malloc_policy(),
    )
    check_rounds(rounds, steps)
    way == "train" || way isa AbstractADType || throw(
        ArgumentError("way $(repr(way)) is unknown: expected \"train\", or a type of automatic differentiation, such as AutoZygote()")
    )
    batches = first_batches(data, WARMUP_STEPS + steps)
    isempty(batches) && throw(ArgumentError("the data has no batches"))
    batch = first(batches)
    applicable(loss, user_model, (batch isa Tuple ? batch : (batch,))...) ||
        throw(ArgumentError("the loss has no method for loss(model, batch...): pass a function with these arguments"))
    apply_malloc_policy(malloc)
    return restoring_process(blas_threads) do
        run = ModelRun(user_model, loss, batches, model -> Flux.setup(optimizer, model), way == "train" ? StepMode(way) : way)
        # Step functions of polybench have the same names.
        name = way == "train" ? way : way isa AutoZygote ? "" : lowercase(chopprefix(string(nameof(typeof(way))), "Auto"))
        work = UserWork(String(title), user_model, batches, optimizer)
        metadata = (; work, device = device_name(run.device), way = name, seed = 0, steps, malloc, process_info()...)
        measure(run, "$title, $(describe_process(malloc))", rounds, steps, metadata)
    end
end

"""
Information about the process and its machine for the saved study. BLAS must have the measured number of threads.
"""
process_info() = (; started = Dates.now(Dates.UTC), host = host_info(), build_info = build_info())

check_rounds(rounds, steps) =
    min(rounds, steps) >= 1 || throw(ArgumentError("$rounds rounds of $steps steps: expected at least 1 of each"))

"""
    first_batches(data, count)

Return the first batches of a user's data: a single one, or those of an iterator.
"""
first_batches(batch::Union{Tuple, NamedTuple, AbstractArray{<:Number}}, ::Int) = [batch]
first_batches(data, count::Int) = collect(Iterators.take(data, count))

function check_way(way::AbstractString)
    known = (STEP_FUNCTIONS..., GC_POLICIES...)
    isempty(setdiff(split(way, '+'; keepempty = false), known)) ||
        throw(ArgumentError("way \"$way\" is unknown: expected $(join(known, ", ", " or "))"))
    return nothing
end

"""
    with_optimizer(network, name, learning_rate)

Return the network with another optimizer or learning rate, if they are not nothing.
"""
function with_optimizer(network::Model, name, learning_rate)
    is_own = name in (nothing, network.optimizer["name"])
    is_own && learning_rate === nothing && return network
    learning_rate === nothing && throw(ArgumentError("optimizer \"$name\" needs a learning_rate, such as learning_rate = 0.001"))
    optimizer = merge(is_own ? network.optimizer : Dict{String, Any}("name" => name), Dict("learning_rate" => Float64(learning_rate)))
    name in ("momentum", "nesterov") && get!(optimizer, "momentum", 0.9)
    values = (field === :optimizer ? optimizer : getfield(network, field) for field in fieldnames(Model))
    return Model(values...)
end

"""
    network_run(network, weights, way, batches, device)

Return the run of one of polybench's networks with its optimizer, on a device.
"""
function network_run(network::Model, weights, way::AbstractString, batches, device::Device)
    (; optimizer) = network
    mode = StepMode(split(way, '+')...)
    update = rule(
        optimizer["name"]; learning_rate = optimizer["learning_rate"], momentum = get(optimizer, "momentum", 0.0),
        weight_decay = get(optimizer, "weight_decay", 0.0), betas = Tuple(get(optimizer, "betas", ADAM_BETAS)),
    )
    placed = device_for(mode, device)
    model = to_device(placed, PolyBench.network(network, weights, mode))
    moved = [map(array -> to_device(placed, array), batch) for batch in batches]
    return ModelRun(model, cross_entropy, moved, model -> decay_matrices_only!(Flux.setup(update, model)), mode)
end

# One function for all trainings, because Flux caches steps that Reactant has compiled by the identity of their loss.
cross_entropy(model, x, y) = Flux.logitcrossentropy(model(x), y)

"""
    first_batches(network, dataset, order, count)

Return the first batches of an epoch, which repeat: images and one-hot labels.
"""
function first_batches(network::Model, dataset::Dataset, order, count)
    return map(1:count) do step
        indices = order[:, mod1(step, size(order, 2))] .+ 1
        images = reshape(dataset.images[:, :, :, indices] ./ 255.0f0, reverse(network.input_shape)..., length(indices))
        return images, Flux.onehotbatch(dataset.labels[indices], 0:(network.classes - 1))
    end
end

"""
    measure(run, title, rounds, steps, metadata)

Run the timed rounds, then count allocations in a separate pass.
"""
function measure(run, title, rounds, steps, metadata)
    reset!(run)
    first_step = run_steps!(run, 0, 1)
    losses = [last_loss(run)]
    for step in 1:(WARMUP_STEPS + min(steps, 3) - 1)
        run_steps!(run, step, 1)
        push!(losses, last_loss(run))
    end
    run_gc()  # garbage of the data, of compilation and of these steps is not that of the first round
    touch_heap!(run)
    times, gc_rounds, counters = Vector{Float64}[], Vector{Float64}[], NamedTuple[]
    timed = WARMUP_STEPS:(WARMUP_STEPS + steps - 1)
    for _ in 1:rounds
        before, start = block_counters(), time_ns()
        reset!(run)
        run_steps!(run, 0, WARMUP_STEPS)
        values = [time_steps(run, steps) for steps in Iterators.partition(timed, min(steps, steps_per_value(run)))]
        push!(times, first.(values))
        push!(gc_rounds, last.(values))
        wall_seconds = (time_ns() - start) / NANOSECONDS
        push!(counters, (; wall_seconds, map(-, block_counters(), before)..., peak_rss_bytes = Int(Sys.maxrss())))
        isfinite(last_loss(run)) || throw(ErrorException("the loss is $(last_loss(run)): the training diverges"))
    end
    reset!(run)
    run_steps!(run, 0, WARMUP_STEPS)
    count, bytes = count_allocations!(run, WARMUP_STEPS, steps)
    resolution = steps_per_value(run) == 1 ? "step" : "block"
    faults = sum(block.minor_faults for block in counters) / (rounds * (WARMUP_STEPS + steps))
    per_step = (bytes / steps, count / steps, faults)
    return Trial(title, times, gc_rounds, resolution, per_step..., first_step, losses, (; metadata..., counters))
end

const MAX_TOUCH_SECONDS = 1.0

"""
    touch_heap!(run)

Run steps until the collector has run and the steps after it use memory that the process has, at most for a second.

A full collection gives memory back to the kernel. The steps after it map it again, page by page: a small network's steps then take
twice as long, until the heap is as large as between two collections of a long training.
"""
function touch_heap!(run)
    collections, deadline, step = Base.gc_num().pause, time() + MAX_TOUCH_SECONDS, 0
    while time() < deadline
        before = page_faults()
        run_steps!(run, step, 1)
        step += 1
        Base.gc_num().pause > collections && page_faults() == before && break
    end
    return nothing
end

"""
    time_steps(run, steps)

Time these steps, and return the mean seconds per step and the mean seconds of garbage collection per step.
"""
function time_steps(run, steps)
    before, _ = gc_stats()
    seconds = run_steps!(run, first(steps), length(steps))
    return seconds / length(steps), (first(gc_stats()) - before) / length(steps)
end

"""
    restoring_process(f, blas_threads)

Return `f()`, computed with this number of BLAS threads, and restore their number and the state of the default random number
generator.
"""
function restoring_process(f, blas_threads::Int)
    before, generator = BLAS.get_num_threads(), copy(Random.default_rng())
    BLAS.set_num_threads(blas_threads)
    try
        return f()
    finally
        BLAS.set_num_threads(before)
        copy!(Random.default_rng(), generator)
    end
end

"""
    describe_process(malloc)

Describe the threads and the malloc policy of a measurement; BLAS must have the measured number of threads.
"""
describe_process(malloc) =
    "$(Threads.nthreads()) Julia and $(BLAS.get_num_threads()) BLAS threads, malloc $(malloc)"

default_malloc_policy() = isinteractive() && !RETAINS_MALLOC[] ? "system" : "retain"

"""
    apply_malloc_policy(policy)

With `"retain"`, set the malloc parameters of polybench's workers (`polybench/protocol/environment.py`): allocations below
1 GiB have no mapping of their own, free memory at the top of the heap is not returned, and all threads share one arena.
This has an effect with glibc only. It cannot be undone, so `"system"` is an error afterwards.
"""
function apply_malloc_policy(policy::AbstractString)
    policy in ("retain", "system") || throw(ArgumentError("malloc \"$policy\" is unknown: expected \"retain\" or \"system\""))
    policy == "system" && RETAINS_MALLOC[] && throw(
        ArgumentError(
            "malloc = \"system\" has no effect after malloc = \"retain\" in the same process: " *
                "start a new Julia process for malloc = \"system\"",
        )
    )
    policy == "retain" && Sys.islinux() || return nothing
    RETAINS_MALLOC[] = true
    # malloc.h: M_TRIM_THRESHOLD, M_MMAP_THRESHOLD, M_ARENA_MAX. As an `int`, mallopt accepts at most 2 GiB - 1.
    for (parameter, value) in ((-1, typemax(Cint)), (-3, Cint(1 << 30)), (-8, Cint(1)))
        ccall(:mallopt, Cint, (Cint, Cint), parameter, value)
    end
    return nothing
end

const RETAINS_MALLOC = Ref(false)

group_digits(n::Integer) = replace(string(n), r"(?<=\d)(?=(\d{3})+$)" => ",")
