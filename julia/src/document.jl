"""
Reads and writes polybench's saved studies, which are logs (`polybench.log/1`, `docs/output.md`).
"""
const SCHEMA = "polybench.log/1"

"""
A saved study. `study["torch/cpu"]` is the trial of a configuration, `keys(study)` lists their names, and `study.events` are the
events of its log from JSON.jl; `study.header` and `study.settings` are two of them.
"""
struct Study
    events::Vector{Any}
end

function Base.getproperty(study::Study, name::Symbol)
    name === :header && return first(study.events)
    name === :settings && return only(events_of(study, "settings"))
    return getfield(study, name)
end

events_of(study::Study, kinds...) = [event for event in study.events if event["event"] in kinds]
events_of_configuration(study::Study, kind, name) = [event for event in events_of(study, kind) if event["configuration"] == name]

"""
    read_study(file)

Read the log of a study that `polybench compare` or `write_study` saved, as a `Study`. Throws an `ArgumentError` for another file.

```jldoctest
julia> using Flux, PolyBench

julia> line, loss = Dense(2 => 1), (m, x, y) -> Flux.mse(m(x), y);

julia> trial = bench(line, loss, ones(Float32, 2, 4), ones(Float32, 1, 4));

julia> file = write_study(joinpath(mktempdir(), "line.jsonl"), trial);

julia> median(read_study(file)["flux/cpu"]) == median(trial)
true
```
"""
function read_study(file::AbstractString)
    lines = split(read(file, String), '\n')[1:(end - 1)]  # a last line without its end was cut off
    header = isempty(lines) ? nothing : JSON.parse(first(lines))
    schema = header isa AbstractDict ? get(header, "schema", nothing) : nothing
    schema == SCHEMA || throw(ArgumentError("$file is not a study: its schema is $(repr(schema)), expected \"$SCHEMA\""))
    return Study([header; map(JSON.parse, lines[2:end])])
end

"""
    keys(study)

Return the names of the study's configurations: `flux/cpu`, `torch+compile/cpu`, ...
"""
Base.keys(study::Study) = String[configuration_name(planned["configuration"]) for planned in study.settings["configurations"]]

function configuration_name(one)
    environment, replicas, repeat = field(one, "environment"), field(one, "replicas"), field(one, "repeat")
    engine = join([one["engine"]; one["variants"]], "+") * (environment === nothing ? "" : "@$environment")
    parts = [engine, one["device"], field(one, "precision"), replicas in (nothing, 1) ? nothing : "$(replicas)x"]
    return join(filter(!isnothing, parts), "/") * (repeat in (nothing, 1) ? "" : "#$repeat")
end

function Base.getindex(study::Study, configuration::AbstractString)
    configuration in keys(study) || throw(KeyError(configuration))
    blocks = counted_blocks(study, configuration)
    isempty(blocks) && throw(ArgumentError("$configuration was not measured: $(failure(study, configuration))"))
    rounds = [Float64.(block["step_seconds"]) for block in blocks]
    gc_rounds = [fill(number(block, "gc", "seconds"; otherwise = 0.0) / steps_of(block), length(block["step_seconds"])) for block in blocks]
    counted = [event for event in events_of_configuration(study, "allocations", configuration) if field(event, "host") !== nothing]
    host = isempty(counted) ? nothing : last(counted)["host"]
    faults = sum(block -> number(block, "counters", "minor_faults"), blocks)
    starts = events_of_configuration(study, "startup", configuration)
    return Trial(
        "$configuration, $(study.settings["settings"]["model"]) of study $(study.header["id"])",
        rounds, gc_rounds, first(starts)["resolution"], number(host, "bytes_per_step"), number(host, "count_per_step"),
        faults / sum(block -> WARMUP_STEPS + steps_of(block), blocks),
        number(first(starts), "startup", "first_step_seconds"), Float64.(filter(!isnothing, last(starts)["losses"])), nothing,
    )
end

steps_of(block) = length(block["step_seconds"]) * block["steps_per_value"]

"""
    counted_blocks(study, configuration)

Return the timing blocks of a configuration: of several attempts at one the quietest, and none of a process run that was cut off.
"""
function counted_blocks(study::Study, configuration)
    blocks, ended = Dict{Tuple{Int, Int}, Any}(), 0
    for event in events_of(study, "process_start", "block", "process_end")
        if event["event"] == "process_start"
            filter!(((place, _),) -> first(place) < event["process"], blocks)
        elseif event["event"] == "process_end"
            ended = event["process"] + 1
        elseif event["configuration"] == configuration
            place = (event["process"], event["round"])
            quietest = get(blocks, place, event)
            blocks[place] = severity(event) < severity(quietest) ? event : quietest
        end
    end
    is_ended = last(study.events)["event"] == "end"
    return [blocks[place] for place in sort!(collect(keys(blocks))) if is_ended || first(place) < ended]
end

function severity(block)
    counters = block["counters"]
    waits = something(field(counters, "cpu_wait_seconds"), field(counters, "cpu_pressure_seconds"), 0.0)
    others = (number(counters, name; otherwise = 0.0) for name in ("other_process_cpu_seconds", "steal_seconds"))
    return (waits + sum(others)) / counters["wall_seconds"]
end

function failure(study::Study, configuration)
    failures = events_of_configuration(study, "failure", configuration)
    return isempty(failures) ? "not measured yet" : "$(last(failures)["status"]): $(last(failures)["reason"])"
end

"""
    field(object, names...)

Return the nested field of these names, or nothing if one is missing or null.
"""
field(object, name, names...) = field(field(object, name), names...)
field(object, name) = object === nothing ? nothing : get(object, name, nothing)

number(object, names...; otherwise = NaN) = Float64(something(field(object, names...), otherwise))

"""
    rows(study)

Return a row for each measured configuration, for Tables.jl: `DataFrame(PolyBench.rows(study))`. Times are nanoseconds.

```jldoctest
julia> using Flux, PolyBench

julia> line, loss = Dense(2 => 1), (m, x, y) -> Flux.mse(m(x), y);

julia> trial = bench(line, loss, ones(Float32, 2, 4), ones(Float32, 1, 4));

julia> study = read_study(write_study(mktempdir(), trial));

julia> keys(only(PolyBench.rows(study)))
(:configuration, :time, :gctime, :memory, :allocs)
```
"""
function rows(study::Study)
    measured = filter(name -> !isempty(counted_blocks(study, name)), keys(study))
    return map(measured) do configuration
        trial = study[configuration]
        step, gc = mean(trial), mean(gc_times(trial))
        return (; configuration, time = step.time, gctime = NANOSECONDS * gc, step.memory, step.allocs)
    end
end

Base.show(io::IO, study::Study) =
    print(io, "Study(", study.header["id"], ", ", study.settings["settings"]["model"], ", ", join(keys(study), ", "), ")")

function Base.show(io::IO, ::MIME"text/plain", study::Study)
    settings, printed = study.settings["settings"], field(last(study.events), "step_seconds")
    print(io, "PolyBench.Study ", study.header["id"], ": ", settings["model"])
    print(io, ", batch ", settings["batch_size"], ", ", settings["threads"], " threads")
    for configuration in keys(study)
        seconds = field(printed, configuration)
        print(io, "\n  ", rpad(configuration, 24), seconds === nothing ? failure(study, configuration) : format_seconds(seconds))
    end
    return nothing
end

"""
    write_study(path, trial)

Save a trial of `bench` as a study. `path` is a file if it ends with `.jsonl`; otherwise a folder, which is created if it is
missing. There the file is named after the study, and `polybench show last --results FOLDER` finds it. Returns the path of
the file.

The study has a single process and no parity check, so comparisons with it are inconclusive. The study of your own model has the
trial's title as the name of the model, and hashes of its weights and batches; `polybench run` cannot repeat it. Throws an
`ArgumentError` for a trial from a saved study, for weights that are not `Float32`, and for an optimizer without a name in
polybench.

```jldoctest
julia> using Flux, PolyBench

julia> line, loss = Dense(2 => 1), (m, x, y) -> Flux.mse(m(x), y);

julia> trial = bench(line, loss, ones(Float32, 2, 4), ones(Float32, 1, 4); title = "line");

julia> study = read_study(write_study(mktempdir(), trial));

julia> keys(study)
1-element Vector{String}:
 "flux/cpu"
```
"""
function write_study(path::AbstractString, trial::Trial)
    trial.metadata === nothing && throw(ArgumentError("the trial was read from a saved study: copy the file of that study instead"))
    header, events... = study_events((; trial.metadata..., work = describe_work(trial.metadata.work)), trial)
    file = endswith(path, ".jsonl") ? String(path) : joinpath(mkpath(path), "$(header.id).jsonl")
    open(io -> foreach(event -> println(io, sprint(JSON.print, event)), (header, events...)), file, "w")
    return file
end

function study_events(metadata, trial)
    polybench = (; version = string(pkgversion(@__MODULE__)), commit = nothing)
    created = Dates.format(metadata.started, "yyyy-mm-ddTHH:MM:SS") * "Z"
    warnings = ["measured from Julia in a single process: inconclusive"; metadata.work.warnings]
    engine, blocks = engine_event(metadata), block_events(metadata, trial)
    budget = (;
        steps_per_round = metadata.steps, rounds_per_process = length(trial.rounds), process_runs_left = 0, seconds_left = 0.0,
        block = (metadata.steps, length(trial.rounds)),
    )
    return (
        (;
            event = "header", schema = SCHEMA, id = study_id(metadata.started), created, polybench, argv = ["PolyBench.bench"],
            metadata.host, study = study_toml(metadata),
        ),
        settings_event(metadata),
        engine,
        of_configuration(metadata, "parity"; parity = (; status = "skipped", reason = "measured from Julia; run `polybench parity --engines flux`")),
        (; event = "process_start", process = 0),
        of_configuration(metadata, "startup"; process = 0, startup = nothing, trial.resolution, trial.losses),
        blocks...,
        (; event = "process_end", process = 0, budgets = [budget]),
        allocations_event(metadata, trial),
        ((; event = "warning", text) for text in warnings)...,
        (;
            event = "end", outcome = "finished", polybench,
            step_seconds = Dict(configuration(metadata) => mean(map(mean, trial.rounds))),
            results = Dict(configuration(metadata) => (; processes = 1, versions = merge(engine.versions, (; engine.build)))),
        ),
    )
end

"""
The training of one of polybench's networks, for the saved study. `epoch_order` is (batch, steps).
"""
struct BuiltinWork
    model::Model
    images::Dataset
    epoch_order::Matrix{Int}
    weights::Dict{String, Array{Float32}}
    batch_size::Int
end

"""
    describe_work(work)

Return the fields of a study that describe a training: model, data, hashes, optimizer.
"""
describe_work(work::BuiltinWork) = (;
    model = work.model.name, parameters = parameter_count(work.model), dataset = work.images.name,
    data_sha256 = data_sha256(work.images), weights_sha256 = weights_sha256(work.model, work.weights),
    batches_sha256 = order_sha256(work.epoch_order), work.batch_size, optimizer = optimizer_fields(work.model.optimizer),
    steps_per_epoch = size(work.epoch_order, 2), warnings = String[],
)

"""
The training of a user's model, for the saved study. Its hashes are those of the measured arrays, which the user may change later.
"""
struct UserWork
    title::String
    parameters::Int
    weight_type::Any
    weights_sha256::String
    batches_sha256::String
    "Size of the first array's last dimension; nothing if the batch has no array."
    batch_size::Union{Int, Nothing}
    optimizer::Any
end

function UserWork(title, model, batches, optimizer)
    weights = Flux.trainables(model)
    return UserWork(
        title, sum(length, weights; init = 0), isempty(weights) ? Nothing : eltype(first(weights)), arrays_sha256(weights),
        arrays_sha256(batches), batch_size(first(batches)), optimizer,
    )
end

batch_size(array::AbstractArray) = ndims(array) == 0 ? nothing : last(size(array))
batch_size(batch::Union{Tuple, NamedTuple}) = something(map(batch_size, values(batch))..., Some(nothing))
batch_size(_) = nothing

"""
    arrays_sha256(tree)

Return the SHA-256 of all numbers in a tree of tuples and arrays; other leaves count as printed text.
"""
function arrays_sha256(tree)
    context = SHA.SHA256_CTX()
    update_sha256!(context, tree)
    return bytes2hex(SHA.digest!(context))
end

update_sha256!(context, tree::Union{Tuple, NamedTuple}) = foreach(branch -> update_sha256!(context, branch), tree)
function update_sha256!(context, array::AbstractArray{T}) where {T}
    T <: Number && isbitstype(T) || return foreach(branch -> update_sha256!(context, branch), array)
    return SHA.update!(context, collect(reinterpret(UInt8, vec(Array(array)))))  # an `Array`, also of a GPU or of one-hot labels
end
update_sha256!(context, other) = SHA.update!(context, codeunits(repr(other)))

const OWN_DATA = "own data"

function describe_work(work::UserWork)
    work.weight_type === Float32 ||
        throw(ArgumentError("the weights are $(work.weight_type): a study needs Float32: convert the model with Flux.f32"))
    work.batch_size === nothing &&
        throw(ArgumentError("the batch has no array: a study needs its size: pass arrays whose last dimension is the batch"))
    return (;
        model = work.title, work.parameters, dataset = OWN_DATA, data_sha256 = work.batches_sha256, work.weights_sha256,
        work.batches_sha256, work.batch_size, optimizer = optimizer_fields(optimizer_settings(work.optimizer)),
        steps_per_epoch = nothing, warnings = ["a user's own model, trained by $(work.optimizer)"],
    )
end

"""Create a study ID like polybench: the start time, and four random hexadecimal digits."""
study_id(started) =
    Dates.format(started, "yyyymmdd-HHMMSS") * "-" * string(rand(Random.RandomDevice(), UInt16); base = 16, pad = 4)

optimizer_fields(settings) = (;
    name = settings["name"], learning_rate = settings["learning_rate"], momentum = get(settings, "momentum", nothing),
    weight_decay = get(settings, "weight_decay", 0.0), lr_schedule = Vector{Any}(get(settings, "lr_schedule", [])),
    betas = get(settings, "betas", nothing),
)

engine_name(metadata) = isempty(metadata.way) ? "flux" : "flux+$(metadata.way)"
configuration(metadata) = "$(engine_name(metadata))/$(metadata.device)"

study_toml(metadata) = sprint(
    TOML.print, Dict(
        "engines" => [engine_name(metadata)], "devices" => [metadata.device], "model" => metadata.work.model, "data" => metadata.work.dataset,
        "batch_size" => metadata.work.batch_size, "threads" => Threads.nthreads(), "malloc" => metadata.malloc, "seed" => metadata.seed,
        "processes" => 1, "steps_per_round" => metadata.steps,
    )
)

of_configuration(metadata, event; fields...) = (; event, configuration = configuration(metadata), fields...)

function settings_event(metadata)
    (; model, parameters, dataset, data_sha256, weights_sha256, batches_sha256, batch_size, optimizer) = metadata.work
    shared = (; precision = "fp32", threads = Threads.nthreads(), input = "preload")
    settings = (;
        model, parameters, dataset, data_sha256, weights_sha256, batches_sha256, batch_size, optimizer, shared..., metadata.malloc,
        metadata.seed, processes = 1, rounds_per_process = nothing, steps_per_round = nothing, epochs = nothing, baseline = nothing,
        prices = (;),
    )
    own = (; engine = "flux", variants = split(metadata.way, '+'; keepempty = false), metadata.device)
    configurations = [(; configuration = own, workload = (; model, dataset, batch_size, optimizer, shared...))]
    return (; event = "settings", settings, steps_in_epoch = metadata.work.steps_per_epoch, configurations)
end

function engine_event(metadata)
    info = metadata.build_info
    versions = (; info.julia, info.flux, info.nnlib, info.zygote, info.optimisers)
    build = (; info.blas, info.cpu, info.julia_threads, info.blas_threads, info.gc_threads)
    return of_configuration(metadata, "engine"; versions, build)
end

function block_events(metadata, trial)
    steps_per_value = trial.resolution == "step" ? 1 : metadata.steps
    return map(enumerate(zip(trial.rounds, trial.gc_rounds, metadata.counters))) do (round, (step_seconds, gc_seconds, block))
        (; peak_rss_bytes, wall_seconds, cpu_seconds, minor_faults) = block
        counters = (; wall_seconds, cpu_seconds, other_process_cpu_seconds = nothing, steal_seconds = nothing, minor_faults)
        of_configuration(
            metadata, "block"; process = 0, round = round - 1, step_seconds, steps_per_value, peak_rss_bytes,
            gc = (; seconds = sum(gc_seconds) * steps_per_value, full_collections = block.full_collections), counters,
        )
    end
end

function allocations_event(metadata, trial)
    coverage = "Julia's heap, on all threads; not what BLAS or a GPU allocates"
    host = (; count_per_step = trial.count, bytes_per_step = trial.bytes, source = "Base.gc_num()", coverage)
    return of_configuration(metadata, "allocations"; host)
end

"""
    order_sha256(order)

The SHA-256 of one epoch's batches, as in saved studies.
"""
order_sha256(order::Matrix{Int}) = bytes2hex(SHA.sha256(collect(reinterpret(UInt8, vec(order)))))

function host_info()
    cpus = Sys.cpu_info()
    return (;
        hostname = gethostname(), os = string(Sys.KERNEL), cpu = isempty(cpus) ? "" : strip(first(cpus).model),
        cores = physical_cores(), threads = Sys.CPU_THREADS, memory_bytes = Int(Sys.total_memory()), gpus = String[],
        cpu_governor = nothing, load_average = first(Sys.loadavg()), python = "none, Julia $VERSION",
    )
end

"""Count physical cores, or hardware threads if the system does not list cores."""
function physical_cores()
    cores = Set{Tuple{String, String}}()
    package = ""
    for line in (isfile("/proc/cpuinfo") ? readlines("/proc/cpuinfo") : String[])
        name, value = strip.(split(line * ":", ':')[1:2])
        name == "physical id" && (package = value)
        name == "core id" && push!(cores, (package, value))
    end
    return isempty(cores) ? Sys.CPU_THREADS : length(cores)
end
