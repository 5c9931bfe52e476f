"""
Folder of the networks for color images that polybench knows by name, with their declared training. `make readme` generates the files in
`models/` from polybench's networks.
"""
const MODELS = normpath(joinpath(@__DIR__, "..", "models"))

"""A network with its declared training. Shapes are (channels, height, width), as in polybench."""
struct Model
    name::String
    input_shape::NTuple{3, Int}
    classes::Int
    records::Vector{Dict{String, Any}}
    batch_size::Int
    optimizer::Dict{String, Any}
    "Uniform distribution of the initial weights: `glorot` or `he`."
    initialization::String
end

"""
    model_names()

List the names of networks for `bench` and `model`.

```jldoctest
julia> using PolyBench

julia> model_names()
6-element Vector{String}:
 "catdog-2"
 "dlframeworks-cnn"
 "keras-cnn"
 "lenet"
 "resnet32"
 "small-vgg"
```
"""
model_names() = sort!([first(splitext(file)) for file in readdir(MODELS) if endswith(file, ".toml")])

"""
    model(name)

Load the network of this name, a `Symbol` or a string, with `_` equivalent to `-`.
"""
function model(name::Union{Symbol, AbstractString})
    file_name = replace(String(name), '_' => '-')
    file_name in model_names() ||
        throw(ArgumentError("unknown network \"$name\": expected one of $(join(model_names(), ", "))"))
    found = TOML.parsefile(joinpath(MODELS, "$file_name.toml"))
    return Model(
        found["name"], Tuple(Int.(found["input_shape"])), found["classes"],
        Vector{Dict{String, Any}}(found["layers"]), found["batch_size"], found["optimizer"], found["initialization"],
    )
end

"""
    parameter_count(model)

Count the trained parameters.
"""
parameter_count(model::Model) = sum(
    (prod(spec.size) for record in walk(model.records) for spec in tensor_specs(record) if spec.role === :trained); init = 0
)

"""
    initial_weights(model, seed)

Return the initial weights of all of polybench's engines: names such as `conv1.weight` to canonical `Float32` arrays (see `weights.jl`).
Each tensor is uniform, with Glorot's or He's limit, from its own stream, given by the seed and its name.
"""
initial_weights(model::Model, seed::Integer) = Dict(
    name => length(size) == 1 ? constant_tensor(name, size) : uniform_tensor(model, name, size, seed) for
        (name, size) in tensor_shapes(model.records)
)

constant_tensor(name, size) = fill(endswith(name, r"\.weight|\.running_variance") ? 1.0f0 : 0.0f0, size)

function uniform_tensor(model, name, size, seed)
    area, inputs, outputs = prod(size[1:(end - 2)]), size[end - 1], size[end]
    return sample_uniform(size, seed, name, uniform_limit(model.initialization, area, inputs, outputs))
end

# Glorot and Bengio, 2010; He et al., 2015. The order of operations matters for the last bit.
uniform_limit(name, area, inputs, outputs) =
    name == "he" ? sqrt(6 / (inputs * area)) : sqrt(6 / (inputs * area + outputs * area))

function sample_uniform(size, seed, name, limit)
    stream = PCG64((seed, crc32(name)))
    values = Array{Float32}(undef, size)
    for index in eachindex(values)  # in the order of memory, which is C order of the canonical shape
        values[index] = (2 * uniform!(stream) - 1) * limit
    end
    return values
end

"""
    weights_sha256(model, weights)

Return the SHA-256 of these weights, as in saved studies.
"""
function weights_sha256(model::Model, weights)
    context = SHA.SHA256_CTX()
    for (name, _) in tensor_shapes(model.records)
        SHA.update!(context, collect(reinterpret(UInt8, vec(weights[name]))))
    end
    return bytes2hex(SHA.digest!(context))
end
