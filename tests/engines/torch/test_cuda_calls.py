"""CUDA path of the PyTorch engine without a GPU: all of its `torch.cuda` calls, and the tensors of a step."""

from __future__ import annotations

import copy
from typing import Any
from unittest.mock import call, patch

import pytest

from polybench.engines.job import Job
from polybench.engines.torch.emitter import emit
from polybench.networks.lenet import LENET
from polybench.schema.options import Workload
from tests.engines.device_calls import find_calls, find_calls_in
from tests.engines.engine_fixtures import EngineFixture, in_process_of
from tests.engines.torch.fake_cuda import IN_USE, PEAK, fake_cuda

DEVICE = "cuda:1"
PROGRAM = emit(Job(LENET, Workload("lenet", "noise", 8, LENET.optimizer, "fp32", 2), DEVICE, "float32", ("cudagraph",)))
NAMES = find_calls(("torch/*.py", "shared/pytorch.py"), "torch.cuda.") | find_calls_in(PROGRAM, "torch.cuda.")


def train(fixture: EngineFixture) -> None:
    """Run everything that uses a GPU: training, counting allocations, checkpointing, and a CUDA graph."""
    fixture.build(DEVICE)
    engine = fixture.engine
    engine.probe()
    engine.run_steps(0, 2)
    assert engine.count_allocations(0, 2).device is not None
    assert engine.device_peak_bytes() == PEAK
    assert engine.device_bytes_in_use() == IN_USE
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
    for name in ("memory_stats", "max_memory_allocated", "memory_allocated"):
        assert all(call.args[0].index == 1 for call in cuda.mocks[f"torch.cuda.{name}"].call_args_list), name


@in_process_of("torch")
def test_the_device_is_synchronized_only_before_and_after_a_block(fixture: EngineFixture) -> None:
    from polybench.engines.shared import python_engine

    with fake_cuda() as cuda:
        fixture.build(DEVICE)
        engine: Any = fixture.engine
        step = engine._train_step
        engine._train_step = lambda *arguments: (cuda.order.append("step"), step(*arguments))[1]
        del cuda.order[:]
        with patch.object(python_engine, "perf_counter", lambda: cuda.order.append("clock") or 0.0):
            engine.run_steps(0, 3)
        assert cuda.order == ["synchronize", "clock", "step", "step", "step", "synchronize", "clock"]
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
            with patch.object(torch, "autocast", wraps=torch.autocast) as autocast:
                engine.run_steps(0, 2)
            assert autocast.call_args_list == 2 * [call("cuda", dtype=torch.bfloat16)] * (precision == "bf16")
            images, labels = engine._batches[0]
            parameters = list(engine._network.parameters())
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
            assert torch.get_float32_matmul_precision() == ("high" if precision == "tf32" else "highest")


@in_process_of("torch")
def test_a_graph_is_captured_after_a_warm_up_on_its_own_stream(fixture: EngineFixture) -> None:
    import torch

    from polybench.engines.torch.emitter import WARMUP_STEPS

    update = torch.optim.SGD.step
    with fake_cuda() as cuda:

        def recorded(*arguments: Any) -> Any:
            cuda.order.append("update")
            return update(*arguments)

        with patch.object(torch.optim.SGD, "step", recorded):
            fixture.build(DEVICE, variants=("cudagraph",))
    order = [name for name in cuda.order if name in ("stream", "update", "graph")]
    assert order == ["stream", *["update"] * WARMUP_STEPS, "graph", "update"]
    own = cuda.mocks["torch.cuda.Stream"].return_value
    assert cuda.mocks["torch.cuda.stream"].call_args.args == (own,)


@in_process_of("torch")
def test_each_bug_in_cuda_code_is_found(fixture: EngineFixture) -> None:
    from tests.engines.torch.cuda_bugs import FOUND_BY

    survivors = []
    for bug, check in FOUND_BY.items():
        injected = copy.copy(fixture)
        injected.engine = bug()
        try:
            check(injected)
        except (AssertionError, RuntimeError):
            continue
        survivors.append(bug.__name__)
    assert len(FOUND_BY) >= 12
    assert survivors == []
