"""`lenet` in PyTorch; its tensors have the names of initial_state.npz."""

import torch
import torch.nn.functional as F  # noqa: N812 - the usual name in PyTorch programs
from torch import nn


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
