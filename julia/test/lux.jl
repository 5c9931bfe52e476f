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

@testset "a training with dropout goes on where it was kept" begin
    dropout = Dict{String, Any}("type" => "dropout", "name" => "dropout", "rate" => 0.5)
    _, made = both_ways("lux", [STAND_IN_RECORDS[1:4]; dropout; STAND_IN_RECORDS[5:end]])
    batches = stand_in_batches(made)
    losses(steps) = [(PolyBench.run_steps!(made, batches, step, 1); made.loss) for step in steps]
    started(seed) = (PolyBench.reset!(made, seed); losses(0:1))
    @test started(1) == started(1) != started(2)
    kept = PolyBench.kept_training(made)
    expected = losses(2:4)
    started(3)
    PolyBench.go_on_from!(made, kept)
    @test losses(2:4) == expected
end

@testset "masks that are given are the ones that are there when a step is made" begin
    dropout = PolyBench.GivenDropout(zeros(2, 2))
    layer = Base.get_extension(PolyBench, :PolyBenchLuxExt).in_lux(dropout)
    dropout.mask = [0.0 2.0; 2.0 0.0]
    @test first(layer(ones(2, 2), (;), (;))) == dropout.mask
end
