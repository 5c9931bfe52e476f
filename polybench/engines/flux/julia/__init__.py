"""Which Julia it is, what a worker is told about it, and how it is installed.

Nothing but `starting` starts Julia inside this process. The Julia code itself is the package in `julia/`.
"""
