"""The whole training step of PyTorch as one CUDA graph: captured once, replayed for every batch.

It follows https://docs.pytorch.org/docs/stable/notes/cuda.html#whole-network-capture.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from polybench.core.errors import Unavailable
from polybench.core.job import Job

WARM_UP_STEPS = 3  # as many as PyTorch's documentation takes before it captures


def check_graphable(job: Job) -> None:
    """Raise Unavailable where no graph of the job's step can be captured."""
    if job.device == "cpu":
        raise Unavailable("cudagraph needs a CUDA device", "use --devices cuda")
    if job.workload.optimizer.schedule:
        raise Unavailable(
            "a CUDA graph keeps the learning rate it was captured with", "leave the schedule out"
        )
    if job.workload.optimizer.name == "adam":
        # torch 2.13, `capturable=True`: 1 - 0.999^t of a step tensor in float32, even for float64 weights.
        raise Unavailable(
            "in a CUDA graph PyTorch's Adam corrects its bias in float32, which is 1e-5 off",
            "use another optimizer, or torch+compile",
        )


class GraphedStep:
    """A training step, (images, labels) -> loss, that replays a graph; the loss is overwritten by the next.

    A graph reads and writes the addresses that it was captured with. So each call copies its batch, on the
    device, into the tensors that the graph reads, and whoever changes weights or the optimizer's state must
    do that in place. The learning rate is a constant of the graph.
    """

    def __init__(self, loss_of: Callable[[Any, Any], Any], optimizer: Any, images: Any, labels: Any) -> None:
        """Capture the step; weights and the optimizer's state are trained a few steps meanwhile.

        Args:
            loss_of: (images, labels) -> mean loss, a tensor.
            optimizer: a torch.optim.Optimizer of all that `loss_of` trains.
            images: a batch on the current CUDA device, of the shape and memory format of all to come.
            labels: its labels.
        """
        import torch

        self._images, self._labels = images.clone(), labels.clone()
        for group in optimizer.param_groups:
            if "capturable" in group:  # Adam and others, which otherwise count their steps on the CPU
                group["capturable"] = True

        def step() -> Any:
            loss = loss_of(self._images, self._labels)
            loss.backward()
            optimizer.step()
            return loss.detach()  # without the nodes of its gradient, which remember the stream they ran on

        # What is done only once, compiling or choosing algorithms, must not be captured. Warming up, too,
        # needs another stream than the default one.
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(WARM_UP_STEPS):
                optimizer.zero_grad(set_to_none=True)
                step()
        torch.cuda.current_stream().wait_stream(side)

        # Without gradients `backward` makes them in the graph's own memory; a replay overwrites, never adds.
        optimizer.zero_grad(set_to_none=True)
        self._graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self._graph):
            self._loss = step()

    def __call__(self, images: Any, labels: Any) -> Any:
        self._images.copy_(images)
        self._labels.copy_(labels)
        self._graph.replay()
        return self._loss
