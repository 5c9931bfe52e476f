from __future__ import annotations

import pytest

from tests.engines.conftest import RunChecks

CHECKS = {
    "the batches are the mapped file itself": """
import warnings
warnings.simplefilter("error")
build()
first, second = engine._batches[0][0], engine._batches[1][0]
assert first.data_ptr() == images.ctypes.data
assert second.data_ptr() == images.ctypes.data + images[0].nbytes
""",
    "channels_last batches are converted at load": """
import numpy as np, torch
build(variants=("channels_last",))
batch = engine._batches[1][0]
assert batch.is_contiguous(memory_format=torch.channels_last)
assert np.array_equal(batch.numpy(), images[1])
""",
    "threads are those of the study": """
import torch
build()
assert torch.get_num_threads() == torch.get_num_interop_threads() == 2
""",
    "precision is set and not inherited": """
import torch
build(precision="tf32")
assert torch.get_float32_matmul_precision() == "high" and torch.backends.cudnn.allow_tf32
build(precision="fp32")
assert torch.get_float32_matmul_precision() == "highest"
assert not torch.backends.cudnn.allow_tf32 and not torch.backends.cuda.matmul.allow_tf32
""",
    "a missing GPU is unavailable with a remedy": """
assert engine.probe().devices[0] == "cpu"
try:
    build(device="cuda:99")
except Unavailable as lacking:
    assert lacking.reason and lacking.remedy
else:
    raise AssertionError("built")
""",
    "the probe names version and build": """
import torch
probe = engine.probe()
assert probe.versions == {"torch": torch.__version__}
assert {"onednn", "parallel_backend", "cpu_capability"} <= set(probe.build), probe.build
""",
}


@pytest.mark.parametrize("name", CHECKS)
def test_pytorch(run_checks: RunChecks, name: str) -> None:
    assert not (failure := run_checks("torch", CHECKS)[name]), failure
