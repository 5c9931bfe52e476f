# The extension for CUDA, without a GPU: alone, or as the last part of runtests.jl, since it makes CUDA devices out of
# nothing. JLArrays lies in the sources of GPUArrays, which Flux brings.
using Flux, PolyBench, Random, Test

const GPU_ARRAYS = Base.locate_package(Base.PkgId(Base.UUID("0c68f7d7-f131-5f86-a1c3-88cf8149b2d7"), "GPUArrays"))
push!(LOAD_PATH, joinpath(dirname(dirname(GPU_ARRAYS)), "lib"))
using JLArrays: JLArray
include("cuda_stand_in.jl")

# Julia loads an extension together with its packages; these two are modules of this file.
const EXTENSION = read(joinpath(pkgdir(PolyBench), "ext", "PolyBenchCUDAExt.jl"), String)
include_string(Main, replace(EXTENSION, "using CUDA:" => "using Main.CUDA:", "using cuDNN:" => "using Main.cuDNN:"))

const DENSE = PolyBench.records(
    """
    layers = [
        {type = "flatten"}, {type = "dense", name = "first", inputs = 12, outputs = 8}, {type = "relu"},
        {type = "dropout", name = "dropout", rate = 0.5}, {type = "dense", name = "second", inputs = 8, outputs = 3},
    ]
    """
)
dense_weights(T) = Dict(
    name => T.(0.1 .* randn(MersenneTwister(index), shape...)) for
        (index, (name, shape)) in enumerate(PolyBench.tensor_shapes(DENSE))
)
on(device, T) = PolyBench.Trainer(device, T, DENSE, dense_weights(T); learning_rate = 0.05, momentum = 0.9)
calls_of(f) = (empty!(CUDA.calls); f(); copy(CUDA.calls))

@testset "the extension for CUDA" begin
    gpu, second = PolyBench.device("cuda"), PolyBench.device("cuda:1"; tf32 = true)

    @testset "the device comes before anything else that makes a context, and then its arithmetic" begin
        tf32 = (:math_mode, CUDA.FAST_MATH, :TensorFloat32)
        @test calls_of(() -> PolyBench.place(second, zeros(Float32, 2))) == [(:device, 1), tf32]
        @test calls_of(() -> PolyBench.seed!(second, 1)) == [(:device, 1), tf32]
        double = PolyBench.device("cuda"; tf32 = true, type = Float64)
        @test calls_of(() -> PolyBench.place(double, zeros(2))) == [(:device, 0), (:math_mode, CUDA.PEDANTIC_MATH, nothing)]
        @test calls_of(() -> PolyBench.place(gpu, zeros(2)))[2] == (:math_mode, CUDA.DEFAULT_MATH, nothing)
        withenv(PolyBench.TF32_OVERRIDE => nothing) do
            PolyBench.forbid_tf32!(PolyBench.CPU())
            @test !haskey(ENV, PolyBench.TF32_OVERRIDE)
            PolyBench.forbid_tf32!(gpu)
            @test ENV[PolyBench.TF32_OVERRIDE] == "0"
        end
        @test !occursin("ENV", EXTENSION)  # other threads may read it meanwhile
    end

    @testset "arrays, models and generators are moved, with their types" begin
        for T in (Float32, Float64)
            made = on(gpu, T)
            @test all(array isa JLArray{T} for (_, array) in PolyBench.tensors(made.network))
            @test made.network.chain[3].rng === CUDA.default_rng()
            @test all(initial isa JLArray{T} for initial in made.initial)
            weights = dense_weights(T)
            @test all(PolyBench.canonical(array) == weights[name] for (name, array) in PolyBench.tensors(made.network))
        end
        labels = Flux.onehotbatch([0, 2], 0:2)
        @test PolyBench.place(gpu, labels).indices isa JLArray
    end

    @testset "a reset brings back the weights, the state and the generator" begin
        made = on(gpu, Float32)
        (name, array) = first(PolyBench.tensors(made.network))
        array .= 0
        PolyBench.reset!(made, 3)
        @test Array(PolyBench.canonical(array)) == dense_weights(Float32)[name]
        drawn = rand(CUDA.default_rng())
        PolyBench.reset!(made, 3)
        @test rand(CUDA.default_rng()) == drawn
    end

    @testset "a block is synchronized at both ends" begin
        made = on(gpu, Float32)
        batches = [PolyBench.Batch(PolyBench.place(gpu, ones(Float32, 2, 2, 3, 4)), nothing, nothing)]
        drawn = calls_of(() -> PolyBench.draw!(made, batches, 0, 2))
        @test drawn == [:synchronize, :synchronize]
    end

    @testset "what it says of the device" begin
        made = on(gpu, Float32)
        @test PolyBench.cuda_devices() == 2
        @test Dict(PolyBench.cuda_facts())["cudnn"] == "92000"
        host, device = PolyBench.allocated(() -> zeros(1000), gpu)
        @test host[1] >= 1 && host[2] >= 8000
        @test device == (3, 64)
        @test PolyBench.device_peak_bytes(made) === 11
        @test PolyBench.device_reserved_bytes(made) === 7
        CUDA.has_pool[] = false
        @test PolyBench.device_peak_bytes(made) === PolyBench.device_reserved_bytes(made) === nothing
        CUDA.has_pool[] = true
        CUDA.is_there[] = false
        @test PolyBench.cuda_devices() == 0
        @test PolyBench.cuda_facts() == ()
        CUDA.is_there[] = true
    end
end
