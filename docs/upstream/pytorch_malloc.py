"""PyTorch and glibc's heap: what lies on top of it decides whether a step takes its memory from the kernel.

python pytorch_malloc.py
export GLIBC_TUNABLES=glibc.malloc.mmap_threshold=1073741824:glibc.malloc.trim_threshold=4294967296
python pytorch_malloc.py
"""

import resource
import statistics
import time

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(
    nn.Conv2d(3, 16, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(16, 8, 5), nn.ReLU(), nn.MaxPool2d(2),
    nn.Flatten(), nn.Linear(200, 120), nn.Linear(120, 84), nn.Linear(84, 10),
)  # fmt: skip
optimizer = torch.optim.SGD(model.parameters(), 0.01, momentum=0.9)
images, labels = torch.rand(128, 3, 32, 32), torch.randint(10, (128,))


def step() -> None:
    """Run one training step."""
    optimizer.zero_grad()
    nn.functional.cross_entropy(model(images), labels).backward()
    optimizer.step()


def faults() -> int:
    """Return the page faults of this process that needed no disk access."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt


for _ in range(10):
    step()
before, seconds = faults(), []
for _ in range(60):
    begun = time.perf_counter()
    step()
    seconds.append(time.perf_counter() - begun)
print(f"torch {torch.__version__}: {(faults() - before) / 60:.0f} page faults a step,", end=" ")
print(f"median {1e3 * statistics.median(seconds):.1f} ms")
