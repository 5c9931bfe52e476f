"""Finds, configures and installs Julia.

Only `startup` starts Julia inside this process. The Julia code itself is the package in `julia/`.
"""
