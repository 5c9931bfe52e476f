"""
Train polybench's networks in Flux, written as Flux's users write them, and measure their training steps.

In a Julia session: `bench(:lenet; batch = 128)`, `PolyBench.layers(:lenet)`, `PolyBench.compare(bench(...), bench(...))`, also for
any model with a loss. Only `polybench/engines/flux/engine.py` calls the other functions; nothing here depends on PythonCall. Step numbers
start at 0, as everywhere in polybench.
"""
module PolyBench

using Flux:
    Flux, BatchNorm, Chain, Conv, Dense, Dropout, Embedding, GlobalMeanPool, LSTM, LSTMCell, MaxPool, MeanPool,
    MultiHeadAttention, Parallel, SamePad, SkipConnection
using Flux: AutoMooncake, AutoZygote, EnzymeCore, NNlib, Zygote
using Flux.ADTypes: AbstractADType
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

export bench, gc_fraction, mean, median, model_names, read_study, std, write_study

# Public names that other packages export as well. The keyword `public` is new in Julia 1.11.
VERSION >= v"1.11" && eval(Expr(:public, :compare, :judge, :layers, :ratio, :record, :rows, :step!))

include("devices.jl")
include("batches.jl")
include("pipeline.jl")
include("optimizers.jl")
include("step_modes.jl")
include("operations.jl")
include("program.jl")
include("program_pipeline.jl")
include("program_source.jl")
include("training_state.jl")
include("counters.jl")
include("float64.jl")
include("max_pool.jl")
include("random.jl")
include("models.jl")
include("images.jl")
include("trial.jl")
include("bench.jl")
include("comparison.jl")
include("layer_times.jl")
include("document.jl")
include("record.jl")
include("import.jl")
include("python.jl")
include("precompile.jl")

end
