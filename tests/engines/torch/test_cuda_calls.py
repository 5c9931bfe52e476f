"""CUDA path of the PyTorch engine without a GPU: all of its `torch.cuda` calls, and the tensors of a step."""

from __future__ import annotations

from typing import Any

import pytest

from tests.engines.device_calls import find_calls
from tests.engines.engine_fixtures import EngineFixture, in_process_of
from tests.engines.torch.fake_cuda import PEAK, fake_cuda

NAMES = find_calls(("torch/*.py", "shared/pytorch.py"), "torch.cuda.")
DEVICE = "cuda:1"


def train(fixture: EngineFixture) -> None:
    """Run everything that uses a GPU: training, counting allocations, checkpointing, and a CUDA graph."""
    fixture.build(DEVICE)
    engine = fixture.engine
    engine.probe()
    engine.run_steps(0, 2)
    assert engine.count_allocations(0, 2).device is not None
    assert engine.device_peak_bytes() == PEAK
    engine.restore_training_state(engine.training_state())
    fixture.build(DEVICE, variants=("cudagraph",))
    engine.run_steps(0, 2)


@pytest.mark.cuda_level("torch", "type-checked")
@in_process_of("torch")
def test_all_gpu_calls_exist_in_the_installed_pytorch(fixture: EngineFixture) -> None:
    with fake_cuda() as cuda:
        train(fixture)
    assert len(NAMES) >= 10
    assert cuda.called >= NAMES, NAMES - cuda.called
    assert cuda.mocks["torch.cuda.set_device"].call_args.args == (1,)
    assert all(call.args[0].index == 1 for call in cuda.mocks["torch.cuda.memory_stats"].call_args_list)


@in_process_of("torch")
def test_the_device_is_synchronized_only_before_and_after_a_block(fixture: EngineFixture) -> None:
    with fake_cuda() as cuda:
        fixture.build(DEVICE)
        engine: Any = fixture.engine
        step = engine._train_step
        engine._train_step = lambda *batch: (cuda.order.append("step"), step(*batch))[1]
        del cuda.order[:]
        engine.run_steps(0, 3)
        assert cuda.order == ["synchronize", "step", "step", "step", "synchronize"]
        assert cuda.mocks["torch.cuda.synchronize"].call_args.args[0].index == 1
        assert engine.timing_resolution == "block"


@in_process_of("torch")
def test_tensors_of_a_step_have_the_right_device_dtype_and_memory_format(fixture: EngineFixture) -> None:
    import torch

    for variants, precision, dtype in (
        ((), "fp32", "float32"),
        ((), "fp32", "float64"),
        ((), "bf16", "float32"),
        (("channels_last", "foreach"), "tf32", "float32"),
    ):
        with fake_cuda() as cuda:
            fixture.build(DEVICE, precision, variants, dtype)
            engine: Any = fixture.engine
            engine.run_steps(0, 2)
            images, labels = engine._batches[0]
            parameters = list(engine._network.module.parameters())
            buffers = [state["momentum_buffer"] for state in engine._optimizer.state.values()]
            gradients = [parameter.grad for parameter in parameters]
            tensors = [images, labels, engine._loss, *parameters, *buffers, *gradients]
            assert {tensor.device for tensor in tensors} == {torch.device("meta")}
            assert cuda.devices == {torch.device("cuda", 1)}
            dtypes = {tensor.dtype for tensor in (images, *parameters, *buffers, *gradients)}
            assert dtypes == {getattr(torch, dtype)}
            assert labels.dtype == torch.int64
            assert engine._loss.shape == ()
            channels_last = "channels_last" in variants
            for tensor in (images, parameters[0], gradients[0]):
                assert tensor.is_contiguous(memory_format=torch.channels_last) == channels_last
            assert torch.backends.cudnn.allow_tf32 == (precision == "tf32")
