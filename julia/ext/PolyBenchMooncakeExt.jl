"""
Gradients by Mooncake, as Flux takes them from it: `FluxMooncakeExt` builds Mooncake's rule, and its cache, anew in each step.
"""
module PolyBenchMooncakeExt

using Mooncake: Mooncake  # Flux has an extension for it
using PolyBench: PolyBench, Way, cross_entropy, value_and_gradient
using PolyBench.Flux: Flux, AutoMooncake

PolyBench.with_gradient(::Way{:mooncake}, model, images, labels) =
    value_and_gradient(Flux.withgradient(cross_entropy(images, labels), AutoMooncake(), model))

end
