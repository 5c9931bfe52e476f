# Tests of the mode `enzyme` without Enzyme: alone, or in runtests.jl. The interface between Flux and the fake is that of
# Flux 0.16.10 and 0.16.11 (ext/FluxEnzymeExt.jl); the gradient is Zygote's.
using Flux, PolyBench, Test

module Enzyme
    using Flux: AutoEnzyme, EnzymeCore, Flux
    const Duplicated = EnzymeCore.Duplicated

    EnzymeCore.make_zero(prev::Flux.Chain) = Flux.fmap(x -> x isa AbstractArray ? zero(x) : x, prev)
    function Flux.withgradient(f::F, adtype::AutoEnzyme, x::Vararg{Any, N}; zero::Bool = true) where {F, N}
        all(one -> one isa Duplicated, x) || error("the model has no storage for its gradient")
        value, gradients = Flux.Zygote.withgradient(f, map(one -> one.val, x)...)
        return (; val = value, grad = gradients)
    end
end

isdefined(Main, :train_lenet) || include("fake_extension.jl")

@testset "a step with Enzyme's gradient equals the default step" begin
    run, losses = train_lenet("enzyme")
    @test only(run.differentiated) isa Enzyme.Duplicated && only(run.differentiated).val === run.model
    @test losses == last(train_lenet(""))
    @test snapshot("enzyme") == snapshot()
    @test PolyBench.relu_at_zero(make_trainer(Program, "enzyme")) === 0.0
end
