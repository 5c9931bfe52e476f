# Tests of the extension for CUDA without a GPU: alone, or at the end of runtests.jl, because it defines fake CUDA devices.
using Flux, PolyBench, Random, Test

include("load_fake_cuda.jl")
using JLArrays: JLArray

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
trainer_on(device, T) = PolyBench.Trainer(device, T, DENSE, dense_weights(T); learning_rate = 0.05, momentum = 0.9)
cuda_calls(f) = (empty!(CUDA.calls); f(); copy(CUDA.calls))

@testset "the extension for CUDA" begin
    gpu, second = PolyBench.device("cuda"), PolyBench.device("cuda:1")

    @testset "the device is selected before anything that creates a context" begin
        @test cuda_calls(() -> PolyBench.to_device(second, zeros(Float32, 2))) == [(:device, 1)]
        @test cuda_calls(() -> PolyBench.seed!(second, 1)) == [(:device, 1)]
        withenv(PolyBench.TF32_OVERRIDE => nothing) do
            PolyBench.disable_tf32!(PolyBench.CPU())
            @test !haskey(ENV, PolyBench.TF32_OVERRIDE)
            PolyBench.disable_tf32!(gpu)
            @test ENV[PolyBench.TF32_OVERRIDE] == "0"
        end
        @test !occursin("ENV", EXTENSION)  # other threads may read it at the same time
    end

    @testset "arrays, models and generators move to the device and keep their types" begin
        for T in (Float32, Float64)
            trainer = trainer_on(gpu, T)
            @test all(array isa JLArray{T} for (_, array) in PolyBench.tensors(trainer.network))
            @test trainer.network.chain[3].rng === CUDA.default_rng()
            @test all(initial isa JLArray{T} for initial in trainer.initial)
            weights = dense_weights(T)
            @test all(PolyBench.canonical(array) == weights[name] for (name, array) in PolyBench.tensors(trainer.network))
        end
        labels = Flux.onehotbatch([0, 2], 0:2)
        @test PolyBench.to_device(gpu, labels).indices isa JLArray
    end

    @testset "a reset restores weights, state and generator" begin
        trainer = trainer_on(gpu, Float32)
        (name, array) = first(PolyBench.tensors(trainer.network))
        array .= 0
        PolyBench.reset!(trainer, 3)
        @test Array(PolyBench.canonical(array)) == dense_weights(Float32)[name]
        expected = rand(CUDA.default_rng())
        PolyBench.reset!(trainer, 3)
        @test rand(CUDA.default_rng()) == expected
    end

    @testset "a timing block is synchronized at both ends" begin
        trainer = trainer_on(gpu, Float32)
        batches = [PolyBench.Batch(PolyBench.to_device(gpu, ones(Float32, 2, 2, 3, 4)), nothing, nothing)]
        calls = cuda_calls(() -> PolyBench.drain!(trainer, batches, 0, 2))
        @test calls == [:synchronize, :synchronize]
    end

    @testset "device information is reported" begin
        trainer = trainer_on(gpu, Float32)
        @test PolyBench.cuda_devices() == 2
        @test Dict(PolyBench.cuda_info())["cudnn"] == "92000"
        host, device = PolyBench.allocated(() -> zeros(1000), gpu)
        @test host[1] >= 1 && host[2] >= 8000
        @test device == (3, 64)
        @test PolyBench.device_peak_bytes(trainer) === 11
        @test PolyBench.device_reserved_bytes(trainer) === 7
        @test PolyBench.device_bytes_in_use(trainer) === CUDA.used_memory()
        CUDA.has_pool[] = false
        @test PolyBench.device_peak_bytes(trainer) === PolyBench.device_reserved_bytes(trainer) === nothing
        @test PolyBench.device_bytes_in_use(trainer) === nothing
        CUDA.has_pool[] = true
        CUDA.is_functional[] = false
        @test PolyBench.cuda_devices() == 0
        @test PolyBench.cuda_info() == ()
        CUDA.is_functional[] = true
    end
end
