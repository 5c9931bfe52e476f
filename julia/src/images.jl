"""
Images for training: CIFAR-10 from a folder, or polybench's synthetic ones. Both are (width, height, channels, images) of `UInt8`,
equal to those of `polybench` byte for byte.
"""
struct Dataset
    name::String
    images::Array{UInt8, 4}
    labels::Vector{Int64}
end

const CIFAR10_RECORD = 1 + 3 * 32 * 32  # bytes: the label, then red, green and blue planes

"""
    dataset(model, data, seed)

Return the synthetic data set, or CIFAR-10 from a folder, for networks with CIFAR-10's input shape.
"""
function dataset(model::Model, data::AbstractString, seed::Integer)
    data == "synthetic" && return last_synthetic(model, seed)
    (model.input_shape, model.classes) == ((3, 32, 32), 10) || throw(
        ArgumentError(
            "CIFAR-10 has 3x32x32 images in 10 classes, but $(model.name) needs $(join(model.input_shape, 'x')) images in " *
                "$(model.classes): use data = \"synthetic\"",
        )
    )
    return cifar10(data)
end

"""The last synthetic data set, 147 MiB for CIFAR-10's shape, and what it was made for; the trials of a session share it."""
const LAST_SYNTHETIC = Ref{Any}((nothing, nothing))

function last_synthetic(model::Model, seed::Integer)
    key = (model.input_shape, model.classes, seed)
    first(LAST_SYNTHETIC[]) == key || (LAST_SYNTHETIC[] = (key, synthetic(model, seed)))
    return last(LAST_SYNTHETIC[])::Dataset
end

"""
    cifar10(folder)

Read the training images from CIFAR-10's binary files, `data_batch_1.bin` to `data_batch_5.bin`.
"""
function cifar10(folder::AbstractString)
    files = [joinpath(folder, "data_batch_$n.bin") for n in 1:5]
    missing_file = findfirst(!isfile, files)
    missing_file === nothing ||
        throw(ArgumentError("$(files[missing_file]) does not exist: pass the folder with CIFAR-10's binary files"))
    sizes = map(filesize, files)
    short = findfirst(size -> size == 0 || size % CIFAR10_RECORD != 0 || size < maximum(sizes), sizes)
    short === nothing || throw(
        ArgumentError(
            "$(files[short]) is truncated or not CIFAR-10: $(sizes[short]) bytes, expected " *
                "$(10_000 * CIFAR10_RECORD) (records of $CIFAR10_RECORD bytes)",
        )
    )
    records = reshape(mapreduce(read, vcat, files), CIFAR10_RECORD, :)
    return Dataset("cifar10", reshape(records[2:end, :], 32, 32, 3, :), Int64.(records[1, :]))
end

const CLASS_WORDS = 8  # random 64-bit words per image: 4 grids (brightness and three colors) of 4 x 4 bytes
const GRAINS = 256
const MEANS = (125, 123, 114)
const GAINS = (70, 69, 76)

"""
    synthetic(model, seed)

Generate smooth fields with grain, in classes that a network can learn, as defined in `polybench/data/synthetic.py`: in each
channel a random 4 x 4 grid plus that of the class, interpolated with integer arithmetic.
"""
function synthetic(model::Model, seed::Integer; count = synthetic_count(model))
    _, height, width = model.input_shape
    stream = PCG64((seed, crc32("synthetic")))
    prototypes = [grids(random_bytes(stream, CLASS_WORDS)) for _ in 1:(model.classes)]
    mean = fld.(reduce(+, prototypes), model.classes)  # otherwise the mean image would depend on the seed
    prototypes = [fld.(prototype .- mean, 2) for prototype in prototypes]
    grain = reshape(Int.(random_bytes(stream, GRAINS * 32 * 32 ÷ 8)) .% 17 .- 8, 32, 32, GRAINS)
    labels = [(index - 1) % model.classes for index in 1:count]
    images = Array{UInt8}(undef, width, height, 3, count)
    for (index, label) in enumerate(labels)
        raw = random_bytes(stream, CLASS_WORDS)
        render!(view(images, :, :, :, index), grids(raw) .+ prototypes[label + 1], view(grain, :, :, raw[1] + 1))
    end
    return Dataset("synthetic", images, labels)
end

# Fewer images if they are larger than CIFAR-10's, so that the data set has the same size.
synthetic_count(model::Model) = min(50_000, 50_000 * 3072 ÷ prod(model.input_shape))

random_bytes(stream, words) = collect(reinterpret(UInt8, [htol(next!(stream)) for _ in 1:words]))

"""
    grids(raw)

Return grids (4, 4, 3), columns first, centered at 0: brightness, common to the channels, plus color with half its amplitude.
"""
function grids(raw::Vector{UInt8})
    values = reshape(2 .* Int.(raw) .- 255, 4, 4, 4)
    return [fld((values[x, y, 1] + fld(values[x, y, c + 1], 2)) * GAINS[c], 128) for x in 1:4, y in 1:4, c in 1:3]
end

function render!(image, field, grain)
    width, height, _ = size(image)
    for channel in 1:3
        pixels = upsample(upsample(field[:, :, channel], width), height; rows = true)
        for y in 1:height, x in 1:width
            value = pixels[x, y] + grain[mod1(x, 32), mod1(y, 32)] + MEANS[channel]
            image[x, y, channel] = clamp(value, 0, 255)
        end
    end
    return nothing
end

"""
    upsample(field, length; rows = false)

Double the field along columns or rows until it is long enough, then crop it. Each value is 3/4 of the nearest and 1/4 of the next
one, with borders repeated.
"""
function upsample(field::Matrix{Int}, length::Int; rows::Bool = false)
    rows && return permutedims(upsample(permutedims(field), length))
    while size(field, 1) < length
        field = upsample2x(field)
    end
    return field[1:length, :]
end

function upsample2x(field::Matrix{Int})
    n, columns = size(field)
    twice = Matrix{Int}(undef, 2n, columns)
    for y in 1:columns, x in 1:n
        nearest = 3 * field[x, y] + 2  # + 2, half of 4, rounds the division
        twice[2x - 1, y] = (nearest + field[max(x - 1, 1), y]) >> 2
        twice[2x, y] = (nearest + field[min(x + 1, n), y]) >> 2
    end
    return twice
end

"""
    epoch_order(images, batch_size, seed, epoch)

Return the image indices of each batch: (batch, steps), from 0, shuffled as in `polybench/data/batches.py`. Drops an incomplete last
batch.
"""
function epoch_order(images::Int, batch_size::Int, seed::Integer, epoch::Integer)
    1 <= batch_size <= images ||
        throw(ArgumentError("invalid batch size $batch_size: expected 1 to $images"))
    stream, values = PCG64((seed, epoch)), collect(0:(images - 1))
    for last in images:-1:2
        partner = trunc(Int, uniform!(stream) * last) + 1
        values[last], values[partner] = values[partner], values[last]
    end
    steps = images ÷ batch_size
    return reshape(values[1:(steps * batch_size)], batch_size, steps)
end

"""
    data_sha256(dataset)

Return the SHA-256 of these images and labels, as in saved studies.
"""
function data_sha256(dataset::Dataset)
    context = SHA.SHA256_CTX()
    SHA.update!(context, vec(dataset.images))
    SHA.update!(context, UInt8.(dataset.labels))
    return bytes2hex(SHA.digest!(context))
end
