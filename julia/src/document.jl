"""
Reads and writes polybench's saved studies (`polybench.study/2`, `docs/output.md`).
"""
const SCHEMA = "polybench.study/2"

"""
A saved study. `study["torch/cpu"]` is the trial of a configuration, `keys(study)` lists their names, and `study.document` is the
whole document from JSON.jl.
"""
struct Study
    document::Any
end

"""
    read_study(file)

Read a study that `polybench compare` or `write_study` saved.
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
"""
function rows(study::Study)
    measured = [result["configuration"] for result in study.document["results"] if field(result, "step_times") !== nothing]
    return map(measured) do configuration
        trial = study[configuration]
        step, gc = median(trial), mean(gc_times(trial))
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
        text = times === nothing ? "$(result["status"]): $(result["reason"])" : format_seconds(times["median"])
        print(io, "\n  ", rpad(result["configuration"], 24), text)
    end
    return nothing
end

"""
    write_study(path, trial)

Save a trial of one of polybench's networks as a study. `path` is a file if it ends with `.json`; otherwise a folder, which is
created if it is missing. There the file is named after the study, and `polybench show last --results FOLDER` finds it.
Returns the path of the file.

The study has a single process and no parity check, so comparisons with it are inconclusive.
"""
function write_study(path::AbstractString, trial::Trial)
    trial.metadata === nothing &&
        throw(ArgumentError("a trial of your own model cannot be saved as a study: use a network of polybench, as in bench(:lenet)"))
    document = study_document(trial)
    file = endswith(path, ".json") ? String(path) : joinpath(mkpath(path), "$(document.id).json")
    write(file, sprint(JSON.print, document), "\n")
    return file
end

function study_document(trial::Trial)
    metadata = trial.metadata
    return (;
        schema = SCHEMA, id = study_id(metadata.started),
        created = Dates.format(metadata.started, "yyyy-mm-ddTHH:MM:SS") * "Z", finished = true,
        polybench = (; version = string(pkgversion(@__MODULE__)), commit = nothing),
        argv = ["PolyBench.bench"], study = study_toml(metadata), settings = study_settings(metadata, trial), metadata.host,
        warnings = ["measured from Julia in a single process: inconclusive"], results = [study_result(metadata, trial)],
    )
end

"""Create a study ID like polybench: the start time, and four random hexadecimal digits."""
study_id(started) =
    Dates.format(started, "yyyymmdd-HHMMSS") * "-" * string(rand(Random.RandomDevice(), UInt16); base = 16, pad = 4)

optimizer_fields(network) = (;
    name = network.optimizer["name"], learning_rate = network.optimizer["learning_rate"],
    momentum = get(network.optimizer, "momentum", nothing), weight_decay = get(network.optimizer, "weight_decay", 0.0),
    lr_schedule = Vector{Any}(get(network.optimizer, "lr_schedule", [])),
)

engine_name(metadata) = isempty(metadata.way) ? "flux" : "flux+$(metadata.way)"
configuration(metadata) = "$(engine_name(metadata))/$(metadata.device)"

study_toml(metadata) = sprint(
    TOML.print, Dict(
        "engines" => [engine_name(metadata)], "devices" => [metadata.device], "model" => metadata.model.name, "data" => metadata.images.name,
        "batch_size" => metadata.batch_size, "threads" => Threads.nthreads(), "malloc" => metadata.malloc, "seed" => metadata.seed,
        "processes" => 1, "steps_per_round" => metadata.steps,
    )
)

study_settings(metadata, trial) = (;
    model = metadata.model.name, parameters = parameter_count(metadata.model), dataset = metadata.images.name,
    data_sha256 = data_sha256(metadata.images), weights_sha256 = weights_sha256(metadata.model, metadata.weights),
    batches_sha256 = order_sha256(metadata.order), metadata.batch_size, optimizer = optimizer_fields(metadata.model), precision = "fp32",
    threads = Threads.nthreads(), metadata.malloc, metadata.seed, processes = 1, rounds_per_process = length(trial.rounds),
    steps_per_round = metadata.steps, input = "preload", epochs = nothing, baseline = configuration(metadata), prices = (;),
)

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
    times, typical = step_times(trial), typical_seconds(trial)
    mean_step = mean(times)
    info = metadata.build_info
    build = (; info.blas, info.cpu, info.julia_threads, info.blas_threads, info.gc_threads)
    versions = (; info.julia, info.flux, info.nnlib, info.zygote, info.optimisers, build)
    counter = (; source = "Base.gc_num()", coverage = "Julia's heap, on all threads; not what BLAS or a GPU allocates")
    has_steps = trial.resolution == "step"
    return (;
        configuration = configuration(metadata), engine = "flux", variant = isempty(metadata.way) ? nothing : metadata.way,
        device = metadata.device,
        workload = (;
            model = metadata.model.name, dataset = metadata.images.name, metadata.batch_size, optimizer = optimizer_fields(metadata.model),
            precision = "fp32", threads = Threads.nthreads(), input = "preload",
        ),
        status = "ok", versions,
        step_time = (;
            median = typical, mean = mean(times), min = minimum(times), p05 = has_steps ? quantile(times, 0.05) : nothing,
            p95 = has_steps ? quantile(times, 0.95) : nothing, std = has_steps && length(times) > 1 ? std(times) : nothing,
            n = length(times), ci95 = nothing,
        ),
        mean_step_time = (; seconds = mean_step, ci95 = nothing),
        items_per_second = metadata.batch_size / typical, epoch_seconds = size(metadata.order, 2) * mean_step,
        allocations = (; host = (; count_per_step = trial.count, bytes_per_step = trial.bytes, counter...)),
        gc = (; seconds_per_step = mean(gc_times(trial)), full_collections = nothing),
        parity = (; status = "skipped", reason = "measured from Julia; run `polybench parity --engines flux`"),
        losses = trial.losses,
        vs_baseline = (;
            baseline = configuration(metadata), speedup = 1.0, ci95 = nothing, scope = "single_process", mean_speedup = 1.0,
            mean_ci95 = nothing,
        ),
        step_times = (; resolution = trial.resolution, steps_per_value = has_steps ? 1 : metadata.steps, values = [trial.rounds]),
    )
end
