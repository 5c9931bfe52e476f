"""
The networks of images in colour that polybench knows by name, with the training that their authors declared. The files in `models/` are written
from polybench's own table (`make readme`), so both are the same.
"""
const MODELS = normpath(joinpath(@__DIR__, "..", "models"))

"""A network, and its declared training. Shapes are those of polybench: (channels, height, width)."""
struct Model
    name::String
    input_shape::NTuple{3, Int}
    classes::Int
    records::Vector{Dict{String, Any}}
    batch_size::Int
    optimizer::Dict{String, Any}
    "`glorot` or `he`: which uniform distribution the weights are drawn from."
    initialization::String
end

"""
    model_names()

What `model` finds: `lenet`, `resnet32`, ...
"""
model_names() = sort!([first(splitext(file)) for file in readdir(MODELS) if endswith(file, ".toml")])

"""
    model(name)

The network called so, as a `Symbol` or a text; `_` may stand for `-`.
"""
function model(name::Union{Symbol, AbstractString})
    wanted = replace(String(name), '_' => '-')
    wanted in model_names() ||
        throw(ArgumentError("there is no network \"$name\"; there are $(join(model_names(), ", "))"))
    found = TOML.parsefile(joinpath(MODELS, "$wanted.toml"))
    return Model(
        found["name"], Tuple(Int.(found["input_shape"])), found["classes"],
        Vector{Dict{String, Any}}(found["layers"]), found["batch_size"], found["optimizer"], found["initialization"],
    )
end

"""
    parameter_count(model)

How many numbers are trained.
"""
parameter_count(model::Model) = sum(
    (prod(part.size) for record in walk(model.records) for part in parts(record) if part.role === :trained); init = 0
)

"""
    initial_weights(model, seed)

The weights that every engine of polybench starts from: `layer_name.part` to canonical `Float32` arrays (see
`weights.jl`). Each tensor is uniform, with Glorot's or He's limit, from a stream of the seed and its own name.
"""
initial_weights(model::Model, seed::Integer) = Dict(
    name => length(size) == 1 ? constant_tensor(name, size) : uniform_tensor(model, name, size, seed) for
        (name, size) in tensor_shapes(model.records)
)

constant_tensor(name, size) = fill(endswith(name, r"\.weight|\.running_variance") ? 1.0f0 : 0.0f0, size)

function uniform_tensor(model, name, size, seed)
    area, inputs, outputs = prod(size[1:(end - 2)]), size[end - 1], size[end]
    return drawn(size, seed, name, limit(model.initialization, area, inputs, outputs))
end

# Glorot and Bengio, 2010; He et al., 2015. The order of operations is polybench's, for the last bit.
limit(name, area, inputs, outputs) =
    name == "he" ? sqrt(6 / (inputs * area)) : sqrt(6 / (inputs * area + outputs * area))

function drawn(size, seed, name, limit)
    stream = PCG64((seed, crc32(name)))
    values = Array{Float32}(undef, size)
    for index in eachindex(values)  # in the order of memory, which is C order of the canonical shape
        values[index] = (2 * uniform!(stream) - 1) * limit
    end
    return values
end

"""
    weights_sha256(model, weights)

The SHA-256 that polybench's documents have of these weights.
"""
function weights_sha256(model::Model, weights)
    context = SHA.SHA256_CTX()
    for (name, _) in tensor_shapes(model.records)
        SHA.update!(context, collect(reinterpret(UInt8, vec(weights[name]))))
    end
    return bytes2hex(SHA.digest!(context))
end
