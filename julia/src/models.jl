"""
Folder of the networks for color images that polybench knows by name: a file `NAME.jl` has its functions `network` and `tensors` in
Flux, as polybench prints them, and `NAME.toml` its arrays and declared training. `make readme` generates both.
"""
const MODELS = normpath(joinpath(@__DIR__, "..", "models"))

"""
A network with its declared training. Shapes are (channels, height, width), as in polybench.
"""
struct Model
    name::String
    "The module of the functions `network` and `tensors`."
    program::Module
    input_shape::NTuple{3, Int}
    classes::Int
    "Names of the arrays => sizes, with Python's axes reversed, in the order of the layers: trained ones, then running statistics."
    tensors::Vector{Pair{String, Tuple{Vararg{Int}}}}
    "The number of trained arrays."
    trained::Int
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

"""The programs of the networks by name."""
const PROGRAMS = Dict{String, Module}()

for name in model_names()
    PROGRAMS[name] = @eval module $(Symbol(name))
    include($(joinpath(MODELS, "$name.jl")))
    end
    include_dependency(joinpath(MODELS, "$name.toml"))
end

"""
    model(name)

Load the network of this name, a `Symbol` or a string, with `_` equivalent to `-`.
"""
function model(name::Union{Symbol, AbstractString})
    file_name = replace(String(name), '_' => '-')
    file_name in model_names() ||
        throw(ArgumentError("unknown network \"$name\": expected one of $(join(model_names(), ", "))"))
    found = TOML.parsefile(joinpath(MODELS, "$file_name.toml"))
    tensors = [tensor["name"] => Tuple(reverse(tensor["shape"])) for tensor in [found["trained"]; found["statistics"]]]
    return Model(
        found["name"], PROGRAMS[file_name], Tuple(Int.(found["input_shape"])), found["classes"], tensors, length(found["trained"]),
        found["batch_size"], found["optimizer"], found["initialization"],
    )
end

"""
    network(model, weights, mode = StepMode())

Return the network with these canonical arrays by name, as its gradients are computed in this mode.
"""
function network(model::Model, weights, mode::StepMode = StepMode())
    made = model.program.network()
    for (name, array) in model.program.tensors(made)
        array .= weights[name]
    end
    return Flux.testmode!(made, test_mode(mode))
end

"""
    parameter_count(model)

Count the trained parameters.
"""
parameter_count(model::Model) = sum(((_, size),) -> prod(size), model.tensors[1:model.trained]; init = 0)

"""
    initial_weights(model, seed)

Return the initial weights of all of polybench's engines: names such as `conv1.weight` to canonical `Float32` arrays, those
of Python with the axes reversed. Each tensor is uniform, with Glorot's or He's limit, from its own stream, given by the seed and its name.
"""
initial_weights(model::Model, seed::Integer) = Dict(
    name => length(size) == 1 ? constant_tensor(name, size) : uniform_tensor(model, name, size, seed) for
        (name, size) in model.tensors
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
    for (name, _) in model.tensors
        SHA.update!(context, collect(reinterpret(UInt8, vec(weights[name]))))
    end
    return bytes2hex(SHA.digest!(context))
end
