from __future__ import annotations

import pytest

from tests.engines import pipeline_checks
from tests.engines.conftest import RunChecks

CHECKS = {
    "only what compiles may find code of an earlier process": """
build()
assert engine.startup_detail() == {}
build(variants=("compile",))
assert engine.startup_detail() == {"cached_code": 1.0}
""",
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
    "only what nobody else reads is overwritten": """
import msgspec, torch
from polybench.core.layers import BatchNorm, Conv, Dropout, Flatten, ReLU, Residual
from polybench.engines.pytorch.layers import network
from polybench.models import find_model
block = Residual((ReLU(), Conv("second", 3, 3, 1), BatchNorm("norm", 3), ReLU(), ReLU()))
end = ReLU(), Dropout("dropout", 0.5), ReLU(), Flatten()
layers = (ReLU(), Residual(()), Conv("first", 3, 3, 1), block, *end)
model = msgspec.structs.replace(find_model("lenet"), layers=layers, input_shape=(3, 8, 8), classes=192)
made = network(model, given_masks=False)
made.named["dropout"].p = 0.0
first, second, norm = (made.named[name] for name in ("first", "second", "norm"))
images = torch.randn(2, 3, 8, 8)
given = images.clone()
outputs = made.module(images)
assert torch.equal(images, given)
x = first(2 * images.relu())
expected = (x + norm(second(x.relu())).relu()).relu().flatten(1)
assert torch.equal(outputs, expected)
weights = [first.weight, second.weight, norm.weight]
gradients = (torch.autograd.grad(result.sum(), weights) for result in (outputs, expected))
assert all(map(torch.equal, *gradients))
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
except Unavailable as missing:
    assert missing.reason and missing.remedy
else:
    raise AssertionError("built")
""",
    "cudagraph on the CPU is unavailable with a remedy": """
try:
    build(variants=("channels_last", "cudagraph"))
except Unavailable as missing:
    assert missing.reason == "cudagraph needs a CUDA device" and missing.remedy == "use --devices cuda"
else:
    raise AssertionError("built")
""",
    "reset zeroes the optimizer's state where it is": """
build()
engine.run_steps(0, 1)
def momentum():
    return [state["momentum_buffer"] for state in engine._optimizer.state.values()]
before = momentum()
assert len(before) == 10 and all(buffer.any() for buffer in before)
engine.reset()
assert all(new is old and not new.any() for new, old in zip(momentum(), before, strict=True))
""",
    "cuDNN tries its algorithms": """
import torch
assert torch.backends.cudnn.benchmark
assert engine.probe().build.get("cudnn_autotune", "on") == "on"
""",
    "the probe names version and build": """
import torch
probe = engine.probe()
assert probe.versions == {"torch": torch.__version__}
assert {"onednn", "parallel_backend", "cpu_capability"} <= set(probe.build), probe.build
""",
}


CHECKS |= pipeline_checks.CHECKS


@pytest.mark.parametrize("name", CHECKS)
def test_pytorch(run_checks: RunChecks, name: str) -> None:
    assert not (failure := run_checks("torch", CHECKS)[name]), failure
