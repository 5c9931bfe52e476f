# Calls PolyBench.jl's `bench` like a Julia user: one round per line of standard input.
#
#     julia --threads=2 --project=WITH_POLYBENCH bench_flux.jl MODEL BATCH_SIZE STEPS DATA
using PolyBench

const MODEL, BATCH_SIZE, STEPS, DATA = ARGS

for _ in eachline(stdin)
    local trial = bench(MODEL; batch = parse(Int, BATCH_SIZE), data = DATA, steps = parse(Int, STEPS), rounds = 1)
    println("{\"step_seconds\": [", join(only(trial.rounds), ", "), "]}")
    flush(stdout)
end
