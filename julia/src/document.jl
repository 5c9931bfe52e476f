"""
The saved study of polybench (`polybench.study/1`, `docs/output.md`): read, as trials, and written.
"""
const SCHEMA = "polybench.study/1"

"""
A study that was read: `study["torch/cpu"]` is the trial of a cell, `cells(study)` has their names, and `study.document` is all
of it, as JSON.jl has it.
"""
struct Study
    document::Any
end

"""
    read_study(file)

A study that `polybench compare` or `write_study` saved.
"""
function read_study(file::AbstractString)
    document = JSON.parse(read(file, String))
    schema = document isa AbstractDict ? get(document, "schema", nothing) : nothing
    schema == SCHEMA || throw(ArgumentError("$file is no study: its schema is $(repr(schema)), and not \"$SCHEMA\""))
    return Study(document)
end

"""
    cells(study)

The names of its rows: `flux/cpu`, `torch+compile/cpu`, ...
"""
cells(study::Study) = String[result["cell"] for result in study.document["results"]]

function Base.getindex(study::Study, cell::AbstractString)
    place = findfirst(==(cell), cells(study))
    place === nothing && throw(KeyError(cell))
    result = study.document["results"][place]
    found = field(result, "samples")
    found === nothing && throw(ArgumentError("$cell was not measured: $(field(result, "reason"))"))
    rounds = [Float64.(round) for process in found["step_seconds"] for round in process]
    collector = number(result, "gc", "seconds_per_step"; otherwise = 0.0)
    return Trial(
        "$cell, $(study.document["settings"]["model"]) of study $(study.document["id"])",
        rounds, [fill(collector, length(round)) for round in rounds], found["kind"],
        number(result, "allocations", "host", "bytes_per_step"), number(result, "allocations", "host", "count_per_step"),
        number(result, "startup", "first_step_seconds"), Float64.(field(result, "losses")), nothing,
    )
end

"""
    field(object, names...)

What is there by these names, one inside of the other; nothing where one is missing, or null.
"""
field(object, name, names...) = field(field(object, name), names...)
field(object, name) = object === nothing ? nothing : get(object, name, nothing)

number(object, names...; otherwise = NaN) = Float64(something(field(object, names...), otherwise))

function Base.show(io::IO, ::MIME"text/plain", study::Study)
    settings = study.document["settings"]
    print(io, "PolyBench.Study ", study.document["id"], ": ", settings["model"])
    print(io, ", batch ", settings["batch_size"], ", ", settings["threads"], " threads")
    for result in study.document["results"]
        times = field(result, "step_seconds")
        told = times === nothing ? "$(result["status"]): $(result["reason"])" : pretty_seconds(times["median"])
        print(io, "\n  ", rpad(result["cell"], 24), told)
    end
    return nothing
end

"""
    write_study(path, trial)

Save a trial of one of polybench's networks as a study: in this file, or, if the path is a folder, in a file named as the study,
where `polybench show last --results FOLDER` and the others find it. Returns the file's path.

It has one process, so polybench gives no verdict on it, and the identity check was not made.
"""
function write_study(path::AbstractString, trial::Trial)
    trial.circumstances === nothing &&
        throw(ArgumentError("only a trial of one of polybench's networks is a study: bench(:lenet)"))
    document = study_document(trial)
    file = isdir(path) ? joinpath(path, "$(document.id).json") : String(path)
    write(file, sprint(JSON.print, document), "\n")
    return file
end

function study_document(trial::Trial)
    made = trial.circumstances
    return (;
        schema = SCHEMA, id = study_id(made.started),
        created = Dates.format(made.started, "yyyy-mm-ddTHH:MM:SS") * "Z", finished = true,
        polybench = (; version = string(pkgversion(@__MODULE__)), commit = nothing),
        argv = ["PolyBench.bench"], study = study_file(made), settings = study_settings(made, trial), made.host,
        warnings = ["measured from Julia in a single process: no verdict"], results = [study_result(made, trial)],
    )
end

"""As polybench has them: when it was begun, and four hexadecimal digits that tell apart what was at once."""
study_id(started) =
    Dates.format(started, "yyyymmdd-HHMMSS") * "-" * string(rand(Random.RandomDevice(), UInt16); base = 16, pad = 4)

optimizer_fields(network) = (;
    name = network.optimizer["name"], learning_rate = network.optimizer["learning_rate"],
    momentum = get(network.optimizer, "momentum", nothing), weight_decay = get(network.optimizer, "weight_decay", 0.0),
    schedule = Vector{Any}(get(network.optimizer, "schedule", [])),
)

study_file(made) = sprint(
    TOML.print, Dict(
        "engines" => ["flux"], "devices" => [made.device], "model" => made.model.name, "data" => made.images.name,
        "batch_size" => made.batch_size, "threads" => Threads.nthreads(), "heap" => made.heap, "seed" => made.seed,
        "processes" => 1, "steps" => made.steps,
    )
)

study_settings(made, trial) = (;
    model = made.model.name, parameters = parameter_count(made.model), dataset = made.images.name,
    data_sha256 = data_sha256(made.images), weights_sha256 = weights_sha256(made.model, made.weights),
    batches_sha256 = order_sha256(made.order), made.batch_size, optimizer = optimizer_fields(made.model), precision = "fp32",
    threads = Threads.nthreads(), made.heap, made.seed, processes = 1, rounds = length(trial.rounds),
    steps_per_round = made.steps, input = "preload", epochs = nothing, baseline = "flux/$(made.device)", prices = (;),
)

"""
    order_sha256(order)

The SHA-256 that polybench's documents have of one epoch's batches.
"""
order_sha256(order::Matrix{Int}) = bytes2hex(SHA.sha256(collect(reinterpret(UInt8, vec(order)))))

function this_host()
    cpus = Sys.cpu_info()
    return (;
        hostname = gethostname(), os = string(Sys.KERNEL), cpu = isempty(cpus) ? "" : strip(first(cpus).model),
        cores = physical_cores(), threads = Sys.CPU_THREADS, memory_bytes = Int(Sys.total_memory()), gpus = String[],
        governor = nothing, load = first(Sys.loadavg()), python = "none, Julia $VERSION", noise = [],
    )
end

"""Cores of which each may have several threads; where nothing tells, as many as threads."""
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

function study_result(made, trial)
    all, typical = samples(trial), median(trial).time
    average = geometric_mean(map(mean, trial.rounds))
    known = made.facts
    build = (; known.blas, known.cpu, known.julia_threads, known.blas_threads, known.gc_threads)
    versions = (; known.julia, known.flux, known.nnlib, known.zygote, known.optimisers, build)
    seen = (; source = "Base.gc_num()", covers = "Julia's heap, on all threads; not what BLAS or a GPU allocates")
    steps = trial.kind == "step"
    return (;
        cell = "flux/$(made.device)", engine = "flux", variant = nothing, device = made.device,
        workload = (;
            model = made.model.name, dataset = made.images.name, made.batch_size, optimizer = optimizer_fields(made.model),
            precision = "fp32", threads = Threads.nthreads(), input = "preload",
        ),
        status = "ok", versions,
        step_seconds = (;
            median = typical, mean = mean(all), min = minimum(all), p05 = steps ? quantile(all, 0.05) : nothing,
            p95 = steps ? quantile(all, 0.95) : nothing, std = steps && length(all) > 1 ? std(all) : nothing, n = length(all),
            interval95 = nothing,
        ),
        block_means = (;
            seconds_per_step = average, interval95 = nothing, samples_per_second = made.batch_size / average,
            epoch_seconds = size(made.order, 2) * average, speedup = 1.0, speedup_interval95 = nothing,
        ),
        samples_per_second = made.batch_size / typical, epoch_seconds = size(made.order, 2) * typical,
        allocations = (; host = (; count_per_step = trial.count, bytes_per_step = trial.bytes, seen...)),
        gc = (; seconds_per_step = mean(collected_samples(trial)), full_sweeps = nothing),
        parity = (; status = "skipped", reason = "measured from Julia; `polybench parity --engines flux` checks it"),
        losses = trial.losses,
        relative = (; baseline = "flux/$(made.device)", speedup = 1.0, interval95 = nothing, scope = "within one run"),
        samples = (; kind = trial.kind, steps_per_sample = steps ? 1 : made.steps, step_seconds = [trial.rounds]),
    )
end
