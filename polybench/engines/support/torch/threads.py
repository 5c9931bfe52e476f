"""PyTorch's thread pools: set, never inherited."""

from __future__ import annotations


def set_threads(threads: int) -> None:
    """Of both pools, intra-op and inter-op."""
    import torch

    torch.set_num_threads(threads)
    # The inter-op pool can be sized only once in a process, even to the size that it has.
    if torch.get_num_interop_threads() != threads:
        torch.set_num_interop_threads(threads)
