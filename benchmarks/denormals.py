"""Count denormal numbers in a training; each can cost a CPU a hundred cycles.

Trains an independent network of `programs/` in PyTorch on random images, and counts nonzero numbers below
1.2e-38 in float32, in each layer's output, in gradients and in the optimizer's momentum. It times nothing and takes
seconds.

    python benchmarks/denormals.py [--model lenet] [--batch-size 128] [--steps 20]
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import torch
from tabulate import tabulate
from torch import Tensor, nn

sys.path.append(str(Path(__file__).parent / "programs"))

import independent_torch

TINY = torch.finfo(torch.float32).tiny


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="lenet", choices=("lenet", "dlframeworks-cnn", "resnet32"))
    parser.add_argument("--batch-size", type=int, default=128)
    parser.add_argument("--steps", type=int, default=20)
    options = parser.parse_args()
    torch.manual_seed(0)
    network: nn.Module = getattr(independent_torch, options.model.replace("-", "_"))()
    seen: Counter[str] = Counter()
    denormal: Counter[str] = Counter()

    def look(kind: str, tensor: Tensor) -> None:
        seen[kind] += tensor.numel()
        denormal[kind] += int(((tensor != 0) & (tensor.abs() < TINY)).sum())

    for layer in network.modules():
        layer.register_forward_hook(_looking(look))
    optimizer = torch.optim.SGD(network.parameters(), lr=0.01, momentum=0.9)
    for _ in range(options.steps):
        images, labels = torch.rand(options.batch_size, 3, 32, 32), torch.randint(10, (options.batch_size,))
        optimizer.zero_grad()
        nn.functional.cross_entropy(network(images), labels).backward()
        optimizer.step()
        for parameter in network.parameters():
            look("gradients of weights", parameter.grad)
            look("momentum", optimizer.state[parameter]["momentum_buffer"])
    rows = [(kind, f"{seen[kind]:,}", f"{denormal[kind]:,}") for kind in seen]
    print(tabulate(rows, ["what", "numbers", "denormal"], tablefmt="pipe", disable_numparse=True))
    print(json.dumps({"benchmark": "denormals", "numbers": seen, "denormal": denormal}))


def _looking(look: Callable[[str, Tensor], None]) -> Callable[[nn.Module, tuple[Tensor], Tensor], None]:
    def hook(_layer: nn.Module, _inputs: tuple[Tensor], output: Tensor) -> None:
        look("activations", output.detach())
        output.register_hook(lambda gradient: look("gradients of activations", gradient))

    return hook


if __name__ == "__main__":
    main()
