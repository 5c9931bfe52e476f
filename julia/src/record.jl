# Records a user's own training to the trace file of `polybench.record`, whose format `polybench/trace/file.py` describes.

const TRACE_SCHEMA = "polybench.trace/1"
"Types that are written as they are; others, such as `Bool`, become `Float32`."
const NUMPY_TYPES = Dict(
    Float16 => "<f2", Float32 => "<f4", Float64 => "<f8", UInt8 => "|u1", Int8 => "|i1", Int16 => "<i2", Int32 => "<i4",
    Int64 => "<i8",
)
"The words of PyTorch for the settings of Optimisers.jl's rules."
const SETTING_NAMES = Dict(
    :eta => "lr", :rho => "momentum", :beta => "betas", :epsilon => "eps", :lambda => "weight_decay",
)

"""
A trace that is being written; see [`record`](@ref).
"""
mutable struct Recorder
    io::IOStream
    "The model and the optimizer's state; of Lux, both are the `TrainState`, which each step replaces."
    model::Any
    state::Any
    due::Set{Int}
    "The number of the next step."
    step::Int
    "Floating-point types that NumPy lacks, by kind and name of the array: it is written as `Float32`."
    dtypes::Dict{String, String}
end

"""
    PolyBench.record(train, file, model, state; steps = (0, 1, 2, 10))

Record a training with Flux, for `polybench trace diff`:

    PolyBench.record("flux.trace", model, state) do trace
        for batch in batches
            loss, (gradient,) = Flux.withgradient(m -> loss_of(m, batch), model)
            Flux.update!(state, model, gradient)
            PolyBench.step!(trace; loss, batch, gradient)
        end
    end

`state` is that of `Flux.setup`; for Lux, give its `TrainState` in place of model and state. `steps` are the numbers of the recorded steps, counted from 0. Arrays have the axes of NumPy, which
are Julia's in reverse. Memory holds one array at a time. `file` appears when `train` ends, also by an exception; until then, its
name ends with `.partial`. Returns what `train` returns. Throws an `ArgumentError` if no step is chosen, if one is negative, or if
the model has no weights.
"""
function record(train, file::AbstractString, model, state; steps = (0, 1, 2, 10))
    !isempty(steps) && all(>=(0), steps) ||
        throw(ArgumentError("steps = $steps: expected step numbers from 0 on, such as (0, 1, 2, 10)"))
    isempty(weights_by_name(model)) && throw(ArgumentError("$(nameof(typeof(model))) has no weights: expected a model of Flux or Lux"))
    partial = "$file.partial"
    due = sort!(unique(Int.(collect(steps))))
    return open(partial, "w") do io
        trace = Recorder(io, model, state, Set(due), 0, Dict{String, String}())
        try
            write_entry(io, "trace.json", JSON.json(trace_header(model, state, due)))
            write_state(trace, 0)
        catch
            close(io)
            rm(partial)
            rethrow()
        end
        try
            return train(trace)
        finally
            write(io, zeros(UInt8, 1024))  # the end of a tar archive
            close(io)
            mv(partial, file; force = true)
        end
    end
end

"""
    PolyBench.step!(trace; loss, gradient, batch = nothing)

Record the training step that has just ended: call it after every update of the weights. `loss` is a number, `gradient` that of
`Flux.gradient` by the model, and `batch` the arrays that the model got.
"""
function step!(trace::Recorder; loss::Real, gradient, batch = nothing)
    step = trace.step
    trace.step += 1
    is_due = step in trace.due
    is_due || step + 1 in trace.due || return nothing
    start = time()
    if is_due
        sha256 = write_arrays(trace, step, "batch", named_arrays(batch, "batch"))
        weights = Set(first.(weights_by_name(trace.model)))
        write_arrays(trace, step, "gradient", filter(pair -> first(pair) in weights, named_arrays(gradient)))
    end
    write_state(trace, step + 1)
    is_due || return nothing
    entry = Dict(
        "loss" => isfinite(loss) ? Float64(loss) : nothing, "batch_sha256" => sha256, "seconds" => time() - start,
        "dtypes" => trace.dtypes,
    )
    write_entry(trace.io, "$(lpad(step, 6, '0'))/step.json", JSON.json(entry))
    return nothing
end

function trace_header(model, state, steps)
    rules, (framework, version) = leaf_rules(state), recorded_framework(model)
    return Dict(
        "schema" => TRACE_SCHEMA,
        "framework" => framework,
        "versions" => Dict("julia" => string(VERSION), framework => string(version)),
        "steps" => steps,
        "optimizer_name" => isempty(rules) ? nothing : string(nameof(typeof(last(rules)))),
        "optimizer" => merge(Dict{String, Any}(), map(rule_settings, rules)...),
    )
end

"Return the rules of the first weight, in their order."
function leaf_rules(state)
    leaves = Flux.Functors.fleaves(state; exclude = x -> x isa Leaf)
    index = findfirst(leaf -> leaf isa Leaf, leaves)
    isnothing(index) && return []
    rule = leaves[index].rule
    return rule isa OptimiserChain ? collect(rule.opts) : [rule]
end

rule_settings(rule) = Dict{String, Any}(
    get(SETTING_NAMES, name, string(name)) => getfield(rule, name)
        for name in fieldnames(typeof(rule)) if getfield(rule, name) isa Union{Real, Tuple{Vararg{Real}}}
)

recorded_framework(_) = "flux", pkgversion(Flux)

weights_by_name(model) =
    [join(path.keys, '.') => weight for (path, weight) in Flux.trainables(model; path = true)]

"""
    named_arrays(tree, prefix = "")

Return pairs of a name and an array for all arrays in nested tuples: a state, a gradient, a batch.
"""
named_arrays(::Any, name = "") = Pair{String, AbstractArray}[]
named_arrays(array::AbstractArray{<:Number}, name = "") = Pair{String, AbstractArray}[name => array]
named_arrays(leaf::Leaf, name = "") = named_arrays(leaf.state, name)
named_arrays(box::Ref, name = "") = named_arrays(box[], name)
named_arrays(tree::Union{Tuple, NamedTuple}, name = "") = Pair{String, AbstractArray}[
    pair for key in keys(tree) for pair in named_arrays(tree[key], isempty(name) ? "$key" : "$name.$key")
]

"The nested tuples with the running statistics, and maybe with the weights."
states(model) = Flux.state(model)

"Write what is before a step."
function write_state(trace::Recorder, step::Integer)
    weights = weights_by_name(trace.model)
    names = Set(first.(weights))
    write_arrays(trace, step, "weight", weights)
    write_arrays(trace, step, "statistic", filter(pair -> !(first(pair) in names), named_arrays(states(trace.model))))
    write_arrays(trace, step, "optimizer", named_arrays(trace.state))
    return nothing
end

"Write arrays one by one; return the SHA-256 of their values."
function write_arrays(trace::Recorder, step::Integer, kind::AbstractString, arrays)
    sha256 = SHA.SHA256_CTX()
    for (name, array) in arrays
        content, header = numpy_bytes(array)
        T = eltype(array)
        T <: AbstractFloat && !haskey(NUMPY_TYPES, T) && (trace.dtypes["$kind/$name"] = lowercase(string(nameof(T))))
        SHA.update!(sha256, content)
        write_entry(trace.io, "$(lpad(step, 6, '0'))/$kind/$(quoted(name)).npy", vcat(header, content))
    end
    return bytes2hex(SHA.digest!(sha256))
end

"Return the numbers of an array, and NumPy's header of version 1.0 for them."
function numpy_bytes(array::AbstractArray{T}) where {T <: Real}
    host = Array(haskey(NUMPY_TYPES, T) ? array : Float32.(array))  # also one-hot labels
    shape = join(("$length, " for length in reverse(size(host))))
    text = "{'descr': '$(NUMPY_TYPES[eltype(host)])', 'fortran_order': False, 'shape': ($shape), }"
    text *= " "^(-(length(text) + 11) & 63) * "\n"
    header = vcat(b"\x93NUMPY\x01\x00", reinterpret(UInt8, [htol(UInt16(length(text)))]), codeunits(text))
    return collect(reinterpret(UInt8, vec(host))), header
end

numpy_bytes(::AbstractArray{T}) where {T} = throw(ArgumentError("an array has the type $T: expected real numbers"))

"Return a name as in a URL, because a file's name has no slash."
quoted(name::AbstractString) = join(
    occursin(r"[A-Za-z0-9._~-]", string(Char(byte))) ? Char(byte) : "%" * uppercase(string(byte; base = 16, pad = 2))
        for byte in codeunits(name)
)

"""
    write_entry(io, name, content)

Append a file to a tar archive. A name of more than 100 bytes has an entry of its own before it, as in GNU's tar.
"""
write_entry(io::IO, name::AbstractString, content::AbstractString; type::Char = '0') =
    write_entry(io, name, codeunits(content); type)
function write_entry(io::IO, name::AbstractString, content::AbstractVector{UInt8}; type::Char = '0')
    ncodeunits(name) > 100 && write_entry(io, "././@LongLink", "$name\0"; type = 'L')
    header = zeros(UInt8, 512)
    put(at, text) = copyto!(header, at + 1, codeunits(text))
    put(0, first(name, 100))
    put(100, "0000644\0")
    put(124, string(length(content); base = 8, pad = 11))
    put(136, "00000000000\0")
    put(148, "        ")
    put(156, string(type))
    put(257, "ustar\00000")
    put(148, string(sum(Int, header); base = 8, pad = 6) * "\0 ")
    write(io, header, content, zeros(UInt8, mod(-length(content), 512)))
    return nothing
end
