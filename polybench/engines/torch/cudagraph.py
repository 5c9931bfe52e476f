"""PyTorch's whole training step as a CUDA graph, captured once and replayed for every batch.

See https://docs.pytorch.org/docs/stable/notes/cuda.html#whole-network-capture.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from polybench.engines.job import Job
from polybench.errors import EngineUnavailable

WARMUP_STEPS = 3  # as in PyTorch's documentation


def check_cudagraph_support(job: Job) -> None:
    """Raise EngineUnavailable if a CUDA graph cannot capture the job's step."""
    if job.device == "cpu":
        raise EngineUnavailable("cudagraph needs a CUDA device", "use --devices cuda")
    if job.workload.optimizer.lr_schedule:
        raise EngineUnavailable("a CUDA graph has a constant learning rate", "omit the learning-rate schedule")
    if job.workload.optimizer.name == "adam":
        # torch 2.13, `capturable=True`: 1 - 0.999^t from a float32 step tensor, even for float64 weights.
        raise EngineUnavailable(
            "in a CUDA graph, PyTorch's Adam computes its bias correction in float32, with an error of 1e-5",
            "use another optimizer, or torch+compile",
        )


class GraphedStep:
    """Training step, (images, labels) -> loss, that replays a graph; the next call overwrites the loss.

    A graph reads and writes fixed addresses. Each call therefore copies its batch, on the device, into the
    tensors of the graph, and weights and optimizer state must be changed in place. The learning rate is a
    constant of the graph.
    """

    def __init__(self, compute_loss: Callable[[Any, Any], Any], optimizer: Any, images: Any, labels: Any) -> None:
        """Capture the step; this trains weights and optimizer state for a few steps.

        Args:
            compute_loss: (images, labels) -> mean loss, a tensor.
            optimizer: torch.optim.Optimizer of all parameters.
            images: batch on the current CUDA device, in the shape and memory format of all later batches.
            labels: labels of the batch.
        """
        import torch

        self._images, self._labels = images.clone(), labels.clone()
        for group in optimizer.param_groups:
            if "capturable" in group:  # Adam and others, which count their steps on the CPU by default
                group["capturable"] = True

        def step() -> Any:
            loss = compute_loss(self._images, self._labels)
            loss.backward()
            optimizer.step()
            return loss.detach()  # its gradient nodes would refer to the stream they ran on

        # The warm-up runs one-time work, such as compiling and choosing algorithms, before the capture. It
        # must not use the default stream either.
        warmup_stream = torch.cuda.Stream()
        warmup_stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(warmup_stream):
            for _ in range(WARMUP_STEPS):
                optimizer.zero_grad(set_to_none=True)
                step()
        torch.cuda.current_stream().wait_stream(warmup_stream)

        # Gradients set to None are allocated in the graph's memory; a replay overwrites instead of adding.
        optimizer.zero_grad(set_to_none=True)
        self._graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self._graph):
            self._loss = step()

    def __call__(self, images: Any, labels: Any) -> Any:
        self._images.copy_(images)
        self._labels.copy_(labels)
        self._graph.replay()
        return self._loss
