# Tests of Mooncake's gradients, if the environment has Mooncake: they equal Zygote's.
using Flux, Mooncake, PolyBench, Test

isdefined(Main, :train_lenet) || include("fake_extension.jl")

@testset "a step with Mooncake's gradient equals the default step" begin
    @test last(train_lenet("mooncake")) ≈ last(train_lenet("")) rtol = 1.0e-6
end

@testset "Mooncake differentiates the code of relu" begin
    @test PolyBench.relu_at_zero(make_trainer(Program, "mooncake")) in (0.0, 1.0)
end
