# Tests of the network in Lux, if the environment has Lux: it computes the same as Flux's.
using Flux, Lux, PolyBench, Test

isdefined(Main, :both_modes) || include("fake_extension.jl")

@testset "a step of Lux equals the default step" begin
    plain, same = map(train, both_modes("lux"))
    @test flat(same) ≈ flat(plain) rtol = 1.0e-12
end

@testset "a forward pass of Lux equals Flux's" begin
    dropout = Dict{String, Any}("type" => "dropout", "name" => "dropout", "rate" => 0.5)
    plain, same = map(both_modes("lux", [TEST_RECORDS; dropout], "forward")) do trainer
        PolyBench.run_steps!(trainer, test_batches(trainer), 0, 2)
        trainer.logits
    end
    @test same ≈ plain rtol = 1.0e-12
end

@testset "a layer that Lux lacks is rejected by name" begin
    @test_throws "no Lux layer for LSTM" PolyBench.prepare_model(PolyBench.StepMode("lux"), Flux.Chain(Flux.LSTM(2 => 3)))
end

@testset "a training with dropout continues from its saved state" begin
    dropout = Dict{String, Any}("type" => "dropout", "name" => "dropout", "rate" => 0.5)
    _, trainer = both_modes("lux", [TEST_RECORDS[1:4]; dropout; TEST_RECORDS[5:end]])
    batches = test_batches(trainer)
    losses(steps) = [(PolyBench.run_steps!(trainer, batches, step, 1); trainer.loss) for step in steps]
    train_from(seed) = (PolyBench.reset!(trainer, seed); losses(0:1))
    @test train_from(1) == train_from(1) != train_from(2)
    saved = PolyBench.training_state(trainer)
    expected = losses(2:4)
    train_from(3)
    PolyBench.restore!(trainer, saved)
    @test losses(2:4) == expected
end

@testset "a step uses the current fixed masks" begin
    dropout = PolyBench.FixedMaskDropout(zeros(2, 2), true)
    layer = Base.get_extension(PolyBench, :PolyBenchLuxExt).to_lux(dropout)
    dropout.mask = [0.0 2.0; 2.0 0.0]
    @test first(layer(ones(2, 2), (;), (;))) == dropout.mask
end
