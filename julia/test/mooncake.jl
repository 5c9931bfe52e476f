# Tests of Mooncake's gradients, if the environment has Mooncake: they equal Zygote's.
using Flux, Mooncake, PolyBench, Test

isdefined(Main, :both_modes) || include("fake_extension.jl")

@testset "a step with Mooncake's gradient equals the default step" begin
    # Without batch norm, which polybench rejects with Mooncake, because Mooncake undoes what a forward pass writes.
    plain, same = map(train, both_modes("mooncake", filter(record -> record["type"] != "batch_norm", TEST_RECORDS)))
    @test flat(same) ≈ flat(plain) rtol = 1.0e-12
end

@testset "Mooncake differentiates the code of relu" begin
    @test PolyBench.relu_at_zero(last(both_modes("mooncake"))) in (0.0, 1.0)
end
