"""Three CIFAR-10 networks in PyTorch on random images, written without a look at polybench or its scripts.

    python independent_torch.py lenet|dlframeworks-cnn|resnet32 BATCH_SIZE THREADS STEPS

Trains STEPS steps for each line on standard input, and prints their median time as JSON.
"""

import json
import statistics
import sys
import time

import torch
from torch import nn


class BasicBlock(nn.Module):
    """Two 3x3 convolutions and a shortcut."""

    def __init__(self, in_planes, planes, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(in_planes, planes, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(planes)
        self.relu = nn.ReLU(inplace=True)
        self.conv2 = nn.Conv2d(planes, planes, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(planes)
        self.downsample = nn.Conv2d(in_planes, planes, 1, stride, bias=False) if stride != 1 else None

    def forward(self, x):
        """As torchvision's ResNets have it."""
        identity = x if self.downsample is None else self.downsample(x)
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out))
        out += identity
        return self.relu(out)


def lenet():
    return nn.Sequential(
        nn.Conv2d(3, 16, 5),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(16, 8, 5),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(8 * 5 * 5, 120),
        nn.Linear(120, 84),
        nn.Linear(84, 10),
    )


def dlframeworks_cnn():
    return nn.Sequential(
        nn.Conv2d(3, 50, 3, padding="same"),
        nn.ReLU(),
        nn.Conv2d(50, 50, 3, padding="same"),
        nn.MaxPool2d(2),
        nn.ReLU(),
        nn.Dropout(0.25),
        nn.Conv2d(50, 100, 3, padding="same"),
        nn.ReLU(),
        nn.Conv2d(100, 100, 3, padding="same"),
        nn.MaxPool2d(2),
        nn.ReLU(),
        nn.Dropout(0.25),
        nn.Flatten(),
        nn.Linear(100 * 8 * 8, 512),
        nn.ReLU(),
        nn.Dropout(0.5),
        nn.Linear(512, 10),
    )


def resnet32():
    stem = [nn.Conv2d(3, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16), nn.ReLU(inplace=True)]
    body, planes = [], 16
    for width in (16, 32, 64):
        for _ in range(5):
            body.append(BasicBlock(planes, width, 1 if planes == width else 2))
            planes = width
    return nn.Sequential(*stem, *body, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10))


def main():
    build = {"lenet": lenet, "dlframeworks-cnn": dlframeworks_cnn, "resnet32": resnet32}[sys.argv[1]]
    batch_size, threads, steps = map(int, sys.argv[2:])
    torch.set_num_threads(threads)
    net = build()
    net.train()
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)
    data = [(torch.rand(batch_size, 3, 32, 32), torch.randint(10, (batch_size,))) for _ in range(steps)]
    for _ in sys.stdin:
        times = []
        for inputs, targets in data:
            start = time.perf_counter()
            optimizer.zero_grad()
            loss = criterion(net(inputs), targets)
            loss.backward()
            optimizer.step()
            times.append(time.perf_counter() - start)
        print(json.dumps({"median_step_seconds": statistics.median(times), "loss": loss.item()}), flush=True)


if __name__ == "__main__":
    main()
