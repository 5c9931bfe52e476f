"""The CUDA path of PyTorch's engine without a GPU: every call that it makes of one, and a step's tensors."""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

import pytest

from polybench.core.job import Job
from polybench.core.optimizers import Optimizer
from polybench.core.spec import Workload
from polybench.models.lenet import LENET
from tests.engines.device_calls import calls
from tests.engines.lab import Lab, in_process_of, stream
from tests.engines.pytorch.cuda_stand_in import PEAK, cuda_stand_in

NAMES = calls(("pytorch", "support/torch"), "torch.cuda.")


def build(lab: Lab, variants: tuple[str, ...] = (), precision: str = "fp32", dtype: str = "float32") -> Any:
    """An engine on `cuda:1` with its batches there."""
    workload = Workload("lenet", "noise", lab.images.shape[1], Optimizer(), precision, 2)
    lab.engine.build(Job(LENET, workload, "cuda:1", dtype, variants), lab.weights)
    lab.engine.load(lab.images, lab.labels)
    return lab.engine


def train(lab: Lab) -> None:
    """All that asks for a GPU: a plain block and what is counted of it, and a CUDA graph's."""
    engine = build(lab)
    engine.probe()
    engine.run_steps(0, 2)
    engine.count_allocations(0, 2)
    engine.device_peak_bytes()
    engine.go_on_from(engine.training_state())
    build(lab, ("cudagraph",)).run_steps(0, 2)


@in_process_of("torch")
def test_every_call_of_a_gpu_is_one_that_this_pytorch_has(lab: Lab) -> None:
    with cuda_stand_in() as cuda:
        train(lab)
    assert cuda.called >= NAMES, NAMES - cuda.called
    assert cuda.mocks["torch.cuda.set_device"].call_args.args == (1,)


@in_process_of("torch")
def test_a_misspelled_call_of_a_gpu_is_found(lab: Lab) -> None:
    """What a misspelled name is to Python, each of them is made to be: one that the module has not."""
    import torch

    for name in sorted(NAMES):
        with cuda_stand_in() as cuda:
            saved = getattr(torch.cuda, name.rpartition(".")[2])
            delattr(torch.cuda, name.rpartition(".")[2])
            try:
                with pytest.raises(AttributeError, match=name.rpartition(".")[2]):
                    train(lab)
            finally:
                setattr(torch.cuda, name.rpartition(".")[2], saved)
            assert name not in cuda.called
    with cuda_stand_in(), pytest.raises(TypeError, match="argument"):
        torch.cuda.synchronize(0, 1)


@in_process_of("torch")
def test_the_device_is_synchronized_at_both_ends_of_a_block_and_nowhere_else(lab: Lab) -> None:
    with cuda_stand_in() as cuda:
        engine = build(lab)
        step = engine._train_step
        engine._train_step = lambda *batch: (cuda.order.append("step"), step(*batch))[1]
        del cuda.order[:]
        engine.run_steps(0, 3)
        assert cuda.order == ["synchronize", "step", "step", "step", "synchronize"]
        assert cuda.mocks["torch.cuda.synchronize"].call_args.args[0].index == 1
        assert engine.sample_kind == "block"


@in_process_of("torch")
def test_tensors_of_a_step_are_on_the_device_in_their_type_and_order(lab: Lab) -> None:
    import torch

    for variants, precision, dtype in (
        ((), "fp32", "float32"),
        ((), "fp32", "float64"),
        ((), "bf16", "float32"),
        (("channels_last", "foreach"), "tf32", "float32"),
    ):
        with cuda_stand_in() as cuda:
            engine = build(lab, variants, precision, dtype)
            engine.run_steps(0, 2)
            images, labels = engine._batches[0]
            parameters = list(engine._network.module.parameters())
            buffers = [state["momentum_buffer"] for state in engine._optimizer.state.values()]
            gradients = [parameter.grad for parameter in parameters]
            tensors = [images, labels, engine._loss, *parameters, *buffers, *gradients]
            assert {tensor.device for tensor in tensors} == {torch.device("meta")}
            assert cuda.devices == {torch.device("cuda", 1)}
            kinds = {tensor.dtype for tensor in (images, *parameters, *buffers, *gradients)}
            assert kinds == {getattr(torch, dtype)}
            assert labels.dtype == torch.int64
            assert engine._loss.shape == ()
            last = "channels_last" in variants
            for tensor in (images, parameters[0], gradients[0]):
                assert tensor.is_contiguous(memory_format=torch.channels_last) == last
            assert torch.backends.cudnn.allow_tf32 == (precision == "tf32")


@in_process_of("torch")
def test_bfloat16_is_what_a_gpu_multiplies_in(lab: Lab) -> None:
    import torch

    with cuda_stand_in(), patch("torch.autocast", autospec=True) as autocast:
        for dtype, calls_of in (("float32", 2), ("float64", 0)):  # the check in float64 has no bfloat16
            autocast.reset_mock()
            build(lab, precision="bf16", dtype=dtype).run_steps(0, 2)
            assert autocast.call_count == calls_of
        build(lab, precision="bf16").run_steps(0, 1)
    autocast.assert_called_with("cuda", dtype=torch.bfloat16)


@in_process_of("torch")
def test_a_graph_is_captured_on_another_stream_and_replayed_for_each_batch(lab: Lab) -> None:
    with cuda_stand_in() as cuda:
        engine = build(lab, ("cudagraph",))
        graph = cuda.mocks["torch.cuda.CUDAGraph"].return_value
        side, current = (
            cuda.mocks[f"torch.cuda.{name}"].return_value for name in ("Stream", "current_stream")
        )
        side.wait_stream.assert_called_once_with(current)
        cuda.mocks["torch.cuda.stream"].assert_called_once_with(side)
        cuda.mocks["torch.cuda.graph"].assert_called_once_with(graph)
        assert cuda.order.index("stream") < cuda.order.index("CUDAGraph") < cuda.order.index("graph")
        graph.replay.assert_not_called()
        engine.run_steps(0, 3)
        assert graph.replay.call_count == 3


@in_process_of("torch")
def test_allocations_and_peak_are_those_of_the_devices_allocator(lab: Lab) -> None:
    with cuda_stand_in() as cuda:
        engine = build(lab)
        found = engine.count_allocations(0, 2).device
        assert engine.device_peak_bytes() == PEAK
    assert found is not None
    # The stand-in counts 8 of everything for each call: two of `synchronize`, and the second of its own.
    assert (found.count_per_step, found.driver_calls_per_step) == (12.0, 12.0)
    assert found.reserved_bytes
    assert all(call.args[0].index == 1 for call in cuda.mocks["torch.cuda.memory_stats"].call_args_list)


@in_process_of("torch")
def test_batches_of_a_pipeline_are_pinned_and_copied_while_the_host_goes_on(lab: Lab) -> None:
    """The loader's own option, as this PyTorch has it; on a device `tests/gpu` looks at the memory."""
    with cuda_stand_in(), patch("torch.utils.data.DataLoader", autospec=True) as loader:
        build(lab)
        lab.engine.open_stream(stream(1, True)[0])
        assert loader.call_args.kwargs["pin_memory"] is True


def test_all_names_are_found_in_the_sources() -> None:
    assert {"torch.cuda.synchronize", "torch.cuda.graph", "torch.cuda.memory_stats"} <= NAMES
    assert len(NAMES) >= 10
