"""`imdb-bilstm` in PyTorch."""

from collections.abc import Iterator

import torch
from torch import nn


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
