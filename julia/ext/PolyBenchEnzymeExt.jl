"""
Gradients by Enzyme, into the place that `Duplicated` keeps for them beside the model. Held against the sources of Enzyme
0.13.199 and of Flux 0.16.10 and 0.16.11 (`FluxEnzymeExt`), and run with a stand-in for Enzyme (`test/enzyme.jl`); it has not run
with Enzyme itself yet.
"""
module PolyBenchEnzymeExt

using Enzyme: Duplicated  # Flux has an extension for Enzyme
using PolyBench: PolyBench, Way
using PolyBench.Flux: Flux

PolyBench.differentiable(::Way{:enzyme}, chain) = Duplicated(Flux.trainmode!(chain))
PolyBench.chain_of(model::Duplicated) = model.val

# Flux itself takes Enzyme for a `Duplicated`, in the plain `with_gradient`.

end
