"""Loss function and training step."""

from __future__ import annotations

from typing import Any


def make_loss_function(model: Any, device_type: str, autocast: bool) -> Any:
    """Make the function (images, labels) -> mean loss, a tensor; with `autocast`, the model runs in bf16."""
    import torch
    from torch.nn import functional as F  # noqa: N812 - PyTorch's conventional name

    def compute_loss(images: Any, labels: Any) -> Any:
        return F.cross_entropy(model(images), labels)

    def compute_loss_with_autocast(images: Any, labels: Any) -> Any:
        with torch.autocast(device_type, dtype=torch.bfloat16):
            logits = model(images)
        return F.cross_entropy(logits.float(), labels)

    return compute_loss_with_autocast if autocast else compute_loss


def make_training_step(compute_loss: Any, optimizer: Any) -> Any:
    """Make the function (images, labels) -> loss, a tensor, that trains one step."""

    def train_step(images: Any, labels: Any) -> Any:
        optimizer.zero_grad()
        loss = compute_loss(images, labels)
        loss.backward()
        optimizer.step()
        return loss

    return train_step
