"""NVML index of a worker's `cuda:1`: CUDA numbers the visible devices in an order of its own.

https://docs.nvidia.com/cuda/cuda-c-programming-guide/#cuda-environment-variables
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence


def nvml_index(device: str, environment: Mapping[str, str], uuids: Sequence[str], names: Sequence[str]) -> int:
    """Return NVML's index of a device.

    Args:
        device: `cuda` or `cuda:1`.
        environment: environment variables, for CUDA_VISIBLE_DEVICES and CUDA_DEVICE_ORDER.
        uuids: NVML's UUIDs of all GPUs, in the order of the PCI bus.
        names: NVML's names of all GPUs, in the same order.

    Raises:
        LookupError: the device does not exist or its index is ambiguous; the text gives the reason and a fix.
    """
    index = int(device.partition(":")[2] or 0)
    visible = environment.get("CUDA_VISIBLE_DEVICES")
    tokens = [str(n) for n in range(len(uuids))] if visible is None else _valid_prefix(visible, uuids)
    if index >= len(tokens):
        raise LookupError(f"{device} is not among the visible GPUs (CUDA_VISIBLE_DEVICES={visible or ''})")
    token = tokens[index]
    if token.startswith("MIG"):
        raise LookupError(f"{device} is a MIG partition of a GPU, for which NVML has no separate readings")
    if not token.isdigit():
        return next(n for n, uuid in enumerate(uuids) if uuid.startswith(token))
    # CUDA's default order is fastest first; for equal GPUs that is the order of the bus.
    if environment.get("CUDA_DEVICE_ORDER") != "PCI_BUS_ID" and len(set(names)) > 1:
        raise LookupError(f"{device} is ambiguous, since the GPUs differ: set CUDA_DEVICE_ORDER=PCI_BUS_ID")
    return int(token)


def _valid_prefix(visible: str, uuids: Sequence[str]) -> list[str]:
    """Return the devices before the first invalid one, as CUDA does; a unique prefix of a UUID is valid."""
    tokens: list[str] = []
    for token in (part.strip() for part in visible.split(",")):
        matches = sum(uuid.startswith(token) for uuid in uuids)
        known = (token.isdigit() and int(token) < len(uuids)) or (token.startswith("GPU-") and matches == 1)
        if not known and not token.startswith("MIG-"):
            break
        tokens.append(token)
    return tokens
