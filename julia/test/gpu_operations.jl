"""
What NNlib's extension for CUDA.jl takes from cuDNN and cuBLAS, for JLArrays: convolution, pooling and batched products. They call
`NNlib.unfold` and `NNlib.fold`, which are NNlib's own kernels for any GPU. A gradient of max-pooling goes to the first maximum of a
window.
"""
module GPUOperations

    using JLArrays: JLArray
    using NNlib: NNlib, DenseConvDims, PoolDims, batched_adjoint, batched_mul

    const Array5{T} = JLArray{T, 5}
    const Floats = Union{Float32, Float64}

    # Arrays are (width, height, depth, channels, batch), windows (positions, pixels and channels, batch).

    function NNlib.conv!(y::Array5{T}, x::Array5{T}, w::Array5{T}, dims::DenseConvDims; _...) where {T <: Floats}
        for (inputs, outputs, group) in groups(dims)
            windows = NNlib.unfold(x[:, :, :, inputs, :], group)
            y[:, :, :, outputs, :] = reshape(batched_mul(windows, matrix(w, outputs)), :, 1, 1, length(outputs), size(y, 5))
        end
        return y
    end

    function NNlib.∇conv_data!(dx::Array5{T}, dy::Array5{T}, w::Array5{T}, dims::DenseConvDims; _...) where {T <: Floats}
        for (inputs, outputs, group) in groups(dims)
            dwindows = batched_mul(rows(dy, outputs), batched_adjoint(matrix(w, outputs)))
            dx[:, :, :, inputs, :] = NNlib.fold(dwindows, (size(dx)[1:3]..., length(inputs), size(dx, 5)), group)
        end
        return dx
    end

    function NNlib.∇conv_filter!(dw::Array5{T}, x::Array5{T}, dy::Array5{T}, dims::DenseConvDims; _...) where {T <: Floats}
        for (inputs, outputs, group) in groups(dims)
            windows = NNlib.unfold(x[:, :, :, inputs, :], group)
            products = batched_mul(batched_adjoint(windows), rows(dy, outputs))
            dw[:, :, :, :, outputs] = reshape(sum(products; dims = 3), size(dw)[1:4]..., length(outputs))
        end
        return dw
    end

    matrix(w, outputs) = reshape(w[:, :, :, :, outputs], :, length(outputs), 1)
    rows(y, channels) = reshape(y[:, :, :, channels, :], :, length(channels), size(y, 5))

    """List (input channels, output channels, dimensions) of each group of a convolution."""
    function groups(dims)
        count = NNlib.groupcount(dims)
        inputs, outputs = NNlib.channels_in(dims) ÷ count, NNlib.channels_out(dims) ÷ count
        group = DenseConvDims(dims; G = 1, C_in = inputs, C_out = outputs)
        return [((i * inputs) .+ (1:inputs), (i * outputs) .+ (1:outputs), group) for i in 0:(count - 1)]
    end

    function NNlib._batched_gemm!(::Type{<:JLArray}, trans_a::Char, trans_b::Char, α::Number, a, b, β::Number, c)
        for index in axes(c, 3)
            product = factor(a, trans_a, index) * factor(b, trans_b, index)
            # With β = 0, `c` has no values yet.
            c[:, :, index] = iszero(β) ? α .* product : α .* product .+ β .* c[:, :, index]
        end
        return c
    end

    function factor(a, trans, index)
        matrix = a[:, :, min(index, size(a, 3))]
        return trans == 'N' ? matrix : trans == 'T' ? transpose(matrix) : adjoint(matrix)
    end

    # As in CUDA.jl (src/reverse.jl).
    Base.reverse(x::JLArray; dims::Integer) = x[ntuple(d -> d == dims ? (size(x, d):-1:1) : Colon(), ndims(x))...]

    # A channel of an image is an image for pooling.
    NNlib.maxpool!(y::Array5, x::Array5, dims::PoolDims; _...) = copyto!(y, maximum(pool_windows(x, dims); dims = 2))

    function NNlib.∇maxpool!(dx::Array5, dy::Array5, y::Array5, x::Array5, dims::PoolDims; _...)
        windows = pool_windows(x, dims)
        pixels = reshape(1:size(windows, 2), 1, :)
        first_maximum = minimum(ifelse.(windows .== per_window(y, windows), pixels, typemax(Int)); dims = 2)
        return fold_windows!(dx, (pixels .== first_maximum) .* per_window(dy, windows), dims)
    end

    NNlib.meanpool!(y::Array5, x::Array5, dims::PoolDims; _...) =
        copyto!(y, sum(pool_windows(x, dims); dims = 2) ./ prod(NNlib.kernel_size(dims)))

    function NNlib.∇meanpool!(dx::Array5, dy::Array5, y::Array5, x::Array5, dims::PoolDims; _...)
        windows = pool_windows(x, dims)
        return fold_windows!(dx, zero(windows) .+ per_window(dy, windows) ./ size(windows, 2), dims)
    end

    images(x) = reshape(x, size(x)[1:3]..., 1, :)
    per_window(y, windows) = reshape(y, size(windows, 1), 1, :)
    pool_windows(x, dims) = NNlib.unfold(images(x), conv_dims(images(x), dims))
    fold_windows!(dx, dwindows, dims) =
        copyto!(dx, NNlib.fold(dwindows, size(images(dx)), conv_dims(images(dx), dims)))

    conv_dims(x, dims) = DenseConvDims(
        size(x), (NNlib.kernel_size(dims)..., 1, 1);
        stride = NNlib.stride(dims), padding = NNlib.padding(dims), flipkernel = true,
    )

end
