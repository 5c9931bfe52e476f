# Calls PolyBench.jl's `bench` like a Julia user: one round per line of standard input.
#
#     julia --threads=2 --project=WITH_FLUX bench_flux.jl PACKAGE_FOLDER MODEL BATCH_SIZE STEPS DATA
const PACKAGE, MODEL, BATCH_SIZE, STEPS, DATA = ARGS
push!(LOAD_PATH, PACKAGE)
using PolyBench

for _ in eachline(stdin)
    local trial = bench(MODEL; batch = parse(Int, BATCH_SIZE), data = DATA, steps = parse(Int, STEPS), rounds = 1)
    println("{\"step_seconds\": [", join(only(trial.rounds), ", "), "]}")
    flush(stdout)
end
