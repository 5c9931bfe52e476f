"""Device lookup, TensorFloat-32 and kernels of attention in PyTorch."""

from __future__ import annotations

from typing import Any

import torch

from polybench.engines.shared.frameworks import cuda_index

CUDA_INSTALL = "pip install --force-reinstall torch"  # on Linux the index has the CUDA build


def find_device(device: str) -> Any:
    """Return the torch.device of `cpu`, `cuda` or `cuda:1`; raise EngineUnavailable if it does not exist."""
    if device == "cpu":
        return torch.device("cpu")
    cuda_build = torch.version.cuda is not None
    index = cuda_index(device, torch.cuda.device_count(), cuda_build=cuda_build, install=CUDA_INSTALL)
    torch.cuda.set_device(index)  # streams and graphs are made on the current device
    return torch.device("cuda", index)


def set_tf32(*, allowed: bool) -> None:
    """Allow or forbid TensorFloat-32 in products and convolutions; PyTorch's default is convolutions only."""
    torch.set_float32_matmul_precision("high" if allowed else "highest")
    torch.backends.cudnn.allow_tf32 = allowed


def set_fused_attention(*, allowed: bool) -> None:
    """Allow or forbid the fused kernels of `scaled_dot_product_attention`.

    `sdpa_kernel` sets the same switches, but around each call. Without fused kernels, PyTorch
    computes scores, softmax and values one after the other (`SDPBackend.MATH`).
    """
    torch.backends.cuda.enable_flash_sdp(allowed)  # on the CPU as well
    torch.backends.cuda.enable_mem_efficient_sdp(allowed)
    torch.backends.cuda.enable_cudnn_sdp(allowed)
