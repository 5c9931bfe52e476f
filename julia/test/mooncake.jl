# Mooncake's gradients, where Mooncake is in the environment: they are Zygote's.
using Flux, Mooncake, PolyBench, Test

isdefined(Main, :both_ways) || include("stand_in.jl")

@testset "a step with Mooncake's gradient is the plain one" begin
    # Without batch norm, which polybench refuses with Mooncake: what a forward pass writes is undone.
    plain, same = map(trained, both_ways("mooncake", filter(record -> record["type"] != "batch_norm", STAND_IN_RECORDS)))
    @test flat(same) ≈ flat(plain) rtol = 1.0e-12
end

@testset "Mooncake differentiates what relu computes" begin
    @test PolyBench.relu_at_zero(last(both_ways("mooncake"))) in (0.0, 1.0)
end
