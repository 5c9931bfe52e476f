"""
Gradients by Mooncake through Flux: `FluxMooncakeExt` rebuilds Mooncake's rule and cache in each step.
"""
module PolyBenchMooncakeExt

using Mooncake: Mooncake  # Flux has an extension for it
using PolyBench: PolyBench, StepMode, cross_entropy, value_and_gradient
using PolyBench.Flux: Flux, AutoMooncake

PolyBench.with_gradient(::StepMode{:mooncake}, model, images, labels) =
    value_and_gradient(Flux.withgradient(cross_entropy(images, labels), AutoMooncake(), model))

end
