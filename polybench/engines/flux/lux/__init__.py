"""Lux.jl, in the Julia session of Flux; its program has Flux's chains and rules."""
