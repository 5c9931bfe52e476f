"""Writes the PyTorch program that the engine times: a network and its training step, as users of PyTorch write them.

This module does not import PyTorch. The network is that of `network_code`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from polybench.engines.job import Job
from polybench.engines.shared.main_part import NETWORK, NO_MAIN, MainPart, training
from polybench.engines.shared.program_text import batch_name, program, schedule, start_of_load
from polybench.engines.torch.network_code import NetworkCode
from polybench.networks.layers import Layer, Shape
from polybench.networks.optimizers import ADAM_BETAS, RMSPROP_DECAY, RMSPROP_EPSILON, Optimizer
from polybench.networks.source_text import wrapped

WARMUP_STEPS = 3
"""Steps before the capture of a CUDA graph, as in PyTorch's documentation."""
_LIBRARIES = (
    *("import numpy as np", "import torch", "import torch.nn.functional as F", "from torch import nn"),
    "from torch.nn.parallel import DistributedDataParallel",
)


def emit(job: Job, main: MainPart = NO_MAIN) -> str:
    """Return the program of a job; raises EngineUnavailable for a layer that PyTorch lacks.

    `DTYPE` and `DEVICE` are at its top. Its functions are those of a program of polybench: `setup`, `reset`, `load`,
    `train_step` (for a forward pass `forward_pass`) and `weights`; with given dropout masks also `set_masks`. `main` is
    its main part.
    """
    network = NetworkCode(job.model.layers, job.model.input_shape, given_masks=job.dropout == "given")
    is_forward_pass = job.workload.is_forward_pass
    sections = [
        "\n".join(_constants(job)),
        network.text(job.model.summary),
        _state(job),
        *([] if is_forward_pass else _optimizer(job.workload.optimizer, job.variants)),
        *_setup(job, network),
        _load(job),
        *network.masks(_module(job)),
        *(_forward_pass(job) if is_forward_pass else _training_step(job)),
        _weights(job, network),
        *network.names(),
    ]
    return program(f"{job.model.title} in PyTorch.", sections, _LIBRARIES, main)


def emit_training(job: Job, steps: int, *, clock: bool = False) -> str:
    """Return the program with a main part that trains and times `steps` steps; with `clock`, see `training`."""
    threads = [f"torch.set_num_{pool}threads({job.workload.threads})" for pool in ("", "interop_")]
    synchronize = "torch.cuda.synchronize()" if _kind(job) == "cuda" else ""
    return emit(job, training(job, steps, threads, synchronize, clock=clock))


def emit_network(job: Job) -> str:
    """Return the program with a main part that makes `network`, with the weights of the .npz file beside it."""
    return emit(job, NETWORK)


def _constants(job: Job) -> Iterator[str]:
    """Yield the constants and settings."""
    on_gpu = _kind(job) == "cuda"
    yield f"DTYPE = torch.{job.dtype}"
    yield f'DEVICE = "{"cuda:0" if job.device == "cuda" else job.device}"'
    yield f"SEED = {job.seed}"
    if on_gpu:
        yield ""
        yield "torch.backends.cudnn.benchmark = True"
    if on_gpu or job.workload.precision == "tf32":
        allowed = job.workload.precision == "tf32"
        yield f"torch.backends.cudnn.allow_tf32 = {allowed}"
        yield f'torch.set_float32_matmul_precision("{"high" if allowed else "highest"}")'
    if "math_attention" in job.variants:
        yield ""
        yield "# Scores, softmax and values one after the other, without PyTorch's fused kernels."
        yield "torch.backends.cuda.enable_flash_sdp(False)  # on the CPU as well"
        yield "torch.backends.cuda.enable_mem_efficient_sdp(False)"
        yield "torch.backends.cuda.enable_cudnn_sdp(False)"


def _state(job: Job) -> str:
    lines = ["@dataclass", "class State:", "    model: nn.Module"]
    if not job.workload.is_forward_pass:
        lines += ["    optimizer: torch.optim.Optimizer"]
        if job.workload.optimizer.has_schedule:
            lines += ["    step: int = 0"]
        if "cudagraph" in job.variants:
            lines += ['    graph: "torch.cuda.CUDAGraph | None" = None', "    batch: tuple = ()"]
            lines += ['    loss: "torch.Tensor | None" = None']
    return "\n".join(lines)


def _optimizer(optimizer: Optimizer, variants: Sequence[str] = ()) -> Iterator[str]:
    """Yield the functions that make the optimizer and compute its learning rate."""
    lines = ["def make_optimizer(model):"]
    options = [f"lr={optimizer.learning_rate!r}", *_options(optimizer)]
    if "foreach" in variants:
        options.append("foreach=True")
    if "cudagraph" in variants and optimizer.name == "rmsprop":
        options.append("capturable=True")  # counts its steps on the device
    parameters = "model.parameters()"
    if optimizer.name == "adamw":
        lines += [
            "    decayed = [weight for weight in model.parameters() if weight.ndim > 1]",
            "    others = [weight for weight in model.parameters() if weight.ndim <= 1]",
            "    groups = [",
            f'        {{"params": decayed, "weight_decay": {optimizer.weight_decay!r}}},',
            '        {"params": others, "weight_decay": 0.0},',
            "    ]",
        ]
        parameters = "groups"
    kind = {"adam": "Adam", "adamw": "AdamW", "rmsprop": "RMSprop"}.get(optimizer.name, "SGD")
    yield "\n".join([*lines, *wrapped(f"    return torch.optim.{kind}(", [parameters, *options])])
    if optimizer.has_schedule:
        yield "\n".join(schedule(optimizer))


def _options(optimizer: Optimizer) -> Iterator[str]:
    """Yield the arguments in which an optimizer differs from PyTorch's defaults, except for the learning rate."""
    if optimizer.name == "rmsprop":
        yield f"alpha={RMSPROP_DECAY!r}"
        yield f"eps={RMSPROP_EPSILON!r}"
    if optimizer.betas not in (None, ADAM_BETAS):
        yield f"betas={optimizer.betas!r}"
    if optimizer.momentum:
        yield f"momentum={optimizer.momentum!r}"
    if optimizer.weight_decay and optimizer.name != "adamw":
        yield f"weight_decay={optimizer.weight_decay!r}"
    if optimizer.name == "nesterov" and optimizer.momentum:  # PyTorch rejects it without momentum
        yield "nesterov=True"


def _setup(job: Job, network: NetworkCode) -> Iterator[str]:
    """Yield the functions that make the state and start again."""
    is_forward_pass = job.workload.is_forward_pass
    made = ["model", *([] if is_forward_pass else ["make_optimizer(model)"])]
    placed = ["DEVICE", "DTYPE", *(["memory_format=torch.channels_last"] if "channels_last" in job.variants else [])]
    module = f"Network().to({', '.join(placed)})"
    yield "\n".join([
        "def setup(weights=None):",
        '    """Return the start of a training, from these weights (arrays by name) if given."""',
        "    torch.manual_seed(SEED)",
        *(
            ["    model = DistributedDataParallel(", f"        {module}", "    )"]
            if job.workload.replicas > 1
            else [f"    model = {module}{'.eval()' if is_forward_pass else ''}"]
        ),
        f"    state = State({', '.join(made)})",
        "    if weights is not None:",
        "        reset(state, weights)",
        "    return state",
    ])  # fmt: skip
    restart = (
        [
            "    for buffers in state.optimizer.state.values():",
            "        for buffer in buffers.values():",
            "            buffer.zero_()",
        ]
        if not is_forward_pass
        else []
    )
    if not is_forward_pass and job.workload.optimizer.has_schedule:
        restart.append("    state.step = step")
    yield "\n".join([
        "def reset(state, weights, step=0):",
        '    """Start again from these weights, in place, and seed dropout."""',
        f"    tensors = {network.named(f'{_module(job)}.state_dict()')}",
        "    for name, array in weights.items():",
        "        tensors[name].copy_(torch.from_numpy(array))",
        *restart,
        "    torch.manual_seed(SEED)",
    ])  # fmt: skip


def _module(job: Job) -> str:
    """Return the expression of the network itself."""
    return "state.model.module" if job.workload.replicas > 1 else "state.model"


def _load(job: Job) -> str:
    model, name = job.model, batch_name(job.model)
    options = ["DEVICE", "DTYPE" if model.vocabulary_size is None else "torch.int64"]
    if "channels_last" in job.variants and len(model.input_shape) == 3:
        options.append("memory_format=torch.channels_last")
    return "\n".join([
        *start_of_load(model),
        *wrapped(f"    {name} = torch.from_numpy({name}).to(", options),
        f"    return {name}, torch.from_numpy(labels).to(DEVICE)",
    ])  # fmt: skip


def _forward_pass(job: Job) -> Iterator[str]:
    lines = ["@torch.inference_mode()", "def forward_pass(state, batch):", "    return state.model(batch[0])"]
    if _has_autocast(job):
        lines[-1:] = [
            '    """Compute the logits of a batch."""',
            f'    with torch.autocast("{_kind(job)}", dtype=torch.bfloat16):',
            "        return state.model(batch[0])",
        ]
    if "compile" in job.variants:
        lines.insert(1, _compiled(job))
    yield "\n".join(lines)


def _has_autocast(job: Job) -> bool:
    return job.workload.precision == "bf16" and job.dtype == "float32"


def _kind(job: Job) -> str:
    """Return the device without its number."""
    return job.device.partition(":")[0]


def _compiled(job: Job) -> str:
    """Return the decorator that compiles a function.

    In float64, compiled code may read a max-pool's gradient before it is written, as zero:
    https://github.com/pytorch/pytorch/issues/185509, torch 2.13. This happens only if the compiler chooses the memory
    layout of convolutions. Timed steps use float32, which is not affected.
    """
    options = ', options={"layout_optimization": False}' if job.dtype == "float64" else ""
    return f"@torch.compile(dynamic=False{options})"


def _training_step(job: Job) -> Iterator[str]:
    """Yield the loss, and the step that uses it."""
    yield "\n".join(_loss(job))
    optimizer = job.workload.optimizer
    step = [
        "    state.optimizer.zero_grad()",
        "    loss = compute_loss(state.model, inputs, labels)",
        "    loss.backward()",
        *([f"    {_clip(optimizer)}"] if optimizer.gradient_clip else []),
        "    state.optimizer.step()",
    ]
    if "cudagraph" in job.variants:
        clip = f"{_clip(optimizer)}\n        " if optimizer.gradient_clip else ""
        yield _CAPTURE.format(warmup=WARMUP_STEPS, clip=clip)
        return
    masks = job.dropout == "given"
    rate = (
        ["    for group in state.optimizer.param_groups:", '        group["lr"] = learning_rate(state.step)']
        if optimizer.has_schedule
        else []
    )
    yield "\n".join([
        "def train_step(state, batch):",
        '    """Train on a batch; return the loss before the update."""',
        f"    inputs, labels{', masks' if masks else ''} = batch",
        *(["    set_masks(state, masks)"] if masks else []),
        *rate,
        *step,
        *(["    state.step += 1"] if rate else []),
        "    return loss",
    ])  # fmt: skip


def _clip(optimizer: Optimizer) -> str:
    return f"nn.utils.clip_grad_norm_(state.model.parameters(), {optimizer.gradient_clip!r})"


def _loss(job: Job) -> Iterator[str]:
    model = job.model
    smoothing = f", label_smoothing={model.label_smoothing!r}" if model.label_smoothing else ""
    if "compile" in job.variants:
        yield _compiled(job)
    yield "def compute_loss(model, inputs, labels):"
    logits = "model(inputs)"
    if _has_autocast(job):
        yield f'    with torch.autocast("{_kind(job)}", dtype=torch.bfloat16):'
        yield "        logits = model(inputs)"
        logits = "logits.float()"
    if model.label_shape:  # a prediction at each position
        if not _has_autocast(job):
            yield f"    logits = {logits}"
            logits = "logits"
        yield f"    return F.cross_entropy({logits}.flatten(0, 1), labels.flatten(){smoothing})"
    else:
        yield f"    return F.cross_entropy({logits}, labels{smoothing})"


_CAPTURE = '''def capture(state, batch):
    """Capture a step in a CUDA graph, which reads this batch's tensors; trains a few steps.

    https://docs.pytorch.org/docs/stable/notes/cuda.html#whole-network-capture
    """
    state.batch = tuple(tensor.clone() for tensor in batch)

    def step():
        loss = compute_loss(state.model, *state.batch)
        loss.backward()
        {clip}state.optimizer.step()
        return loss.detach()

    # Compiling and choosing algorithms must happen before the capture, on another stream.
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range({warmup}):
            state.optimizer.zero_grad()
            step()
    torch.cuda.current_stream().wait_stream(stream)

    state.optimizer.zero_grad()  # the graph's memory has the gradients; a replay overwrites them
    state.graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(state.graph):
        state.loss = step()


def train_step(state, batch):
    """Train on a batch; return the loss before the update, which the next step overwrites."""
    if state.graph is None:
        capture(state, batch)
    for fixed, tensor in zip(state.batch, batch):
        fixed.copy_(tensor)
    state.graph.replay()
    return state.loss
'''


def _weights(job: Job, network: NetworkCode) -> str:
    named = network.named(f"{_module(job)}.state_dict()")
    return "\n".join([
        "def weights(state):",
        '    """Return copies of weights and running statistics, as arrays by name."""',
        f"    tensors = {named}",
        "    return {name: tensor.numpy(force=True).copy() for name, tensor in tensors.items()}",
    ])  # fmt: skip


def emit_layer(layers: Sequence[Layer], shape: Shape, main: MainPart = NO_MAIN) -> str:
    """Return the program of layers alone, for inputs of `shape`: the class `Network`, and `canonical` if needed."""
    network = NetworkCode(layers, shape)
    return program("Layers in PyTorch.", [network.text(), *network.names()], _LIBRARIES, main)


def emit_optimizer(optimizer: Optimizer) -> str:
    """Return the program of an optimizer alone: the function `make_optimizer`."""
    return program("An optimizer in PyTorch.", _optimizer(optimizer), _LIBRARIES, NO_MAIN)
