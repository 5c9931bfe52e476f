# The network in Lux, where Lux is in the environment: it computes what Flux's does.
using Flux, Lux, PolyBench, Test

isdefined(Main, :both_ways) || include("stand_in.jl")

@testset "a step of Lux's is the plain one" begin
    plain, same = map(trained, both_ways("lux"))
    @test flat(same) ≈ flat(plain) rtol = 1.0e-12
end

@testset "what Lux has no layer for is refused by name" begin
    @test_throws "no layer of Lux's for LSTM" PolyBench.differentiable(PolyBench.Way("lux"), Flux.Chain(Flux.LSTM(2 => 3)))
end
