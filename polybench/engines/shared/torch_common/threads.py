"""Thread pools of PyTorch, always set explicitly."""

from __future__ import annotations


def set_threads(threads: int) -> None:
    """Set the sizes of the intra-op and inter-op pools."""
    import torch

    torch.set_num_threads(threads)
    # The inter-op pool can be set only once in a process, even to its current size.
    if torch.get_num_interop_threads() != threads:
        torch.set_num_interop_threads(threads)
