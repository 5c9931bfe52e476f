"""
Train the identical network as polybench does, in Flux, as Flux's users write it, and say what a step costs.

In a Julia session: `bench(:lenet; batch = 128)`, `layers(:lenet)`, `compare(bench(...), bench(...))`, and the same for any
model with a loss. From Python, `polybench/engines/flux/engine.py` is the only caller of the rest; nothing here depends
on PythonCall. Steps are counted from 0, as everywhere in polybench.
"""
module PolyBench

using Flux:
    Flux, BatchNorm, Chain, Conv, Dense, Dropout, Embedding, GlobalMeanPool, LSTM, LSTMCell, MaxPool, MeanPool, Parallel,
    SamePad, SkipConnection
using Flux: NNlib, Zygote
using Flux.Zygote.ChainRulesCore: ignore_derivatives, rrule, unthunk
using Flux.Optimisers: AbstractRule, Leaf, OptimiserChain
using Dates: Dates
using JSON: JSON
using LinearAlgebra: BLAS
using PrecompileTools: @compile_workload, @setup_workload
using Random: Random
using SHA: SHA
using Statistics: Statistics, mean, median, quantile, std, var
using TOML: TOML

export bench, cells, compare, gcshare, layers, mean, median, model_names, read_study, std, write_study

include("devices.jl")
include("weights.jl")
include("layers.jl")
include("sequences.jl")
include("network.jl")
include("batches.jl")
include("pipeline.jl")
include("optimizers.jl")
include("ways.jl")
include("training.jl")
include("kept_training.jl")
include("counters.jl")
include("replay.jl")
include("max_pool.jl")
include("python.jl")
include("random.jl")
include("models.jl")
include("images.jl")
include("trial.jl")
include("bench.jl")
include("comparison.jl")
include("layer_times.jl")
include("document.jl")
include("precompile.jl")

end
