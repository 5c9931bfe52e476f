"""Flux.jl, through juliacall; the Julia code itself is the package in `julia/`."""
