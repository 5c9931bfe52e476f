"""Training step in PyTorch: loss, optimizer, CUDA graph and checkpoint.

The optimizers of `torch.optim` compute the canonical formulas; all constants are explicit. Weight decay is added
to the gradient (except in `AdamW`), and no state contains the learning rate. Epsilon is added to the root, in Adam
to that of the bias-corrected v (torch 2.13, `_single_tensor_adam`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

import torch
from torch import optim
from torch.nn import functional as F  # noqa: N812 - PyTorch's conventional name
from torch.nn.utils import clip_grad_norm_

from polybench.engines.base import Weights
from polybench.engines.job import Job
from polybench.engines.shared.batches import Batch
from polybench.errors import EngineUnavailable
from polybench.networks.model import Model
from polybench.networks.optimizers import ADAM_EPSILON, RMSPROP_DECAY, RMSPROP_EPSILON, Optimizer

WARMUP_STEPS = 3  # as in PyTorch's documentation


def make_loss_function(module: Any, model: Model, device_type: str, *, autocast: bool) -> Any:
    """Make the function (images, labels) -> mean loss, a tensor.

    With `autocast`, the layers run in bf16. If there is a prediction at each position, logits and labels are flattened.
    """

    def compute_logits(images: Any) -> Any:
        with torch.autocast(device_type, dtype=torch.bfloat16):
            logits = module(images)
        return logits.float()

    logits_of = compute_logits if autocast else module
    cross_entropy = partial(F.cross_entropy, label_smoothing=model.label_smoothing)

    def compute_loss(images: Any, labels: Any) -> Any:
        return cross_entropy(logits_of(images), labels)

    def compute_flat_loss(images: Any, labels: Any) -> Any:
        return cross_entropy(logits_of(images).flatten(0, 1), labels.flatten())

    return compute_flat_loss if model.label_shape else compute_loss


def make_forward_pass(model: Any, device_type: str, *, autocast: bool) -> Any:
    """Make the function (images, labels) -> logits, which ignores labels; it sets the model to evaluation mode."""
    model.eval()

    def forward(images: Any, _labels: Any) -> Any:
        return model(images)

    def forward_with_autocast(images: Any, _labels: Any) -> Any:
        with torch.autocast(device_type, dtype=torch.bfloat16):
            return model(images)

    return forward_with_autocast if autocast else forward


def make_training_step(compute_loss: Any, update: Callable[[], None], optimizer: Any) -> Any:
    """Make the function (images, labels) -> loss, a tensor, that trains one step."""

    def train_step(images: Any, labels: Any) -> Any:
        optimizer.zero_grad()
        loss = compute_loss(images, labels)
        loss.backward()
        update()
        return loss

    return train_step


def make_update(optimizer: Optimizer, torch_optimizer: Any) -> Callable[[], None]:
    """Make the function that clips the gradients of all parameters, if requested, and updates the weights."""
    parameters = [parameter for group in torch_optimizer.param_groups for parameter in group["params"]]

    def clip_and_update() -> None:
        clip_grad_norm_(parameters, optimizer.gradient_clip)
        torch_optimizer.step()

    return clip_and_update if optimizer.gradient_clip else torch_optimizer.step


def make_optimizer(optimizer: Optimizer, parameters: Iterable[Any], *, foreach: bool) -> Any:
    """Make the `torch.optim` optimizer of these parameters.

    With `foreach`, each operation updates all parameters. Otherwise PyTorch chooses: one parameter at a time
    on the CPU, `foreach` on CUDA.
    """
    rate, betas = optimizer.learning_rate, optimizer.betas
    shared: dict[str, Any] = {"weight_decay": optimizer.weight_decay, "foreach": foreach or None}
    match optimizer.name:
        case "adam":
            return optim.Adam(parameters, rate, betas=betas, eps=ADAM_EPSILON, **shared)
        case "adamw":
            groups: dict[bool, list[Any]] = {True: [], False: []}
            for parameter in parameters:
                groups[parameter.ndim > 1].append(parameter)
            matrices, others = ({"params": group} for group in groups.values())
            optimizers = [matrices, others | {"weight_decay": 0.0}]
            return optim.AdamW(optimizers, rate, betas=betas, eps=ADAM_EPSILON, **shared)
        case "rmsprop":
            return optim.RMSprop(parameters, rate, alpha=RMSPROP_DECAY, eps=RMSPROP_EPSILON, **shared)
        case "sgd" | "momentum" | "nesterov":
            momentum = optimizer.momentum or 0.0
            # PyTorch rejects nesterov without momentum.
            nesterov = optimizer.name == "nesterov" and momentum > 0
            return optim.SGD(parameters, rate, momentum=momentum, nesterov=nesterov, **shared)


def set_learning_rate(torch_optimizer: Any, rate: float) -> None:
    """Set the learning rate from the next step on."""
    for group in torch_optimizer.param_groups:
        group["lr"] = rate


def check_cudagraph_support(job: Job) -> None:
    """Raise EngineUnavailable if a CUDA graph cannot capture the job's step."""
    if job.device == "cpu":
        raise EngineUnavailable("cudagraph needs a CUDA device", "use --devices cuda")
    if job.workload.is_forward_pass:
        raise EngineUnavailable("cudagraph does not have the forward pass yet", "omit +cudagraph")
    if job.workload.optimizer.has_schedule:
        raise EngineUnavailable("a CUDA graph has a constant learning rate", "omit the learning-rate schedule")
    if job.workload.optimizer.betas:
        # torch 2.13, `capturable=True`: 1 - 0.999^t from a float32 step tensor, even for float64 weights.
        raise EngineUnavailable(
            "in a CUDA graph, PyTorch's Adam computes its bias correction in float32, with an error of 1e-5",
            "use another optimizer, or torch+compile",
        )


def compiled_graphs() -> int:
    """Count the graphs that TorchInductor has compiled in this process; 0 if it compiled any of them with an error."""
    from torch._dynamo.utils import counters  # takes a second, so only if needed

    by_inductor = counters["inductor"] and not counters["aot_autograd"]["not_ok"]
    return int(counters["stats"]["unique_graphs"]) if by_inductor else 0


class GraphedStep:
    """Training step, (images, labels) -> loss, captured once and replayed; the next call overwrites the loss.

    See https://docs.pytorch.org/docs/stable/notes/cuda.html#whole-network-capture.

    A graph reads and writes fixed addresses. Each call therefore copies its batch, on the device, into the
    tensors of the graph, and weights and optimizer state must be changed in place. The learning rate is a
    constant of the graph.
    """

    def __init__(
        self, compute_loss: Callable[[Any, Any], Any], update: Callable[[], None], optimizer: Any, batch: Batch
    ) -> None:
        """Capture the step on a batch like all later ones; this trains weights and optimizer state for a few steps."""
        self._images, self._labels = (tensor.clone() for tensor in batch)
        for group in optimizer.param_groups:
            if "capturable" in group:  # Adam and others, which count their steps on the CPU by default
                group["capturable"] = True

        def step() -> Any:
            loss = compute_loss(self._images, self._labels)
            loss.backward()
            update()
            return loss.detach()  # its gradient nodes would refer to the stream they ran on

        # The warm-up runs one-time work, such as compiling and choosing algorithms, before the capture. It
        # must not use the default stream either.
        warmup_stream = torch.cuda.Stream()
        warmup_stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(warmup_stream):
            for _ in range(WARMUP_STEPS):
                optimizer.zero_grad(set_to_none=True)
                step()
        torch.cuda.current_stream().wait_stream(warmup_stream)

        # Gradients set to None are allocated in the graph's memory; a replay overwrites instead of adding.
        optimizer.zero_grad(set_to_none=True)
        self._graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self._graph):
            self._loss = step()

    def __call__(self, images: Any, labels: Any) -> Any:
        self._images.copy_(images)
        self._labels.copy_(labels)
        self._graph.replay()
        return self._loss


def training_state(tensors: Mapping[str, Any], optimizer: Any, device: Any) -> Weights:
    """Copy the network's tensors, the optimizer's state and the generators of dropout to NumPy arrays."""
    state = {**_mutable_tensors(tensors, optimizer), "generator": torch.get_rng_state()}
    if device.type == "cuda":
        state["device_generator"] = torch.cuda.get_rng_state(device)
    return {name: tensor.detach().cpu().numpy().copy() for name, tensor in state.items()}


def restore(state: Weights, tensors: Mapping[str, Any], optimizer: Any, device: Any, *, rank: int) -> None:
    """Restore a result of `training_state`; the optimizer must have made a step already.

    The saved generator is that of rank 0; other ranks derive their own generators from it.
    """
    saved = {name: torch.from_numpy(value) for name, value in state.items()}
    with torch.no_grad():
        for name, tensor in _mutable_tensors(tensors, optimizer).items():
            tensor.copy_(saved[name])  # in place, for CUDA graphs
    torch.set_rng_state(saved["generator"])
    if rank:
        torch.manual_seed(int(torch.randint(1 << 62, ())) + rank)
    elif device.type == "cuda":
        torch.cuda.set_rng_state(saved["device_generator"], device)


def _mutable_tensors(tensors: Mapping[str, Any], optimizer: Any) -> dict[str, Any]:
    """Tensors that a step changes, by name."""
    found = dict(tensors)
    for index, state in enumerate(optimizer.state.values()):
        found |= {f"optimizer.{index}.{key}": value for key, value in state.items() if torch.is_tensor(value)}
    return found
