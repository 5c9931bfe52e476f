"""Mapping of CUDA's device numbers to NVML's indices."""

from __future__ import annotations

import pytest

from polybench.machine.meters.nvml_index import nvml_index

UUIDS = ("GPU-8932f937-d72c", "GPU-1c9d2b4e-52a6", "GPU-1c9d7777-0000")
SAME = ("Tesla V100",) * 3
MIXED = ("Tesla T4", "Tesla V100", "Tesla V100")


@pytest.mark.parametrize(
    ("device", "visible", "index"),
    [
        ("cuda", None, 0),
        ("cuda:2", None, 2),
        ("cuda", "1,0", 1),
        ("cuda:1", "1, 0", 0),
        ("cuda", "GPU-1c9d2b4e-52a6", 1),
        ("cuda", "GPU-1c9d2", 1),
        ("cuda:1", "GPU-1c9d7777-0000,GPU-8932f937", 0),
    ],
)
def test_visible_devices_are_found_by_index_and_by_uuid(device: str, visible: str | None, index: int) -> None:
    environment = {} if visible is None else {"CUDA_VISIBLE_DEVICES": visible}
    assert nvml_index(device, environment, UUIDS, SAME) == index


@pytest.mark.parametrize(
    ("device", "visible", "message"),
    [
        ("cuda:3", None, "not among the visible"),
        ("cuda", "", "not among the visible"),
        ("cuda:1", "0,-1,1", "not among the visible"),
        ("cuda", "7", "not among the visible"),
        ("cuda", "GPU-1c9d", "not among the visible"),  # ambiguous prefix
        ("cuda", "MIG-1c9d2b4e", "MIG"),
    ],
)
def test_unknown_device_is_rejected(device: str, visible: str | None, message: str) -> None:
    environment = {} if visible is None else {"CUDA_VISIBLE_DEVICES": visible}
    with pytest.raises(LookupError, match=message):
        nvml_index(device, environment, UUIDS, SAME)


def test_different_gpus_need_the_order_of_the_bus() -> None:
    with pytest.raises(LookupError, match="CUDA_DEVICE_ORDER=PCI_BUS_ID"):
        nvml_index("cuda:1", {}, UUIDS, MIXED)
    assert nvml_index("cuda:1", {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}, UUIDS, MIXED) == 1
    assert nvml_index("cuda", {"CUDA_VISIBLE_DEVICES": "GPU-1c9d2"}, UUIDS, MIXED) == 1
