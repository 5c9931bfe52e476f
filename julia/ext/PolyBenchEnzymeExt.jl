"""
Gradients by Enzyme, stored in the `Duplicated` that wraps the model. Written from the sources of Enzyme
0.13.199 and of Flux 0.16.10 and 0.16.11 (`FluxEnzymeExt`), and tested with a fake Enzyme (`test/enzyme.jl`). It has never been
run with Enzyme itself.
"""
module PolyBenchEnzymeExt

using Enzyme: Duplicated  # Flux has an extension for Enzyme
using PolyBench: PolyBench, StepMode
using PolyBench.Flux: Flux

PolyBench.prepare_model(::StepMode{:enzyme}, chain) = Duplicated(Flux.trainmode!(chain))
PolyBench.unwrap(model::Duplicated) = model.val

# For a `Duplicated`, Flux's `withgradient` in the default `with_gradient` uses Enzyme.

end
