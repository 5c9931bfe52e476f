"""A training as PyTorch's CIFAR-10 tutorial has it: DataLoader, `nn.Module`, SGD, `loss.item()`.

    python pytorch_loader.py IMAGES BATCH_SIZE WORKERS HOW

HOW images come into memory: `array` (made in place), `list` (image by image, then stacked, as from files) or
`file` (saved and loaded again). Prints seconds and page faults of each step of the second epoch as JSON.
"""

import json
import resource
import sys
import tempfile
import time

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812 - the name that all of PyTorch's users know
from torch.utils.data import DataLoader, TensorDataset


class Net(nn.Module):
    """LeNet, as the tutorial has it."""

    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 6, 5)
        self.pool = nn.MaxPool2d(2, 2)
        self.conv2 = nn.Conv2d(6, 16, 5)
        self.fc1 = nn.Linear(16 * 5 * 5, 120)
        self.fc2 = nn.Linear(120, 84)
        self.fc3 = nn.Linear(84, 10)

    def forward(self, x):
        """Logits."""
        x = self.pool(F.relu(self.conv1(x)))
        x = self.pool(F.relu(self.conv2(x)))
        x = torch.flatten(x, 1)
        return self.fc3(F.relu(self.fc2(F.relu(self.fc1(x)))))


def load(images, how):
    random = np.random.default_rng(0)
    if how == "list":
        return np.stack([random.random((3, 32, 32), dtype=np.float32) for _ in range(images)])
    pixels = random.random((images, 3, 32, 32), dtype=np.float32)
    if how == "file":
        with tempfile.TemporaryFile() as file:
            np.save(file, pixels)
            file.seek(0)
            return np.load(file)
    return pixels


def main():
    images, batch_size, workers, how = int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
    pixels = torch.from_numpy(load(images, how))
    labels = torch.from_numpy(np.random.default_rng(1).integers(0, 10, images))
    loader = DataLoader(TensorDataset(pixels, labels), batch_size, shuffle=True, num_workers=workers)
    net, criterion = Net(), nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.001, momentum=0.9)
    for _ in range(2):
        faults, seconds = [], []
        before, start = resource.getrusage(resource.RUSAGE_SELF).ru_minflt, time.perf_counter()
        running_loss = 0.0
        for inputs, targets in loader:
            optimizer.zero_grad()
            loss = criterion(net(inputs), targets)
            loss.backward()
            optimizer.step()
            running_loss += loss.item()
            now, end = resource.getrusage(resource.RUSAGE_SELF).ru_minflt, time.perf_counter()
            faults.append(now - before)
            seconds.append(end - start)
            before, start = now, end
    print(json.dumps({"step_seconds": seconds[2:], "page_faults": faults[2:]}))


if __name__ == "__main__":
    main()
