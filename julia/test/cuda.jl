# Tests of the extension for CUDA without a GPU: alone, or at the end of runtests.jl, because it defines fake CUDA devices.
using Flux, PolyBench, Random, Test

include("load_fake_cuda.jl")
using JLArrays: JLArray

const ON_GPU = Chain(Flux.flatten, Dense(12 => 8, relu), Dropout(0.5), Dense(8 => 3))
run_on(device) = PolyBench.ModelRun(
    PolyBench.to_device(device, ON_GPU), PolyBench.cross_entropy,
    [PolyBench.to_device(device, (ones(Float32, 2, 2, 3, 4), Flux.onehotbatch([0, 2, 1, 1], 0:2)))],
    model -> Flux.setup(Flux.Momentum(0.05), model), PolyBench.StepMode(),
)
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
        for model in (ON_GPU, Flux.f64(ON_GPU))
            moved = PolyBench.to_device(gpu, model)
            for (here, there) in zip(Flux.trainables(model), Flux.trainables(moved))
                @test there isa JLArray{eltype(here)} && Array(there) == here
            end
            @test moved[3].rng === CUDA.default_rng()
        end
        @test PolyBench.to_device(gpu, Flux.onehotbatch([0, 2], 0:2)).indices isa JLArray
    end

    @testset "a model on the device is trained there, and a restart repeats it" begin
        run = run_on(gpu)
        @test run.device == gpu
        losses = map(1:2) do _
            PolyBench.reset!(run)
            map(step -> (PolyBench.run_steps!(run, step, 1); PolyBench.last_loss(run)), 0:2)
        end
        @test losses[1] == losses[2] && allunique(losses[1])
        @test all(array -> array isa JLArray{Float32}, Flux.trainables(run.model))
    end

    @testset "a timing block is synchronized at both ends" begin
        trainer = (; device = gpu)
        batches = [PolyBench.Batch(PolyBench.to_device(gpu, ones(Float32, 2, 2, 3, 4)), nothing, nothing)]
        @test cuda_calls(() -> PolyBench.drain!(trainer, batches, 0, 2)) == [:synchronize, :synchronize]
        run = run_on(gpu)
        PolyBench.reset!(run)
        @test cuda_calls(() -> PolyBench.run_steps!(run, 0, 2)) == [:synchronize, :synchronize]
    end

    @testset "device information is reported" begin
        @test PolyBench.cuda_devices() == 2
        @test Dict(PolyBench.cuda_info())["cudnn"] == "92000"
        host, device = PolyBench.allocated(() -> zeros(1000), gpu)
        @test host[1] >= 1 && host[2] >= 8000
        @test device == (3, 64)
        @test PolyBench.device_peak_bytes(gpu) === 11
        @test PolyBench.device_reserved_bytes(gpu) === 7
        @test PolyBench.device_bytes_in_use(gpu) === CUDA.used_memory()
        CUDA.has_pool[] = false
        @test PolyBench.device_peak_bytes(gpu) === PolyBench.device_reserved_bytes(gpu) === nothing
        @test PolyBench.device_bytes_in_use(gpu) === nothing
        CUDA.has_pool[] = true
        CUDA.is_functional[] = false
        @test PolyBench.cuda_devices() == 0
        @test PolyBench.cuda_info() == ()
        CUDA.is_functional[] = true
    end
end
