"""The loss of a batch, and the step that trains on one."""

from __future__ import annotations

from typing import Any


def loss_of_batch(model: Any, device_type: str, autocast: bool) -> Any:
    """The function (images, labels) -> mean loss, a tensor; with `autocast` the model runs in bfloat16."""
    import torch
    from torch.nn import functional as F  # noqa: N812 - the name that all of PyTorch's users know

    def loss_of(images: Any, labels: Any) -> Any:
        return F.cross_entropy(model(images), labels)

    def autocast_loss_of(images: Any, labels: Any) -> Any:
        with torch.autocast(device_type, dtype=torch.bfloat16):
            logits = model(images)
        return F.cross_entropy(logits.float(), labels)

    return autocast_loss_of if autocast else loss_of


def training_step(loss_of: Any, optimizer: Any) -> Any:
    """The function (images, labels) -> loss, a tensor, that trains one step."""

    def train_step(images: Any, labels: Any) -> Any:
        optimizer.zero_grad()
        loss = loss_of(images, labels)
        loss.backward()
        optimizer.step()
        return loss

    return train_step
