# The extension for Enzyme, without Enzyme: alone, or as a part of runtests.jl. What Flux calls of Enzyme, and what it
# answers, is that of Flux 0.16.10 and 0.16.11 (ext/FluxEnzymeExt.jl); the gradient is Zygote's.
using Flux, PolyBench, Test

module Enzyme
    using Flux: AutoEnzyme, EnzymeCore, Flux
    const Duplicated = EnzymeCore.Duplicated

    EnzymeCore.make_zero(prev::Flux.Chain) = Flux.fmap(x -> x isa AbstractArray ? zero(x) : x, prev)
    function Flux.withgradient(f::F, adtype::AutoEnzyme, x::Vararg{Any, N}; zero::Bool = true) where {F, N}
        all(one -> one isa Duplicated, x) || error("a model without a place for its gradient")
        value, gradients = Flux.Zygote.withgradient(f, map(one -> one.val, x)...)
        return (; val = value, grad = gradients)
    end
end

isdefined(Main, :both_ways) || include("stand_in.jl")
include_extension("Enzyme")

@testset "a step with Enzyme's gradient is the plain one" begin
    plain, same = both_ways("enzyme")
    @test same.model isa Enzyme.Duplicated && PolyBench.chain_of(same.model) === same.network.chain
    @test trained(same) == trained(plain)
end
