"""PyTorch's CUDA path on a device. Times are asserted only if they are the claim."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest

from polybench.engines.base import Array
from tests.engines import pipeline_checks
from tests.gpu.engine_fixtures import GpuEngineFixture, on_gpu
from tests.gpu.experiments import Operation, check_max_pool_rule, errors_without_and_with_tf32

pytestmark = pytest.mark.gpu

VARIANTS = (
    ("channels_last",), ("compile",), ("cudagraph",), ("foreach",),
    ("channels_last", "compile"), ("channels_last", "cudagraph"), ("compile", "cudagraph"),
)  # fmt: skip


@on_gpu("torch")
def test_tf32_of_torch_can_be_switched_off_and_on(fixture: GpuEngineFixture) -> str:
    import torch
    from torch.nn import functional as F  # noqa: N812

    from polybench.engines.torch.device import set_tf32

    def computed(operation: Callable[..., Any]) -> Operation:
        def compute(dtype: str, tf32: bool, *given: Array) -> Array:
            set_tf32(tf32)
            placed = (torch.from_numpy(one).cuda().to(getattr(torch, dtype)) for one in given)
            return np.array(operation(*placed).double().cpu().numpy())

        return compute

    return errors_without_and_with_tf32(product=computed(torch.matmul), convolution=computed(F.conv2d))


class Watched:
    """A training step with CUDA events before the first and after the last."""

    def __init__(self, step: Any) -> None:
        import torch

        self._step, self._begun = step, False
        self._first, self._last = (torch.cuda.Event(enable_timing=True) for _ in range(2))

    def __call__(self, images: Any, labels: Any) -> Any:
        if not self._begun:
            self._first.record()
            self._begun = True
        loss = self._step(images, labels)
        self._last.record()
        return loss

    def seconds(self) -> float:
        """Return the seconds between the events, after the GPU has passed both."""
        self._last.synchronize()
        return float(self._first.elapsed_time(self._last)) / 1e3


@on_gpu("torch")
def test_a_block_of_torch_is_never_shorter_than_its_kernels(fixture: GpuEngineFixture) -> str:
    fixture.build_large(4096)
    engine: Any = fixture.engine
    engine.run_steps(0, 4)
    found = []
    for n in (1, 4, 16):
        with patch.object(engine, "_train_step", watched := Watched(engine._train_step)):
            seconds = engine.run_steps(0, n)
        kernels = watched.seconds()
        assert seconds >= 0.999 * kernels, (n, seconds, kernels)
        found.append(f"{n} steps: {seconds * 1e3:.2f} ms by the clock, {kernels * 1e3:.2f} by events")
    # A missing synchronization would show here.
    with (
        patch.object(engine, "_train_step", watched := Watched(engine._train_step)),
        patch.object(engine, "_synchronize", lambda: None),
    ):
        seconds = engine.run_steps(0, 16)
    assert seconds < watched.seconds()
    return "; ".join(found)


@on_gpu("torch")
def test_every_variant_of_torch_trains_like_the_plain_engine(fixture: GpuEngineFixture) -> str:
    fixture.build()
    plain = fixture.losses()
    found = []
    for variants in VARIANTS:
        fixture.build(variants=variants)
        for _ in range(2):  # also after a reset
            np.testing.assert_allclose(fixture.losses(), plain, rtol=1e-4, err_msg="+".join(variants))
        found.append("+".join(variants))
    return ", ".join(found)


def graphed_step(fixture: GpuEngineFixture, batch_size: int) -> Callable[[int], float]:
    """Return a function from n to the seconds of n steps in a CUDA graph that is written by hand, without polybench.

    See https://docs.pytorch.org/docs/stable/notes/cuda.html#whole-network-capture. The fixture's batches are used in
    turn, repeated to `batch_size`.
    """
    import torch
    from torch import nn

    model = nn.Sequential(
        nn.Conv2d(3, 16, 5), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(16, 8, 5), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(200, 120), nn.Linear(120, 84), nn.Linear(84, 10),
    ).cuda()  # fmt: skip
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    loss_function = nn.CrossEntropyLoss()
    repeats = batch_size // fixture.images.shape[1]
    batches = [
        (torch.from_numpy(np.repeat(x, repeats, axis=0)).cuda(), torch.from_numpy(np.repeat(y, repeats)).cuda())
        for x, y in zip(fixture.images, fixture.labels, strict=True)
    ]
    images, labels = (part.clone() for part in batches[0])

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            optimizer.zero_grad(set_to_none=True)
            loss_function(model(images), labels).backward()
            optimizer.step()
    torch.cuda.current_stream().wait_stream(side)
    optimizer.zero_grad(set_to_none=True)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        loss_function(model(images), labels).backward()
        optimizer.step()

    def run(n: int) -> float:
        torch.cuda.synchronize()
        start = time.perf_counter()
        for step in range(n):
            x, y = batches[step % len(batches)]
            images.copy_(x)
            labels.copy_(y)
            graph.replay()
        torch.cuda.synchronize()
        return time.perf_counter() - start

    return run


@on_gpu("torch")
def test_a_cuda_graph_of_torch_is_as_fast_as_a_manual_one(fixture: GpuEngineFixture) -> str:
    fixture.build_large(128, ("cudagraph",))
    engine: Any = fixture.engine
    by_hand = graphed_step(fixture, 128)
    ratios = []
    for _ in range(9):  # alternating, so that a change of clocks affects both
        ours, theirs = engine.run_steps(0, 400), by_hand(400)
        ratios.append(ours / theirs)
    ratio = statistics.median(ratios)
    assert ratio <= 1.05, ratios
    return f"{ratio:.3f} times the step by hand, {ours / 400 * 1e6:.1f} us"


@on_gpu("torch")
def test_pinned_batches_of_torchs_pipeline_are_those_of_the_decisions(fixture: GpuEngineFixture) -> str:
    import torch

    pinned: list[bool] = []
    to = torch.Tensor.to

    def watched(self: Any, *where: Any, **how: Any) -> Any:
        if how.get("non_blocking"):
            pinned.append(self.is_pinned())
        return to(self, *where, **how)

    with patch.object(torch.Tensor, "to", watched):
        # Losses need not repeat, because some of cuDNN's algorithms do not.
        pipeline_checks.returns_augmented_batches_with_any_number_of_workers(fixture)
        pipeline_checks.closes_when_batches_are_preloaded(fixture)
    assert pinned
    assert all(pinned)
    return f"{len(pinned)} tensors, all from pinned memory"


@on_gpu("torch")
def test_allocations_and_peak_of_torch_come_from_its_allocator(fixture: GpuEngineFixture) -> str:
    import torch

    fixture.build_large(512)
    engine = fixture.engine
    engine.run_steps(0, 4)
    before = torch.cuda.memory_stats()
    engine.run_steps(0, 4)
    after = torch.cuda.memory_stats()
    found = engine.count_allocations(0, 4).device
    assert found is not None
    for name, value in (
        ("allocation.all.allocated", found.count_per_step),
        ("requested_bytes.all.allocated", found.bytes_per_step),
        ("allocated_bytes.all.allocated", found.allocated_bytes_per_step),
    ):
        assert value == (after[name] - before[name]) / 4, name
    stats = torch.cuda.memory_stats()
    assert engine.device_peak_bytes() == stats["allocated_bytes.all.peak"]
    assert found.reserved_bytes == stats["reserved_bytes.all.current"]
    assert found.driver_calls_per_step == 0
    places = engine.allocation_sites(0, 2)
    assert places.sites
    assert sum(place.bytes_per_step for place in places.sites) == pytest.approx(found.bytes_per_step, rel=0.05)
    mib = found.bytes_per_step / 2**20
    return f"{found.count_per_step:g} a step, {mib:.1f} MiB; peak {engine.device_peak_bytes()}"


@on_gpu("torch")
def test_the_max_pool_rule_of_torchs_kernels(fixture: GpuEngineFixture) -> str:
    import torch
    from torch.nn import functional as F  # noqa: N812

    def gradient(memory_format: Any) -> Callable[[Array, int, int], Array]:
        def found(x: Array, size: int, stride: int) -> Array:
            given = torch.from_numpy(x).cuda().to(memory_format=memory_format).requires_grad_()
            F.max_pool2d(given, size, stride).sum().backward()
            assert given.grad is not None
            return np.array(given.grad.cpu().numpy())

        return found

    formats = {"NCHW": torch.contiguous_format, "NHWC": torch.channels_last}
    return "; ".join(f"{name}: {check_max_pool_rule(gradient(one))}" for name, one in formats.items())
