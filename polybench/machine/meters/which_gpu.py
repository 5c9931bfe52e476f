"""Which of NVML's devices a worker's `cuda:1` is: CUDA counts the visible ones in an order of its own.

https://docs.nvidia.com/cuda/cuda-c-programming-guide/#cuda-environment-variables
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence


def nvml_index(
    device: str, environment: Mapping[str, str], uuids: Sequence[str], names: Sequence[str]
) -> int:
    """NVML's index of a device.

    Args:
        device: `cuda` or `cuda:1`.
        environment: with CUDA_VISIBLE_DEVICES and CUDA_DEVICE_ORDER, where they are set.
        uuids: NVML's, one a GPU in its order, which is that of the PCI bus.
        names: likewise.

    Raises:
        LookupError: there is none, or it cannot be known; the text says why and what to do.
    """
    wanted = int(device.partition(":")[2] or 0)
    visible = environment.get("CUDA_VISIBLE_DEVICES")
    tokens = [str(n) for n in range(len(uuids))] if visible is None else _until_invalid(visible, uuids)
    if wanted >= len(tokens):
        raise LookupError(f"{device} is not among the visible GPUs (CUDA_VISIBLE_DEVICES={visible or ''})")
    token = tokens[wanted]
    if token.startswith("MIG"):
        raise LookupError(f"{device} is a part of a GPU (MIG), of which NVML tells nothing alone")
    if not token.isdigit():
        return next(n for n, uuid in enumerate(uuids) if uuid.startswith(token))
    # CUDA's own default is fastest first; among equal GPUs that is the order of the bus.
    if environment.get("CUDA_DEVICE_ORDER") != "PCI_BUS_ID" and len(set(names)) > 1:
        raise LookupError(f"which GPU {device} is cannot be known; set CUDA_DEVICE_ORDER=PCI_BUS_ID")
    return int(token)


def _until_invalid(visible: str, uuids: Sequence[str]) -> list[str]:
    """CUDA takes the devices up to the first that is none; the start of a UUID is enough if it is unique."""
    tokens: list[str] = []
    for token in (part.strip() for part in visible.split(",")):
        matches = sum(uuid.startswith(token) for uuid in uuids)
        known = (token.isdigit() and int(token) < len(uuids)) or (token.startswith("GPU-") and matches == 1)
        if not known and not token.startswith("MIG-"):
            break
        tokens.append(token)
    return tokens
