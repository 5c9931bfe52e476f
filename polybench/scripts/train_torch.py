"""Train `lenet` in plain PyTorch: the training that polybench times, without polybench.

    python THIS_FILE initial_state.npz FOLDER

#: if images
initial_state.npz comes from `polybench export --weights`: initial weights, and the images of each batch. FOLDER
has CIFAR-10's `data_batch_1.bin` to `data_batch_5.bin`. Prints one line of JSON: seconds and losses of steps.
#: if tokens
initial_state.npz comes from `polybench export --weights`: initial weights, and the sequences of each batch. FOLDER
has `tokens.npy` (sequences, time) and `labels.npy`. Prints one line of JSON: seconds and losses of steps.
#: end
"""

import json
import sys
import time
#: if tokens
from collections.abc import Iterator
#: end
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812 - the usual name in PyTorch programs
from torch import nn

DEVICE = "cpu"
THREADS = 2
TF32 = False
LEARNING_RATE = 0.01
#: if images
MOMENTUM = 0.9
CHANNELS_LAST = False
COMPILE = False
FOREACH = False
#: end
UNTIMED_STEPS = 2
STEPS = 58

torch.set_num_threads(THREADS)
torch.set_num_interop_threads(THREADS)
torch.set_float32_matmul_precision("high" if TF32 else "highest")
torch.backends.cudnn.allow_tf32 = TF32
#: if images
torch.backends.cudnn.benchmark = True
memory_format = torch.channels_last if CHANNELS_LAST else torch.contiguous_format
#: end


#: if lenet
class Network(nn.Module):
    """The CNN of Flux's tutorial."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 16, 5)
        self.conv2 = nn.Conv2d(16, 8, 5)
        self.dense1 = nn.Linear(200, 120)
        self.dense2 = nn.Linear(120, 84)
        self.dense3 = nn.Linear(84, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Logits (batch, 10) of images (batch, 3, 32, 32)."""
        x = F.max_pool2d(F.relu(self.conv1(x)), 2)
        x = F.max_pool2d(F.relu(self.conv2(x)), 2)
        return self.dense3(self.dense2(self.dense1(x.flatten(1))))


#: if dlframeworks-cnn
class Network(nn.Module):
    """The CNN of the DeepLearningFrameworks comparison."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 50, 3, padding=1)
        self.conv2 = nn.Conv2d(50, 50, 3, padding=1)
        self.dropout1 = nn.Dropout(0.25)
        self.conv3 = nn.Conv2d(50, 100, 3, padding=1)
        self.conv4 = nn.Conv2d(100, 100, 3, padding=1)
        self.dropout2 = nn.Dropout(0.25)
        self.dense1 = nn.Linear(6400, 512)
        self.dropout3 = nn.Dropout(0.5)
        self.dense2 = nn.Linear(512, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Logits (batch, 10) of images (batch, 3, 32, 32)."""
        x = self.conv2(F.relu(self.conv1(x)))
        x = self.dropout1(F.relu(F.max_pool2d(x, 2)))
        x = self.conv4(F.relu(self.conv3(x)))
        x = self.dropout2(F.relu(F.max_pool2d(x, 2)))
        x = F.relu(self.dense1(x.flatten(1)))
        return self.dense2(self.dropout3(x))


#: if resnet32
def conv3x3(inputs: int, outputs: int, stride: int = 1) -> nn.Conv2d:
    """A 3x3 convolution without bias, followed by batch norm."""
    return nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False)


def norm(channels: int) -> nn.BatchNorm2d:
    """Batch norm with explicit constants."""
    return nn.BatchNorm2d(channels, eps=1e-5, momentum=0.1)


class Block(nn.Module):
    """The basic residual block; where channels change, a 1x1 convolution brings the shortcut to the shape."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        stride = 1 if inputs == outputs else 2
        self.conv1 = conv3x3(inputs, outputs, stride)
        self.norm1 = norm(outputs)
        self.conv2 = conv3x3(outputs, outputs)
        self.norm2 = norm(outputs)
        self.projection = nn.Identity() if stride == 1 else nn.Conv2d(inputs, outputs, 1, stride, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(batch, inputs, height, width) to (batch, outputs, height / stride, width / stride)."""
        y = F.relu(self.norm1(self.conv1(x)), inplace=True)
        y = self.norm2(self.conv2(y))
        y += self.projection(x)
        return F.relu(y, inplace=True)


def stage(inputs: int, outputs: int) -> nn.Sequential:
    """5 blocks, the first of which changes the number of channels."""
    blocks = nn.Sequential()
    for number in range(1, 6):
        blocks.add_module(f"block{number}", Block(inputs if number == 1 else outputs, outputs))
    return blocks


class Network(nn.Module):
    """The CIFAR-10 ResNet of 32 layers, post-activation."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = conv3x3(3, 16)
        self.norm1 = norm(16)
        self.stage1 = stage(16, 16)
        self.stage2 = stage(16, 32)
        self.stage3 = stage(32, 64)
        self.dense = nn.Linear(64, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Logits (batch, 10) of images (batch, 3, 32, 32)."""
        x = F.relu(self.norm1(self.conv1(x)), inplace=True)
        x = self.stage3(self.stage2(self.stage1(x)))
        return self.dense(F.adaptive_avg_pool2d(x, 1).flatten(1))


#: if imdb-bilstm
class Network(nn.Module):
    """The IMDb example of Keras 2: a bidirectional LSTM over embedded words."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(20_000, 128)
        self.lstm = nn.LSTM(128, 64, batch_first=True, bidirectional=True)
        self.dropout = nn.Dropout(0.5)
        self.dense = nn.Linear(128, 2)
        # Keras has one bias, so the second one stays 0 here.
        for bias in (self.lstm.bias_hh_l0, self.lstm.bias_hh_l0_reverse):
            nn.init.zeros_(bias).requires_grad_(False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Logits (batch, 2) of tokens (batch, time)."""
        _, (last, _) = self.lstm(self.embedding(tokens))
        return self.dense(self.dropout(torch.cat([last[0], last[1]], dim=1)))

    def tensors(self) -> Iterator[tuple[str, torch.Tensor]]:
        """Return the trained tensors by their names in initial_state.npz."""
        yield "embedding.weight", self.embedding.weight
        for ours, theirs in (("", ""), ("reverse_", "_reverse")):
            yield f"lstm.{ours}weight", getattr(self.lstm, f"weight_ih_l0{theirs}")
            yield f"lstm.{ours}recurrent", getattr(self.lstm, f"weight_hh_l0{theirs}")
            yield f"lstm.{ours}bias", getattr(self.lstm, f"bias_ih_l0{theirs}")
        yield "dense.weight", self.dense.weight
        yield "dense.bias", self.dense.bias


#: end
start, folder = np.load(sys.argv[1]), Path(sys.argv[2])
#: if images
# The format of the official files: 1 byte label, then red, green and blue planes.
files = [np.fromfile(folder / f"data_batch_{number}.bin", np.uint8) for number in range(1, 6)]
records = np.concatenate(files).reshape(-1, 3073)
batches = []
for indices in start["batches"][: UNTIMED_STEPS + STEPS]:
    pixels = records[indices, 1:].reshape(-1, 3, 32, 32).astype(np.float32) / 255
    images = torch.from_numpy(pixels).to(DEVICE, memory_format=memory_format)
    batches.append((images, torch.from_numpy(records[indices, 0].astype(np.int64)).to(DEVICE)))

model = Network()
with torch.no_grad():  # batch norm's statistics start at 0 and 1, as in initial_state.npz
    for name, parameter in model.named_parameters():
        parameter.copy_(torch.from_numpy(start[name]))
model.to(DEVICE, memory_format=memory_format)
optimizer = torch.optim.SGD(model.parameters(), lr=LEARNING_RATE, momentum=MOMENTUM, foreach=FOREACH or None)
#: if tokens
tokens, labels = (np.load(folder / f"{name}.npy").astype(np.int64) for name in ("tokens", "labels"))
batches = [
    (torch.from_numpy(tokens[indices]).to(DEVICE), torch.from_numpy(labels[indices]).to(DEVICE))
    for indices in start["batches"][: UNTIMED_STEPS + STEPS]
]

model = Network()
with torch.no_grad():
    for name, parameter in model.tensors():
        parameter.copy_(torch.from_numpy(start[name]))
model.to(DEVICE)
trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
optimizer = torch.optim.Adam(trained, lr=LEARNING_RATE)
#: end


def loss_of(inputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Mean cross-entropy of a batch."""
    return F.cross_entropy(model(inputs), labels)


#: if images
if COMPILE:
    loss_of = torch.compile(loss_of, dynamic=False)


#: end
def train_step(inputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Run one step; return the loss before the update."""
    optimizer.zero_grad()
    loss = loss_of(inputs, labels)
    loss.backward()
    optimizer.step()
    return loss.detach()


losses = [train_step(*batch) for batch in batches[:UNTIMED_STEPS]]
seconds = []
if DEVICE == "cpu":
    for batch in batches[UNTIMED_STEPS:]:
        begin = time.perf_counter()
        loss = train_step(*batch)
        seconds.append(time.perf_counter() - begin)
        losses.append(loss)
else:  # no synchronization after each step on a GPU: one time for all steps
    torch.cuda.synchronize(DEVICE)
    begin = time.perf_counter()
    losses += [train_step(*batch) for batch in batches[UNTIMED_STEPS:]]
    torch.cuda.synchronize(DEVICE)
    seconds.append((time.perf_counter() - begin) / STEPS)

print(json.dumps({"step_seconds": seconds, "losses": [loss.item() for loss in losses]}))
