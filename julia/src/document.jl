"""
Reads and writes polybench's saved studies (`polybench.study/3`, `docs/output.md`).
"""
const SCHEMA = "polybench.study/3"

"""
A saved study. `study["torch/cpu"]` is the trial of a configuration, `keys(study)` lists their names, and `study.document` is the
whole document from JSON.jl.
"""
struct Study
    document::Any
end

"""
    read_study(file)

Read a study that `polybench compare` or `write_study` saved, as a `Study`. Throws an `ArgumentError` for a file that is not a study.

```jldoctest
julia> using Flux, PolyBench

julia> line, loss = Dense(2 => 1), (m, x, y) -> Flux.mse(m(x), y);

julia> trial = bench(line, loss, ones(Float32, 2, 4), ones(Float32, 1, 4));

julia> file = write_study(joinpath(mktempdir(), "line.json"), trial);

julia> median(read_study(file)["flux/cpu"]) == median(trial)
true
```
"""
function read_study(file::AbstractString)
    document = JSON.parse(read(file, String))
    schema = document isa AbstractDict ? get(document, "schema", nothing) : nothing
    schema == SCHEMA || throw(ArgumentError("$file is not a study: its schema is $(repr(schema)), expected \"$SCHEMA\""))
    return Study(document)
end

"""
    keys(study)

Return the names of the study's configurations: `flux/cpu`, `torch+compile/cpu`, ...
"""
Base.keys(study::Study) = String[result["configuration"] for result in study.document["results"]]

function Base.getindex(study::Study, configuration::AbstractString)
    index = findfirst(==(configuration), keys(study))
    index === nothing && throw(KeyError(configuration))
    result = study.document["results"][index]
    times = field(result, "step_times")
    times === nothing && throw(ArgumentError("$configuration was not measured: $(field(result, "reason"))"))
    rounds = [Float64.(round) for process in times["values"] for round in process]
    gc_seconds = number(result, "gc", "seconds_per_step"; otherwise = 0.0)
    return Trial(
        "$configuration, $(study.document["settings"]["model"]) of study $(study.document["id"])",
        rounds, [fill(gc_seconds, length(round)) for round in rounds], times["resolution"],
        number(result, "allocations", "host", "bytes_per_step"), number(result, "allocations", "host", "count_per_step"),
        number(result, "interference", "minor_faults_per_step"),
        number(result, "startup", "first_step_seconds"), Float64.(field(result, "losses")), nothing,
    )
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
    measured = [result["configuration"] for result in study.document["results"] if field(result, "step_times") !== nothing]
    return map(measured) do configuration
        trial = study[configuration]
        step, gc = mean(trial), mean(gc_times(trial))
        return (; configuration, time = step.time, gctime = NANOSECONDS * gc, step.memory, step.allocs)
    end
end

Base.show(io::IO, study::Study) =
    print(io, "Study(", study.document["id"], ", ", study.document["settings"]["model"], ", ", join(keys(study), ", "), ")")

function Base.show(io::IO, ::MIME"text/plain", study::Study)
    settings = study.document["settings"]
    print(io, "PolyBench.Study ", study.document["id"], ": ", settings["model"])
    print(io, ", batch ", settings["batch_size"], ", ", settings["threads"], " threads")
    for result in study.document["results"]
        times = field(result, "step_time")
        text = times === nothing ? "$(result["status"]): $(result["reason"])" : format_seconds(times["mean"])
        print(io, "\n  ", rpad(result["configuration"], 24), text)
    end
    return nothing
end

"""
    write_study(path, trial)

Save a trial of `bench` as a study. `path` is a file if it ends with `.json`; otherwise a folder, which is created if it is
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
    document = study_document(trial)
    file = endswith(path, ".json") ? String(path) : joinpath(mkpath(path), "$(document.id).json")
    write(file, sprint(JSON.print, document), "\n")
    return file
end

function study_document(trial::Trial)
    metadata = (; trial.metadata..., work = describe_work(trial.metadata.work))
    return (;
        schema = SCHEMA, id = study_id(metadata.started),
        created = Dates.format(metadata.started, "yyyy-mm-ddTHH:MM:SS") * "Z", finished = true,
        polybench = (; version = string(pkgversion(@__MODULE__)), commit = nothing),
        argv = ["PolyBench.bench"], study = study_toml(metadata), settings = study_settings(metadata, trial), metadata.host,
        warnings = ["measured from Julia in a single process: inconclusive"; metadata.work.warnings],
        results = [study_result(metadata, trial)],
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

function study_settings(metadata, trial)
    (; model, parameters, dataset, data_sha256, weights_sha256, batches_sha256, batch_size, optimizer) = metadata.work
    return (;
        model, parameters, dataset, data_sha256, weights_sha256, batches_sha256, batch_size, optimizer, precision = "fp32",
        threads = Threads.nthreads(), metadata.malloc, metadata.seed, processes = 1, rounds_per_process = length(trial.rounds),
        steps_per_round = metadata.steps, input = "preload", epochs = nothing, baseline = configuration(metadata), prices = (;),
    )
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

function study_result(metadata, trial)
    times, mean_step = step_times(trial), mean(map(mean, trial.rounds))
    info = metadata.build_info
    build = (; info.blas, info.cpu, info.julia_threads, info.blas_threads, info.gc_threads)
    versions = (; info.julia, info.flux, info.nnlib, info.zygote, info.optimisers, build)
    counter = (; source = "Base.gc_num()", coverage = "Julia's heap, on all threads; not what BLAS or a GPU allocates")
    has_steps = trial.resolution == "step"
    return (;
        configuration = configuration(metadata), engine = "flux", variant = isempty(metadata.way) ? nothing : metadata.way,
        device = metadata.device,
        workload = (;
            metadata.work.model, metadata.work.dataset, metadata.work.batch_size, metadata.work.optimizer,
            precision = "fp32", threads = Threads.nthreads(), input = "preload",
        ),
        status = "ok", versions,
        step_time = (;
            mean = mean_step, ci95 = nothing, median = typical_seconds(trial), min = minimum(times), p05 = has_steps ? quantile(times, 0.05) : nothing,
            p95 = has_steps ? quantile(times, 0.95) : nothing, std = has_steps && length(times) > 1 ? std(times) : nothing,
            n = length(times),
        ),
        items_per_second = metadata.work.batch_size / mean_step,
        epoch_seconds = metadata.work.steps_per_epoch === nothing ? nothing : metadata.work.steps_per_epoch * mean_step,
        allocations = (; host = (; count_per_step = trial.count, bytes_per_step = trial.bytes, counter...)),
        gc = (; seconds_per_step = mean(gc_times(trial)), full_collections = nothing),
        interference = (; minor_faults_per_step = trial.faults),
        parity = (; status = "skipped", reason = "measured from Julia; run `polybench parity --engines flux`"),
        losses = trial.losses,
        vs_baseline = (;
            baseline = configuration(metadata), speedup = 1.0, ci95 = nothing, scope = "single_process", typical_speedup = 1.0,
        ),
        step_times = (; resolution = trial.resolution, steps_per_value = has_steps ? 1 : metadata.steps, values = [trial.rounds]),
    )
end
