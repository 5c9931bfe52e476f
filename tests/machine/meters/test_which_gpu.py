"""CUDA's numbers of GPUs -> NVML's."""

from __future__ import annotations

import pytest

from polybench.machine.meters.which_gpu import nvml_index

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
def test_by_index_among_the_visible_ones_and_by_uuid(device: str, visible: str | None, index: int) -> None:
    environment = {} if visible is None else {"CUDA_VISIBLE_DEVICES": visible}
    assert nvml_index(device, environment, UUIDS, SAME) == index


@pytest.mark.parametrize(
    ("device", "visible", "message"),
    [
        ("cuda:3", None, "not among the visible"),
        ("cuda", "", "not among the visible"),
        ("cuda:1", "0,-1,1", "not among the visible"),
        ("cuda", "7", "not among the visible"),
        ("cuda", "GPU-1c9d", "not among the visible"),  # two begin like this
        ("cuda", "MIG-1c9d2b4e", "MIG"),
    ],
)
def test_what_is_not_there_or_not_known(device: str, visible: str | None, message: str) -> None:
    environment = {} if visible is None else {"CUDA_VISIBLE_DEVICES": visible}
    with pytest.raises(LookupError, match=message):
        nvml_index(device, environment, UUIDS, SAME)


def test_different_gpus_have_no_known_order_but_that_of_the_bus() -> None:
    with pytest.raises(LookupError, match="CUDA_DEVICE_ORDER=PCI_BUS_ID"):
        nvml_index("cuda:1", {}, UUIDS, MIXED)
    assert nvml_index("cuda:1", {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}, UUIDS, MIXED) == 1
    assert nvml_index("cuda", {"CUDA_VISIBLE_DEVICES": "GPU-1c9d2"}, UUIDS, MIXED) == 1
