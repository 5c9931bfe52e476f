# Times three functions of NNlib on this machine, and checks them against NNlib's direct loops. Needs only NNlib.
#
#     julia --threads=2 --project=WITH_NNLIB reproduce.jl
#
# The convolution is lenet's second one, 16 => 8 channels, 5x5, on 14x14, 128 images; BLAS has one thread.
using LinearAlgebra: BLAS, norm
using NNlib

best(f; seconds = 3.0) = (f(); stop = time() + seconds; t = Inf; while time() < stop; t = min(t, @elapsed f()); end; t)

same(exact, found) = norm(found - exact) <= 1e-12 * norm(exact) || error("a gradient differs from that of the direct loops")

function main()
    BLAS.set_num_threads(1)
    x, w = rand(Float32, 14, 14, 16, 128), rand(Float32, 5, 5, 16, 8)
    cdims = DenseConvDims(x, w)
    dy = rand(Float32, 10, 10, 8, 128)
    println("NNlib ", pkgversion(NNlib), ", Julia ", VERSION, ", ", Threads.nthreads(), " threads")

    # One image in five dimensions, as NNlib's own loop calls the function.
    volume = DenseConvDims((14, 14, 1, 16, 1), (5, 5, 1, 16, 8))
    image, columns = zeros(Float32, 14, 14, 1, 16), rand(Float32, 100, 400)
    println("col2im!: ", round(1e6 * best(() -> NNlib.col2im!(image, columns, volume)); digits = 1), " us per image")

    input_seconds = best(() -> ∇conv_data(dy, w, cdims))
    println("input gradient: ", round(1e3 * input_seconds; digits = 2), " ms")
    filter_seconds = best(() -> ∇conv_filter(x, dy, cdims))
    println("weight gradient: ", round(1e3 * filter_seconds; digits = 2), " ms")

    # Compare with NNlib's direct loops for paddings, strides, dilations and groups; each group is a separate convolution.
    for padding in (0, (1, 2)), stride in (1, 2, 3), dilation in (1, 2), groups in (1, 2)
        a, b = rand(13, 12, 4, 3), rand(3, 4, 4 ÷ groups, 6)
        options = (; padding, stride, dilation, flipkernel = isodd(stride))
        dims = DenseConvDims(a, b; groups, options...)
        d = rand(NNlib.output_size(dims)..., 6, 3)
        input_gradient, filter_gradient = ∇conv_data(d, b, dims), ∇conv_filter(a, d, dims)
        for group in 1:groups
            inputs, outputs = (1:(4 ÷ groups)) .+ (group - 1) * (4 ÷ groups), (1:(6 ÷ groups)) .+ (group - 1) * (6 ÷ groups)
            x, w, dy = a[:, :, inputs, :], b[:, :, :, outputs], d[:, :, outputs, :]
            one = DenseConvDims(x, w; options...)
            same(NNlib.∇conv_data_direct!(similar(x), dy, w, one), input_gradient[:, :, inputs, :])
            same(NNlib.∇conv_filter_direct!(similar(w), x, dy, one), filter_gradient[:, :, :, outputs])
        end
    end
    println("gradients equal those of the direct loops")

    near = reshape(Float32[1 - 1f-4, 1, 0, 0], 2, 2, 1, 1)
    pool = PoolDims(near, 2)
    dx = ∇maxpool(ones(Float32, 1, 1, 1, 1), maxpool(near, pool), near, pool)
    println("max-pooling of [0.9999, 1, 0, 0]: gradient ", vec(dx))
end

main()
