"""`dlframeworks-cnn` in PyTorch; its tensors have the names of initial_state.npz."""

import torch
import torch.nn.functional as F  # noqa: N812 - the usual name in PyTorch programs
from torch import nn


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
