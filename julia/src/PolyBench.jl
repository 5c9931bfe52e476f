"""
Train a network that is described by engine-neutral layer records, in Flux, as Flux's users write it.

From Python, `polybench/engines/flux/engine.py` is the only caller; `examples/flux_by_hand.jl` does the same
without Python. Nothing here depends on PythonCall. Steps are counted from 0, as everywhere in polybench.
"""
module PolyBench

using Flux:
    Flux, BatchNorm, Chain, Conv, Dense, Dropout, GlobalMeanPool, MaxPool, MeanPool, Parallel, SamePad, SkipConnection
using Flux: NNlib, Zygote
using Flux.Zygote.ChainRulesCore: rrule, unthunk
using Flux.Optimisers: AbstractRule, Leaf, OptimiserChain
using LinearAlgebra: BLAS
using PrecompileTools: @compile_workload, @setup_workload
using Random: Random
using TOML: TOML

include("devices.jl")
include("weights.jl")
include("layers.jl")
include("network.jl")
include("batches.jl")
include("pipeline.jl")
include("optimizers.jl")
include("training.jl")
include("counters.jl")
include("replay.jl")
include("python.jl")
include("precompile.jl")

end
