from __future__ import annotations

import tempfile
import warnings
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from polybench.core.errors import Unavailable
from polybench.core.layers import BatchNorm, Conv, Dropout, Flatten, ReLU, Residual
from polybench.models.lenet import LENET
from tests.engines import pipeline_checks
from tests.engines.lab import Check, Lab, RunCheck, in_process_of


@in_process_of("torch")
def test_only_what_compiles_may_find_code_of_an_earlier_process(lab: Lab) -> None:
    lab.build()
    assert lab.engine.startup_detail() == {}
    lab.build(variants=("compile",))
    assert lab.engine.startup_detail() == {"cached_code": 1.0}


@in_process_of("torch")
def test_the_batches_are_the_mapped_file_itself(lab: Lab) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        lab.build()
    first, second = lab.engine._batches[0][0], lab.engine._batches[1][0]
    assert first.data_ptr() == lab.images.ctypes.data
    assert second.data_ptr() == lab.images.ctypes.data + lab.images[0].nbytes


@in_process_of("torch")
def test_channels_last_batches_are_converted_at_load(lab: Lab) -> None:
    import torch

    lab.build(variants=("channels_last",))
    batch = lab.engine._batches[1][0]
    assert batch.is_contiguous(memory_format=torch.channels_last)
    assert np.array_equal(batch.numpy(), lab.images[1])


@in_process_of("torch")
def test_only_what_nobody_else_reads_is_overwritten(lab: Lab) -> None:
    import torch

    from polybench.engines.pytorch.layers import network

    block = Residual((ReLU(), Conv("second", 3, 3, 1), BatchNorm("norm", 3), ReLU(), ReLU()))
    end = ReLU(), Dropout("dropout", 0.5), ReLU(), Flatten()
    layers = (ReLU(), Residual(()), Conv("first", 3, 3, 1), block, *end)
    model = msgspec.structs.replace(LENET, layers=layers, input_shape=(3, 8, 8), classes=192)
    made = network(model.layers, model.input_shape, given_masks=False)
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


@in_process_of("torch")
def test_threads_are_those_of_the_study(lab: Lab) -> None:
    import torch

    lab.build()
    assert torch.get_num_threads() == torch.get_num_interop_threads() == 2


@in_process_of("torch")
def test_precision_is_set_and_not_inherited(lab: Lab) -> None:
    import torch

    lab.build(precision="tf32")
    assert torch.get_float32_matmul_precision() == "high"
    assert torch.backends.cudnn.allow_tf32
    lab.build(precision="fp32")
    assert torch.get_float32_matmul_precision() == "highest"
    assert not torch.backends.cudnn.allow_tf32
    assert not torch.backends.cuda.matmul.allow_tf32


@in_process_of("torch")
def test_a_missing_gpu_is_unavailable_with_a_remedy(lab: Lab) -> None:
    assert lab.engine.probe().devices[0] == "cpu"
    with pytest.raises(Unavailable) as missing:
        lab.build(device="cuda:99")
    assert missing.value.reason
    assert missing.value.remedy


@in_process_of("torch")
def test_cudagraph_on_the_cpu_is_unavailable_with_a_remedy(lab: Lab) -> None:
    with pytest.raises(Unavailable) as missing:
        lab.build(variants=("channels_last", "cudagraph"))
    assert missing.value.reason == "cudagraph needs a CUDA device"
    assert missing.value.remedy == "use --devices cuda"


@in_process_of("torch")
def test_reset_zeroes_the_optimizers_state_where_it_is(lab: Lab) -> None:
    def momentum() -> list[Any]:
        return [state["momentum_buffer"] for state in lab.engine._optimizer.state.values()]

    lab.build()
    lab.engine.run_steps(0, 1)
    before = momentum()
    assert len(before) == 10
    assert all(buffer.any() for buffer in before)
    lab.engine.reset()
    assert all(new is old and not new.any() for new, old in zip(momentum(), before, strict=True))


@in_process_of("torch")
def test_cudnn_tries_its_algorithms(lab: Lab) -> None:
    import torch

    assert torch.backends.cudnn.benchmark
    assert lab.engine.probe().build.get("cudnn_autotune", "on") == "on"


@in_process_of("torch")
def test_the_probe_names_version_and_build(lab: Lab) -> None:
    import torch

    probe = lab.engine.probe()
    assert probe.versions == {"torch": torch.__version__}
    assert {"onednn", "parallel_backend", "cpu_capability"} <= set(probe.build), probe.build


@in_process_of("torch")
def test_the_compiler_of_a_gpus_code_is_told_before_it_is_loaded(lab: Lab) -> None:
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patched:
        package = Path(folder, "triton-9.8.7.dist-info")
        package.mkdir()
        (package / "METADATA").write_text("Metadata-Version: 2.1\nName: triton\nVersion: 9.8.7\n")
        patched.syspath_prepend(folder)
        assert lab.engine.probe().build["triton"] == "9.8.7"


@pytest.mark.parametrize("check", pipeline_checks.CHECKS)
def test_the_pipeline(run_check: RunCheck, check: Check) -> None:
    run_check("torch", check)
