# Translates a user's chain into layer records, and trains the chain in float64 to prove them. ADD A LAYER: a method of
# `layer_record`, and its tensors in `TENSORS`.
#
# An input flows through the chain. Flux's layers become records by their fields; the user's own functions and structs by what they
# compute, because nobody can read them. `polybench/importer/flux_graph.py` builds the network.

const CLOSE = 1.0e-9

"""
A tensor of a layer: its canonical name, its place in Flux's layer, and if the canonical layout differs from Flux's. A training step
changes statistics, which are not trained.
"""
struct TensorSpec
    name::String
    place::Vector{Symbol}
    needs_conversion::Bool
    is_statistic::Bool
end

TensorSpec(name, place...; needs_conversion = true, is_statistic = false) =
    TensorSpec(name, collect(Symbol, place), needs_conversion, is_statistic)

const PROJECTIONS = ("query" => :q_proj, "key" => :k_proj, "value" => :v_proj, "output" => :out_proj)

"""
Tensors by the type of a layer. A layer without a bias lacks those whose names end in it; an array of the user's own layer is its
`tensor`.
"""
const TENSORS = Dict(
    "conv" => [TensorSpec("weight", :weight), TensorSpec("bias", :bias)],
    "dense" => [TensorSpec("weight", :weight), TensorSpec("bias", :bias)],
    "layer_norm" => [TensorSpec("weight", :diag, :scale), TensorSpec("bias", :diag, :bias)],
    "group_norm" => [TensorSpec("weight", :γ), TensorSpec("bias", :β)],
    "batch_norm" => [
        TensorSpec("weight", :γ), TensorSpec("bias", :β), TensorSpec("running_mean", :μ; is_statistic = true),
        TensorSpec("running_variance", :σ²; is_statistic = true),
    ],
    # Flux stores the row of a token or a position as a column, which is the same in memory.
    "embedding" => [TensorSpec("weight", :weight; needs_conversion = false)],
    "positions" => [TensorSpec("weight", :tensor; needs_conversion = false)],
    "class_token" => [TensorSpec("token", :tensor)],
    # Flux's gates are in the canonical order, and its single bias is that of the inputs.
    "lstm" => [TensorSpec("weight", :cell, :Wi), TensorSpec("recurrent", :cell, :Wh), TensorSpec("bias", :cell, :bias)],
    "attention" =>
        [TensorSpec("$(name)_$part", projection, part) for part in (:weight, :bias) for (name, projection) in PROJECTIONS],
)

"Return the tensors of a layer."
function tensor_specs(record)
    is_table(record) && return [TensorSpec("weight", :tensor; needs_conversion = false)]
    found = get(TENSORS, record["type"], TensorSpec[])
    return get(record, "bias", true) ? found : filter(spec -> !endswith(spec.name, "bias"), found)
end
tensor_specs(::Nothing) = TensorSpec[]

"True for a dense layer whose weight is a table of the user's, as that of an embedding."
is_table(record) = get(record, "table", false)

resolve_path(tree, path) = foldl((branch, key) -> key isa Int ? branch[key] : getproperty(branch, key), path; init = tree)

# What users' functions may compute. A sequence is (features, time, batch).
mean_over_time(x) = dropdims(mean(x; dims = 2); dims = 2)
first_position(x) = x[:, 1, :]
last_output(x) = x[:, end, :]
add_positions(table, x) = x .+ table[:, 1:size(x, 2)]
prepend_token(token, x) = hcat(token .* ones(1, 1, size(x, 3)), x)
multiply_table(table, x) = reshape(transpose(table) * reshape(x, size(x, 1), :), :, size(x)[2:end]...)
# (width, height, features, batch) to (features, time, batch)
to_sequence(x) = permutedims(reshape(x, :, size(x, 3), size(x, 4)), (2, 1, 3))
attend(attention, causal, x) = first(attention(x; mask = causal ? NNlib.make_causal_mask(x) : nothing))

"""
    load_user_model(file, name)

Run a user's file in a module of its own, and return the model of this name, or the result of calling it without arguments.
"""
function load_user_model(file::AbstractString, name::AbstractString)
    space = Core.eval(Main, :(module $(gensym(:UserModel)) end))
    try
        Base.include(space, file)
    catch error
        error isa LoadError || rethrow()
        refuse("$(basename(error.file)):$(error.line)", first_line(error.error))
    end
    isdefined(space, Symbol(name)) || refuse(basename(file), "no $name: expected a Chain, or a function that returns one")
    value = getfield(space, Symbol(name))
    value isa Union{Function, Type} || return value
    try
        return Base.invokelatest(value)
    catch error
        frames = filter(frame -> string(frame.file) == file, stacktrace(catch_backtrace()))
        refuse(isempty(frames) ? basename(file) : "$(basename(file)):$(first(frames).line)", first_line(error))
    end
end

refuse(place, problem) = throw(ArgumentError("$place: $problem"))

"""
    describe_user_model(model, shape, tokens)

Return the layers of a chain as JSON: for each layer its record without a name, the user's name for it, the operation and its place, and
for each tensor the variable and if its layout needs a conversion; a sum has `branches`. `shape` is that of one input in Julia's
order; `tokens` are numbers from 1.
"""
function describe_user_model(model, shape::Tuple{Vararg{Int}}, tokens::Bool)
    copied, names, entries = read_user_model(model, shape, tokens)
    trained = Dict(names[array] => length(array) for array in Flux.trainables(copied))
    return JSON.json(Dict("layers" => entries, "trained" => trained))
end

"Return a float64 copy of a chain, the names of its arrays, and the entries of its layers."
function read_user_model(model, shape, tokens)
    model isa Chain || refuse("the model is a $(nameof(typeof(model)))", "expected a Chain of Flux")
    check_numbers(model)
    copied = Flux.f64(deepcopy(model))
    trained = Base.IdSet{AbstractArray}(Flux.trainables(copied))
    walk, entries = UserModelWalk(variable_names(copied), trained, Random.Xoshiro(0)), Dict{String, Any}[]
    translate!(walk, entries, copied, random_input(walk.random, shape, tokens), Union{Symbol, Int}[])
    return copied, walk.names, entries
end

"Refuse weights whose training in float64 is another one than their own."
function check_numbers(model)
    names, types = variable_names(model), Set{Type}()
    for array in Flux.trainables(model)
        push!(types, eltype(array))
        eltype(array) in (Float32, Float64) && length(types) == 1 ||
            refuse(get(names, array, "a weight"), "$(eltype(array)): expected Float32 or Float64, the same for all weights")
    end
    return nothing
end

random_input(random, shape, tokens) = tokens ? ones(Int, shape..., 2) : randn(random, shape..., 2)

struct UserModelWalk
    "The name of each array; that of a tied weight is the first one."
    names::IdDict{AbstractArray, String}
    "The arrays that training changes; a layer with `trainable = ()` has others."
    trained::Base.IdSet{AbstractArray}
    random::Random.Xoshiro
end

function variable_names(model)
    names = IdDict{AbstractArray, String}()
    foreach(((name, array),) -> get!(names, array, name), named_arrays(Flux.state(model)))
    return names
end

"""
    translate!(walk, entries, layer, x, path)

Add the entries of a layer that gets `x`, and return its output.
"""
function translate!(walk::UserModelWalk, entries, chain::Chain, x, path)
    for key in keys(chain.layers)
        x = translate!(walk, entries, chain.layers[key], x, [path; :layers; key])
    end
    return x
end

function translate!(walk::UserModelWalk, entries, block::Union{SkipConnection, Parallel}, x, path)
    layers = block isa Parallel ? block.layers : (block.layers,)
    block.connection === (+) && (block isa SkipConnection || length(layers) == 2) ||
        refuse(place(path), "$(nameof(typeof(block))): expected a sum of two branches, with the connection +")
    branches = map(collect(keys(layers))) do key
        branch = Dict{String, Any}[]
        here = block isa Parallel ? [path; :layers; key] : [path; :layers]
        translate!(walk, branch, layers[key], x, here)
        branch
    end
    block isa SkipConnection && push!(branches, Dict{String, Any}[])
    push!(entries, Dict("operation" => string(nameof(typeof(block))), "place" => place(path), "branches" => branches))
    return block(x)
end

const ImportedLayer = Union{
    BatchNorm, Conv, Dense, Dropout, Embedding, Flux.AdaptiveMeanPool, Flux.GroupNorm, Flux.LayerNorm, GlobalMeanPool, LSTM, MaxPool,
    MeanPool,
}

function translate!(walk::UserModelWalk, entries, layer::ImportedLayer, x, path)
    operation = string(nameof(typeof(layer)))
    y = try
        layer(x)
    catch error
        refuse(place(path), "$operation: an input of size $(size(x)[1:(end - 1)]) does not fit: $(first_line(error))")
    end
    try
        check_fields(layer)
        record = layer_record(layer)
        check_weights(layer, record)
        push!(entries, entry(walk, record, operation, place(path), user_name(path), layer))
        for activation in activation_records(activation_function(layer))
            push!(entries, entry(walk, activation, operation, place(path)))
        end
    catch error
        error isa ArgumentError || rethrow()
        refuse(place(path), "$operation: $(error.msg)")
    end
    return y
end

"Return the entry of a layer, whose tensors `layer` has."
function entry(walk::UserModelWalk, record, operation, where, name = "", layer = nothing)
    tensors = Dict(
        spec.name => (variable(walk, resolve_path(layer, spec.place), spec), spec.needs_conversion) for spec in tensor_specs(record)
    )
    return Dict("record" => record, "operation" => operation, "place" => where, "name" => name, "tensors" => tensors)
end

"Return the name of an array, which training changes as that of a network."
function variable(walk, array, spec)
    expect(array isa Array, "$(spec.name) is a $(nameof(typeof(array))): expected an Array")
    expect(spec.is_statistic || array in walk.trained, "$(spec.name) is not trainable: expected an array of Flux.trainables")
    return walk.names[array]
end

place(path) = join(path, '.')
"The name of a layer in a chain with names."
user_name(path) = last(path) isa Symbol && last(path) !== :layers ? string(last(path)) : ""
first_line(error) = first(split(sprint(showerror, error), '\n'))

function one_value(what, values)
    allequal(values) || throw(ArgumentError("$what $values: expected the same for all sides"))
    return first(values)
end

expect(condition, problem) = condition || throw(ArgumentError(problem))

"The fields that `layer_record`, `activation_function` and `TENSORS` read, and the random generator, whose numbers no proof compares."
const READ_FIELDS = (
    :σ, :λ, :weight, :bias, :β, :γ, :μ, :σ², :ϵ, :momentum, :chs, :G, :track_stats, :diag, :size, :stride, :pad, :dilation, :groups, :k,
    :out, :p, :rng, :cell,
)
"Other fields, with the only value that a network has."
const EXPECTED_FIELDS = (active = nothing, affine = true, dims = (:), padding_idx = nothing)

"Refuse fields that polybench does not read: those with another value than a network's, and those that a newer Flux added."
function check_fields(layer)
    for field in fieldnames(typeof(layer))
        field in READ_FIELDS && continue
        value = getfield(layer, field)
        expect(hasproperty(EXPECTED_FIELDS, field), "$field = $value: this version of polybench does not know this field")
        expect(value === EXPECTED_FIELDS[field], "$field = $value: expected $(EXPECTED_FIELDS[field])")
    end
    return nothing
end

"Refuse a layer with more weights than its record, which is nothing if it computes nothing."
function check_weights(layer, record)
    expect(length(Flux.trainables(layer)) <= count(spec -> !spec.is_statistic, tensor_specs(record)), "it has weights that no layer has")
    return nothing
end

"A number of type Float32 as it was written: 0.1 for 0.1f0."
as_written(number::Real) = parse(Float64, string(number))

function layer_record(layer::Conv)
    expect(all(==(1), layer.dilation), "dilation $(layer.dilation): expected 1")
    return Dict(
        "type" => "conv", "inputs" => size(layer.weight, 3) * layer.groups, "outputs" => size(layer.weight, 4),
        "kernel" => one_value("kernel", size(layer.weight)[1:2]), "stride" => one_value("stride", layer.stride),
        "padding" => padding_record(layer.pad), "bias" => layer.bias !== false, "groups" => layer.groups,
    )
end

layer_record(layer::Dense) = Dict(
    "type" => "dense", "inputs" => size(layer.weight, 2), "outputs" => size(layer.weight, 1), "bias" => layer.bias !== false,
)

function layer_record(layer::Union{MaxPool, MeanPool})
    type, window = layer isa MaxPool ? "max_pool" : "average_pool", one_value("window", layer.k)
    expect(all(<(window), layer.pad), "pad $(layer.pad): expected less than the window")
    return Dict("type" => type, "size" => window, "stride" => one_value("stride", layer.stride), "padding" => padding_record(layer.pad))
end

"""
    padding_record(pad)

Return the padding of a record for Flux's `pad`: of width and height, or of both sides of the width, then of the height.
"""
function padding_record(pad::Tuple)
    left, right, top, bottom = length(pad) == 2 ? (pad[1], pad[1], pad[2], pad[2]) : pad
    return allequal(pad) ? first(pad) : [[top, bottom], [left, right]]
end

layer_record(::GlobalMeanPool) = Dict("type" => "global_average_pool")

function layer_record(layer::Flux.AdaptiveMeanPool)
    expect(all(==(1), layer.out), "output size $(layer.out): expected (1, 1)")
    return Dict("type" => "global_average_pool")
end

function layer_record(layer::BatchNorm)
    expect(layer.track_stats, "track_stats = false: expected true")
    return Dict(
        "type" => "batch_norm", "channels" => layer.chs, "epsilon" => as_written(layer.ϵ), "momentum" => as_written(layer.momentum),
    )
end

function layer_record(layer::Flux.LayerNorm)
    expect(length(layer.size) == 1, "size $(layer.size): expected one number")
    expect(layer.diag isa Flux.Scale && layer.diag.σ === layer.λ, "diag $(layer.diag): expected a Scale with the layer's activation")
    # Flux adds the square of its epsilon to the variance (Flux 0.16.10, `normalise`).
    return Dict(
        "type" => "layer_norm", "features" => only(layer.size), "epsilon" => as_written(layer.ϵ)^2, "bias" => layer.diag.bias !== false,
    )
end

function layer_record(layer::Flux.GroupNorm)
    expect(!layer.track_stats, "track_stats = true: expected false")
    return Dict("type" => "group_norm", "channels" => layer.chs, "groups" => layer.G, "epsilon" => as_written(layer.ϵ))
end

layer_record(layer::Dropout) = Dict("type" => "dropout", "rate" => as_written(layer.p))

layer_record(layer::Embedding) =
    Dict("type" => "embedding", "vocabulary" => size(layer.weight, 2), "features" => size(layer.weight, 1))

function layer_record(layer::LSTM)
    expect(layer.cell isa LSTMCell, "cell $(nameof(typeof(layer.cell))): expected LSTMCell")
    expect(layer.cell.bias !== false, "bias = false: expected a bias")
    return Dict(
        "type" => "lstm", "inputs" => size(layer.cell.Wi, 2), "units" => size(layer.cell.Wh, 2), "bidirectional" => false,
        "sequence" => true,
    )
end

function layer_record(attention::MultiHeadAttention, causal::Bool)
    projections = (attention.q_proj, attention.k_proj, attention.v_proj, attention.out_proj)
    expect(all(one -> one isa Dense && one.σ === identity, projections), "expected projections that are Dense without activation")
    expect(allequal(map(one -> size(one.weight), projections)), "expected projections of one size, with as many outputs as inputs")
    expect(allequal(map(one -> one.bias === false, projections)), "expected biases in all projections, or in none")
    drop = attention.attn_drop
    expect(drop === identity || (drop isa Dropout && iszero(drop.p)), "attn_drop $drop: expected a dropout_prob of 0")
    return Dict(
        "type" => "attention", "features" => size(attention.q_proj.weight, 1), "heads" => attention.nheads, "causal" => causal,
        "bias" => attention.q_proj.bias !== false,
    )
end

activation_function(layer::Union{Conv, Dense}) = layer.σ
activation_function(layer::Union{BatchNorm, Flux.GroupNorm, Flux.LayerNorm}) = layer.λ
activation_function(_) = identity

const ACTIVATIONS = (
    Dict("type" => "relu") => Flux.relu,
    Dict("type" => "relu6") => Flux.relu6,
    Dict("type" => "silu") => Flux.swish,
    Dict("type" => "gelu") => NNlib.gelu_erf,
    Dict("type" => "gelu", "approximate" => "tanh") => NNlib.gelu_tanh,
)

"Return the records of a function of one number, which is recognized by its values."
function activation_records(activation)
    x = collect(-9.0:0.125:9.0)
    y = activation.(x)
    y == x && return ()
    for (record, compute) in ACTIVATIONS
        isapprox(compute.(x), y; rtol = CLOSE) && return (record,)
    end
    throw(ArgumentError("activation $activation: expected identity, relu, relu6, swish or gelu"))
end

# The user's own function or struct.
function translate!(walk::UserModelWalk, entries, layer, x, path)
    operation, where = described(layer, path)
    # Numbers of all sizes: behind another relu, relu changes nothing, and relu6 is relu below 6.
    x = eltype(x) <: Integer ? x : reshape(Random.shuffle(walk.random, range(-9.0, 9.0; length = length(x))), size(x))
    y = try
        layer(x)
    catch error
        refuse(where, "$operation: an input of size $(size(x)[1:(end - 1)]) does not fit: $(first_line(error))")
    end
    found = try
        computations(entries, layer, x)
    catch error
        error isa ArgumentError || rethrow()
        refuse(where, "$operation: $(error.msg)")
    end
    for (record, compute, change) in found
        z = try
            compute(x)
        catch
            continue
        end
        y isa AbstractArray && size(y) == size(z) && isapprox(y, z; rtol = CLOSE) || continue
        try
            check_weights(layer, record)
            check_training(layer, x, y)
            isnothing(record) || push!(entries, entry(walk, record, operation, where, "", change))
        catch error
            error isa ArgumentError || rethrow()
            refuse(where, "$operation: $(error.msg)")
        end
        isnothing(record) && change !== nothing && change()
        return y
    end
    return refuse(where, "$operation: no layer computes this: docs/networks.md lists the layers that exist")
end

"Refuse what computes something else while Zygote differentiates it, such as a dropout layer in it, than in inference."
function check_training(layer, x, y)
    z = try
        first(Zygote.pullback(layer, x))
    catch error
        throw(ArgumentError("Zygote cannot differentiate it: $(first_line(error))"))
    end
    expect(size(z) == size(y) && isapprox(z, y; rtol = CLOSE), "it computes something else in training than in inference")
    return nothing
end

function described(layer::Function, path)
    name, method = string(nameof(layer)), first(methods(layer))
    return startswith(name, '#') ? "anonymous function" : name, "$(basename(string(method.file))):$(method.line)"
end
described(layer, path) = string(nameof(typeof(layer))), place(path)

"""
    computations(entries, layer, x)

Return what a function or struct of the user could be, the most likely first: a record or nothing, the function of `x` that it is,
and for a record with tensors the layer that has them, or for none a change of the entries before it.
"""
function computations(entries, layer, x)
    last_record = isempty(entries) ? Dict{String, Any}() : get(last(entries), "record", Dict{String, Any}())
    last_type = get(last_record, "type", "")
    # First what has arrays: positions of zeros change nothing.
    found = Tuple{Any, Any, Any}[with_fields([getfield(layer, name) for name in fieldnames(typeof(layer))]); (nothing, identity, nothing)]
    for (record, compute) in ACTIVATIONS
        push!(found, (record, x -> compute.(x), nothing))
    end
    push!(found, (last_type == "global_average_pool" ? nothing : Dict("type" => "flatten"), Flux.flatten, nothing))
    push!(found, (nothing, x -> Flux.softmax(x; dims = 1), () -> push!(entries, Dict("softmax" => true))))
    if ndims(x) == 4
        average = Dict("type" => "global_average_pool")
        push!(found, (average, x -> mean(x; dims = (1, 2)), nothing), (average, x -> dropdims(mean(x; dims = (1, 2)); dims = (1, 2)), nothing))
        last_type == "conv" && push!(found, (nothing, to_sequence, () -> make_patches!(last(entries))))
    elseif ndims(x) == 3
        push!(found, (Dict("type" => "mean_over_time"), mean_over_time, nothing), (Dict("type" => "first_position"), first_position, nothing))
        last_type == "lstm" && push!(found, (nothing, last_output, () -> (last_record["sequence"] = false)))
    end
    return found
end

"Return what a struct or a function with a layer or an array in it could be."
function with_fields(fields)
    attentions = [field for field in fields if field isa MultiHeadAttention]
    arrays = [field for field in fields if field isa AbstractArray{<:Real}]
    if length(attentions) == 1
        attention = only(attentions)
        return [(layer_record(attention, causal), x -> attend(attention, causal, x), attention) for causal in (false, true)]
    elseif length(arrays) == 1
        array = only(arrays)
        features, count = size(array, 1), size(array, 2)
        return [
            (Dict("type" => "positions", "length" => count, "features" => features), x -> add_positions(array, x), (; tensor = array)),
            (Dict("type" => "class_token", "features" => features), x -> prepend_token(array, x), (; tensor = array)),
            (
                Dict("type" => "dense", "inputs" => features, "outputs" => count, "bias" => false, "table" => true),
                x -> multiply_table(array, x), (; tensor = array),
            ),
        ]
    end
    return []
end

"Turn a convolution whose outputs become a sequence into patches."
function make_patches!(entry)
    conv = entry["record"]
    conv["kernel"] == conv["stride"] && conv["padding"] == 0 && conv["groups"] == 1 ||
        refuse(entry["place"], "Conv: a sequence of its outputs: expected a stride of the kernel's size, pad 0 and groups 1")
    entry["record"] = Dict(
        "type" => "patches", "inputs" => conv["inputs"], "outputs" => conv["outputs"], "size" => conv["kernel"], "bias" => conv["bias"],
    )
    return nothing
end

"""
A user's chain in float64, whose dropout has given masks. Its layers have the modes that the user gave them: by default, they are in
training in a gradient only. `names` are those of its arrays, each once; `optimizer` is the state of a training by `rule`.
"""
mutable struct UserProgram{M}
    const model::M
    const returns_probabilities::Bool
    const names::Vector{String}
    const rule::AbstractRule
    optimizer::Any
end

function UserProgram(model, returns_probabilities::Bool, optimizer::AbstractRule = rule("momentum"; learning_rate = 0.01))
    names = sort!(unique(values(variable_names(model))))
    is_replaced(layer) = layer isa Union{BatchNorm, Dropout, Flux.GroupNorm, Flux.LayerNorm} || Flux.Functors.isleaf(layer)
    replaced = Flux.fmap(for_float64, deepcopy(model); exclude = is_replaced)
    return start_training!(UserProgram(Flux.f64(replaced), returns_probabilities, names, optimizer, nothing))
end

"Begin a training: the optimizer has a new state."
function start_training!(program::UserProgram)
    program.optimizer = Flux.setup(program.rule, program.model)
    return program
end

"""
Dropout with a mask that is set before each step. As in Flux, `nothing` makes it active in a gradient only.
"""
mutable struct FixedMaskDropout
    mask::AbstractArray
    active::Union{Bool, Nothing}
end

Flux.@layer FixedMaskDropout trainable = ()

is_active(dropout::FixedMaskDropout, x) = dropout.active === nothing ? NNlib.within_gradient(x) : dropout.active
(dropout::FixedMaskDropout)(x) = is_active(dropout, x) ? x .* dropout.mask : x

"Return a layer whose numbers are those of its record. `Flux.f64` converts arrays only, and `mobile-cifar` magnifies the error of 1f-5."
for_float64(layer) = layer
for_float64(dropout::Dropout) = FixedMaskDropout(ones(1), dropout.active)
for_float64(n::BatchNorm) = BatchNorm(
    n.λ, n.β, n.γ, n.μ, n.σ², as_written(n.ϵ), as_written(n.momentum), n.affine, n.track_stats, n.active, n.chs,
)
for_float64(n::Flux.GroupNorm) = Flux.GroupNorm(
    n.G, n.λ, n.β, n.γ, n.μ, n.σ², as_written(n.ϵ), as_written(n.momentum), n.affine, n.track_stats, n.active, n.chs,
)
for_float64(n::Flux.LayerNorm) = Flux.LayerNorm(n.λ, n.diag, as_written(n.ϵ), n.size, n.affine)

"Return its arrays in the order of `names`. Training replaces running statistics, so that they are looked up each time."
function variables(program::UserProgram)
    arrays = Dict(named_arrays(Flux.state(program.model)))
    return [arrays[name] for name in program.names]
end

variable_sizes(program::UserProgram) = map(length, variables(program))

"""
    user_program_step!(program, x, labels)

Take a training step. Return the loss before it and the gradients, in the order of `names`; those of tied weights are summed. Labels
count from 0.
"""
function user_program_step!(program::UserProgram, x, labels)
    function loss(model)
        y = model(x)
        targets = ignore_derivatives(() -> Flux.onehotbatch(labels, 0:(size(y, 1) - 1)))
        return program.returns_probabilities ? Flux.crossentropy(y, targets) : Flux.logitcrossentropy(y, targets)
    end
    value, gradients = Flux.withgradient(loss, program.model)
    names, arrays = variable_names(program.model), Dict(named_arrays(Flux.state(program.model)))
    sums = Dict{String, Any}()
    for (name, gradient) in named_arrays(gradients[1])
        haskey(arrays, name) || continue
        owner = names[arrays[name]]
        sums[owner] = haskey(sums, owner) ? sums[owner] + gradient : gradient
    end
    found = [Array{Float64}(get(() -> zero(arrays[name]), sums, name)) for name in program.names]
    Flux.update!(program.optimizer, program.model, gradients[1])
    return value, found
end

"""
    bench(chain; against = ["torch", "tf"], input, batch = 128, results = mktempdir(), command = `polybench`, options = ``)

Measure your own chain in Flux and in the engines `against`, which train the same network: it becomes a network file, and
`polybench compare` proves that all engines compute the same and times them. Returns the `Study`.

`input` is the size of one input in Julia's order: `(32, 32, 3)` for images, `(features, time)`, or `(time,)` for tokens. The chain's own
weights are not used; they start from the seed. `results` is the folder in which the study is saved. `command` is the installed Python package; `options` are further ones of
`polybench compare`. Throws an `ArgumentError` that names the layer that polybench does not have.

```julia
study = bench(chain; against = ["torch", "tf"], input = (32, 32, 3), batch = 64)
```
"""
function bench(
        chain::Chain; against = ["torch", "tf"], input::Tuple{Vararg{Int}}, batch::Int = 128, results::AbstractString = mktempdir(),
        command::Cmd = `polybench`, options::Cmd = ``,
    )
    table, weights = network_table(chain, input)
    return mktempdir() do folder
        model = joinpath(folder, "chain.toml")
        open(io -> TOML.print(io, table), model, "w")
        engines = join(["flux"; against], ',')
        arguments = `--engines $engines --model $model --data synthetic --batch-size $batch --results $results`
        earlier = saved_logs(results)
        process = run(ignorestatus(`$command compare $arguments $options`))
        saved = setdiff(saved_logs(results), earlier)
        isempty(saved) && error("polybench compare ended with $(process.exitcode) and saved nothing; see its message above")
        study = read_study(only(saved))
        check_program(study, chain, weights, input)
        study
    end
end

saved_logs(folder) = isdir(folder) ? filter(endswith(".jsonl"), readdir(folder; join = true)) : String[]

"""
    network_table(chain, input)

Return the network file of a chain as nested dictionaries, and the chain's weights in the canonical layout by name.
"""
function network_table(chain::Chain, input::Tuple{Vararg{Int}})
    tokens = length(input) == 1
    copied, names, entries = read_user_model(chain, input, tokens)
    arrays = Dict(name => array for (array, name) in names)
    found = (weights = Dict{String, AbstractArray}(), owners = Dict{String, String}(), names = String[])
    records = named_records(found, entries, arrays)
    axes = tokens ? ("length",) : length(input) == 2 ? ("features", "length") : ("width", "height", "channels")
    shape = Dict{String, Int}(axes .=> input)
    tokens && (shape["vocabulary"] = first(records)["vocabulary"])
    classes = size(copied(random_input(Random.Xoshiro(1), input, tokens)), 1)
    return Dict("classes" => classes, "input" => shape, "layers" => records), found.weights
end

"""
    check_program(study, chain, weights, input)

Check that the program of Flux that a study has timed computes the same as the chain, with the chain's `weights` by name.
"""
function check_program(study::Study, chain::Chain, weights, input)
    texts = [field(event, "program", "text") for event in events_of_configuration(study, "engine", "flux/cpu")]
    filter!(!isnothing, texts)
    isempty(texts) && return nothing  # it was not measured
    x, program = random_input(Random.Xoshiro(1), input, length(input) == 1), Module(:Program)
    Base.include_string(program, replace(last(texts), "const DTYPE = Float32" => "const DTYPE = Float64"))
    y, logits = Flux.f64(deepcopy(chain))(x), Base.invokelatest(program_logits, program, weights, x)
    isapprox(y, logits; rtol = 1.0e-7) || isapprox(y, Flux.softmax(logits; dims = 1); rtol = 1.0e-7) ||
        error("the network is not the same as the chain: please report it")
    return nothing
end

function program_logits(program::Module, weights, x)
    model = Flux.testmode!(Flux.f64(program.network()))
    for (name, array) in program.tensors(model)
        array .= weights[name]
    end
    return model(x)
end

"""
    named_records(found, entries, arrays)

Return the records of entries, with names. `found` receives the weights in the canonical layout, the layer that has each variable, and
the names.
"""
function named_records(found, entries, arrays)
    records = Dict{String, Any}[]
    for entry in entries
        haskey(entry, "softmax") && continue
        if haskey(entry, "branches")
            body, shortcut = (named_records(found, branch, arrays) for branch in sort(entry["branches"]; by = length, rev = true))
            push!(records, Dict("type" => "residual", "body" => body, "shortcut" => shortcut))
            continue
        end
        record = Dict{String, Any}(pair for pair in entry["record"] if first(pair) != "table")
        push!(records, record)
        isempty(entry["tensors"]) && record["type"] != "dropout" && continue
        record["name"] = "$(record["type"])$(length(found.names) + 1)"
        push!(found.names, record["name"])
        if is_table(entry["record"]) && haskey(found.owners, entry["tensors"]["weight"][1])
            record["tied"] = found.owners[entry["tensors"]["weight"][1]]
            continue
        end
        for (tensor, (variable, needs_conversion)) in entry["tensors"]
            tensor == "weight" && get!(found.owners, variable, record["name"])
            found.weights["$(record["name"]).$tensor"] = needs_conversion ? canonical(arrays[variable]) : arrays[variable]
        end
    end
    return records
end

"""
    canonical(array)

Return one of Flux's arrays in the canonical layout, in Julia's order: the axes are those of polybench's arrays, reversed. Flux's
convolution flips its kernel, and its matrices are (out, in).
"""
canonical(kernel::AbstractArray{<:Real, 4}) = reverse(kernel; dims = (1, 2))
canonical(matrix::AbstractMatrix) = permutedims(matrix)
canonical(vector::AbstractVector) = vector
