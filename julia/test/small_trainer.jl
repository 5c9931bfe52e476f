# The trainer of a small program, in both types.
using Flux, PolyBench, Random

module Program

    const DTYPE = Float64
    include("small_program.jl")

end

module Float32Program

    const DTYPE = Float32
    include("small_program.jl")

end

const NAMES = ["dense.weight", "dense.bias", "norm.weight", "norm.bias", "norm.running_mean"]
const INPUTS, LABELS = rand(MersenneTwister(1), Float32, 3, 4, 2), rand(MersenneTwister(2), 0:2, 4, 2)

function make_trainer(program = Program, variants...)
    trainer = PolyBench.ProgramTrainer(program, PolyBench.StepMode(variants...), NAMES)
    PolyBench.set_masks!(trainer, Dict("dropout" => program.DTYPE[2 0 2 2; 0 2 2 0]))
    return trainer
end

data(trainer) = PolyBench.batches(trainer, INPUTS, LABELS)
