"""A CUDA graph of lenet's step, written by hand like PyTorch's manual, without polybench.

https://docs.pytorch.org/docs/stable/notes/cuda.html#whole-network-capture
"""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter

import numpy as np

from tests.engines.engine_fixtures import EngineFixture


def graphed_step(fixture: EngineFixture, batch_size: int) -> Callable[[int], float]:
    """Return a function from n to the seconds of n steps on the fixture's batches in turn, repeated to `batch_size`."""
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
        (
            torch.from_numpy(np.repeat(x, repeats, axis=0)).cuda(),
            torch.from_numpy(np.repeat(y, repeats)).cuda(),
        )
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
        start = perf_counter()
        for step in range(n):
            x, y = batches[step % len(batches)]
            images.copy_(x)
            labels.copy_(y)
            graph.replay()
        torch.cuda.synchronize()
        return perf_counter() - start

    return run
