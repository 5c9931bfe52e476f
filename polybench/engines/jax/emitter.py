"""Writes the JAX program that the engine times: a network and its training step, as users of JAX and optax write them.

The network is that of `network_code`. optax 0.2.8 has the canonical formulas in `sgd` and, with `eps_in_sqrt=False`, in
`rmsprop`, and no state contains the learning rate. Its `adam` computes 1 - 0.999^t in float32, which loses digits: the
first steps are off by up to 1e-5, the whole tolerance of the parity check. This module does not import JAX.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from polybench.engines.jax.network_code import NetworkCode
from polybench.engines.job import Job
from polybench.engines.shared.main_part import NETWORK, NO_MAIN, MainPart, training
from polybench.engines.shared.program_text import batch_name, program, start_of_load
from polybench.networks.layers import Layer, Shape
from polybench.networks.optimizers import (
    ADAM_BETAS,
    ADAM_EPSILON,
    CLIP_EPSILON,
    RMSPROP_DECAY,
    RMSPROP_EPSILON,
    Optimizer,
)
from polybench.networks.source_text import wrapped

_LIBRARIES = (
    *("import jax", "import jax.numpy as jnp", "import numpy as np", "import optax", "from jax import lax"),
    "from jax.sharding import Mesh, NamedSharding, PartitionSpec",
)


def emit(job: Job, main: MainPart = NO_MAIN, threads: int = 0) -> str:
    """Return the program of a job; raises EngineUnavailable for a layer that JAX lacks.

    `DTYPE` and `DEVICE` are at its top. Its functions are those of a program of polybench: `setup`, `reset`, `load`,
    `train_step` (for a forward pass `forward_pass`) and `weights`. With given dropout masks, they are a part of the
    batch. `main` is its main part; with `threads`, the program sets their number itself.
    """
    network = _network(job, job.model.layers, job.model.input_shape)
    is_forward_pass = job.workload.is_forward_pass
    sections = [
        "\n".join(_constants(job, threads)),
        network.text(job.model.summary),
        *([] if is_forward_pass else _optimizer(job.workload.optimizer)),
        *_setup(job, network),
        _load(job),
        *(_forward_pass(network) if is_forward_pass else _training_step(job, network)),
        _weights(network),
    ]
    return program(f"{job.model.title} in JAX.", sections, _LIBRARIES, main)


def emit_training(job: Job, steps: int, *, clock: bool = False) -> str:
    """Return the program with a main part that trains and times `steps` steps; with `clock`, see `training`."""
    synchronize = "" if job.device == "cpu" else "jax.block_until_ready(state)"
    wait = "jax.block_until_ready((state, loss))"
    main = training(job, steps, (), synchronize, wait=wait, clock=clock)
    return emit(job, main, job.workload.threads)


def emit_network(job: Job) -> str:
    """Return the program with a main part that makes the `state` of `network` from the .npz file beside it."""
    text = NETWORK.text.replace("network = setup(", "state = setup(").removesuffix(".model")
    return emit(job, NETWORK._replace(text=text))


def emit_layer(layers: Sequence[Layer], shape: Shape, job: Job) -> str:
    """Return the program of layers alone, for inputs of `shape`: the function `network`, in the precision of a job."""
    sections = [f"DTYPE = jnp.{job.dtype}", _network(job, layers, shape).text()]
    return program("Layers in JAX.", sections, _LIBRARIES, NO_MAIN)


def _network(job: Job, layers: Sequence[Layer], shape: Shape) -> NetworkCode:
    return NetworkCode(
        layers,
        shape,
        given_masks=job.dropout == "given",
        is_bf16=job.workload.precision == "bf16" and job.dtype == "float32",
        is_float64=job.dtype == "float64",
    )


def _constants(job: Job, threads: int) -> Iterator[str]:
    """Yield the settings and constants."""
    if threads:
        yield f'os.environ["NPROC"] = "{threads}"  # read at the first use of a device'
    precision = "tensorfloat32" if job.workload.precision == "tf32" else "float32"
    yield f'jax.config.update("jax_default_matmul_precision", "{precision}")  # of a GPU'
    if job.dtype == "float64":
        yield 'jax.config.update("jax_enable_x64", True)'
    yield ""
    yield f"DTYPE = jnp.{job.dtype}"
    yield from _devices(job)
    yield f"SEED = {job.seed}"


def _devices(job: Job) -> Iterator[str]:
    kind, _, number = job.device.partition(":")
    first, count = int(number or 0), job.workload.replicas
    if count == 1:
        yield f'DEVICE = jax.devices("{kind}")[{first}]'
        return
    yield f'MESH = Mesh(jax.devices("{kind}")[{first or ""}:{first + count}], ("replicas",))'
    yield "DEVICE = NamedSharding(MESH, PartitionSpec())  # all devices have all weights"
    yield 'SHARDS = NamedSharding(MESH, PartitionSpec("replicas"))  # of a batch'


def _optimizer(optimizer: Optimizer) -> Iterator[str]:
    """Yield the optimizer, or with a schedule the function that makes it, and what it needs."""
    if optimizer.gradient_clip:
        yield _CLIP
    if optimizer.betas:
        yield _ADAM
    if optimizer.name == "adamw":
        yield _IS_MATRIX
    if not optimizer.has_schedule:
        yield "\n".join(_rule(optimizer, "optimizer = ", repr(optimizer.learning_rate)))
        return
    yield "\n".join(_schedule(optimizer))
    yield "\n".join(["def make_optimizer(rate):", *_rule(optimizer, "    return ", "rate")])


def _rule(optimizer: Optimizer, start: str, rate: str) -> list[str]:
    """Return the statement that begins with `start` and makes the optimizer."""
    decay, parts = f"{optimizer.weight_decay!r}", []
    if optimizer.gradient_clip:
        parts.append(f"clip_by_global_norm({optimizer.gradient_clip!r})")
    if optimizer.weight_decay and optimizer.name != "adamw":
        parts.append(f"optax.add_decayed_weights({decay})")
    if optimizer.betas is not None:
        betas = "" if optimizer.betas == ADAM_BETAS else ", ".join(map(repr, optimizer.betas))
        parts.append(f"scale_by_adam({betas})")
    if optimizer.name == "adamw":
        parts.append(f"optax.add_decayed_weights({decay}, is_matrix)")
    options = [rate]
    if optimizer.momentum is not None:
        options.append(f"momentum={optimizer.momentum!r}")
    if optimizer.name == "nesterov":
        options.append("nesterov=True")
    if optimizer.name == "rmsprop":
        options += [f"decay={RMSPROP_DECAY!r}", f"eps={RMSPROP_EPSILON!r}", "eps_in_sqrt=False"]
    kind = {"adam": "scale_by_learning_rate", "adamw": "scale_by_learning_rate", "rmsprop": "rmsprop"}
    rule = f"optax.{kind.get(optimizer.name, 'sgd')}("
    if not parts:
        return wrapped(f"{start}{rule}", options)
    return wrapped(f"{start}optax.chain(", [*parts, f"{rule}{', '.join(options)})"])


def _schedule(optimizer: Optimizer) -> Iterator[str]:
    rate, warmup, steps = optimizer.learning_rate, optimizer.warmup_steps, optimizer.cosine_steps
    first = f"{rate!r} / {warmup + 1}"
    if warmup and steps:
        numbers = [f"warmup_steps={warmup}", f"decay_steps={steps}", f"end_value={optimizer.min_learning_rate!r}"]
        options = [f"init_value={first}", f"peak_value={rate!r}", *numbers]
        yield from wrapped("learning_rate = optax.warmup_cosine_decay_schedule(", options)
    elif steps:
        low = [f"alpha={optimizer.min_learning_rate!r} / {rate!r}"] if optimizer.min_learning_rate else []
        yield from wrapped("learning_rate = optax.cosine_decay_schedule(", [repr(rate), repr(steps), *low])
    elif warmup:
        yield from wrapped("learning_rate = optax.linear_schedule(", [first, repr(rate), repr(warmup)])
    else:
        yield "learning_rate = optax.join_schedules("
        yield "    ["
        yield f"        optax.constant_schedule({rate!r}),"
        yield from (f"        optax.constant_schedule({later!r})," for _, later in optimizer.lr_schedule)
        yield "    ],"
        yield from wrapped("    [", [repr(step) for step, _ in optimizer.lr_schedule], "],")
        yield ")"


_CLIP = f'''def clip_by_global_norm(largest):
    """Clip as PyTorch does; optax does not add the small number."""

    def update(gradients, state, params=None):
        factor = jnp.minimum(1.0, largest / (optax.global_norm(gradients) + {CLIP_EPSILON!r}))
        return jax.tree.map(lambda g: g * factor, gradients), state

    return optax.GradientTransformation(lambda params: optax.EmptyState(), update)'''
_ADAM = f'''def scale_by_adam(b1={ADAM_BETAS[0]!r}, b2={ADAM_BETAS[1]!r}):
    """Adam with all digits of 1 - b**t, of which optax loses some in float32."""

    def update(gradients, state, params=None):
        t = state.count + 1
        scale_m, scale_v = (-jnp.expm1(t * math.log(b)) for b in (b1, b2))
        m = jax.tree.map(lambda m, g: b1 * m + (1 - b1) * g, state.mu, gradients)
        v = jax.tree.map(lambda v, g: b2 * v + (1 - b2) * g**2, state.nu, gradients)

        def direction(m, v):
            return (m / scale_m) / (jnp.sqrt(v / scale_v) + {ADAM_EPSILON!r})

        return jax.tree.map(direction, m, v), optax.ScaleByAdamState(t, m, v)

    return optax.GradientTransformation(optax.scale_by_adam().init, update)'''
_IS_MATRIX = '''def is_matrix(params):
    """Weights that decay: neither biases nor the weights of norms."""
    return jax.tree.map(lambda weight: weight.ndim > 1, params)'''


def _setup(job: Job, network: NetworkCode) -> Iterator[str]:
    """Yield the functions that make the state and start again."""
    optimizer, is_forward_pass = job.workload.optimizer, job.workload.is_forward_pass
    yield from network.initial(job.model.initialization)
    yield "\n".join([
        "def setup(weights=None):",
        '    """Return the start of a training, from these weights (arrays by name) if given."""',
        "    state = {}",
        "    reset(state, initial_weights() if weights is None else weights)",
        "    return state",
    ])  # fmt: skip
    running, buffers = [], []
    if network.has_statistics:
        running = [
            '    ends = (".running_mean", ".running_variance")',
            "    buffers = {name: params.pop(name) for name in weights if name.endswith(ends)}",
        ]
        buffers.append("buffers")
    if network.has_dropout:
        buffers.append('{"key": jax.random.key(SEED)}')
    start = ['"params": params', *([f'"buffers": {" | ".join(buffers)}'] if buffers else [])]
    if not is_forward_pass:
        made = "make_optimizer(learning_rate(step))" if optimizer.has_schedule else "optimizer"
        start += [f'"optimizer": {made}.init(params)', *(['"step": np.int32(step)'] if optimizer.has_schedule else [])]
    yield "\n".join([
        "def reset(state, weights, step=0):",
        '    """Start again from these weights, in place."""',
        "    params = {name: np.asarray(array, DTYPE) for name, array in weights.items()}",
        *running,
        *wrapped("    start = {", start, "}"),
        *([] if is_forward_pass else ["    # Copies, since a step reuses the memory of its state."]),
        "    state.update(jax.device_put(start, DEVICE, may_alias=False))",
    ])  # fmt: skip


def _load(job: Job) -> str:
    name, dtype = batch_name(job.model), "DTYPE" if job.model.vocabulary_size is None else "np.int32"
    placed = "SHARDS" if job.workload.replicas > 1 else "DEVICE"
    return "\n".join([
        *start_of_load(job.model),
        f"    return jax.device_put(({name}.astype({dtype}), labels.astype(np.int32)), {placed})",
    ])  # fmt: skip


def _forward_pass(network: NetworkCode) -> Iterator[str]:
    arguments = ['state["params"]', *(['state["buffers"]'] if network.has_buffers else []), "inputs"]
    logits = "[0]" if network.has_buffers else ""
    yield f"@jax.jit\ndef compute_logits(state, inputs):\n    return network({', '.join(arguments)}){logits}"
    yield "def forward_pass(state, batch):\n    return compute_logits(state, batch[0])"


def _training_step(job: Job, network: NetworkCode) -> Iterator[str]:
    """Yield the loss, and the step that uses it."""
    yield "\n".join(_cross_entropy(job.model.label_smoothing))
    has_buffers, has_schedule = network.has_buffers, job.workload.optimizer.has_schedule
    masks = ["masks"] if job.dropout == "given" and network.has_dropout else []
    buffers, mode = (["buffers"], ["training=True"]) if has_buffers else ([], [])
    cast = ".astype(DTYPE)" if job.workload.precision == "bf16" and job.dtype == "float32" else ""
    returned = f"cross_entropy(logits{cast}, labels)"
    yield "\n".join([
        f"def compute_loss({', '.join(['params', *buffers, 'inputs', 'labels', *masks])}):",
        f"    logits{', buffers' if has_buffers else ''} = network("
        f"{', '.join(['params', *buffers, 'inputs', *masks, *mode])})",
        f"    return {returned}{', buffers' if has_buffers else ''}",
    ])  # fmt: skip
    sharding = ", out_shardings=DEVICE" if job.workload.replicas > 1 else ""
    gradient = "jax.value_and_grad(compute_loss, has_aux=True)" if has_buffers else "jax.value_and_grad(compute_loss)"
    arguments = ["params", *(['state["buffers"]'] if has_buffers else []), "inputs", "labels", *masks]
    new = ['"params": optax.apply_updates(params, updates)', *(['"buffers": buffers'] if has_buffers else [])]
    new += ['"optimizer": optimizer_state', *(['"step": state["step"] + 1'] if has_schedule else [])]
    yield "\n".join([
        f"@partial(jax.jit, donate_argnums=0{sharding})",
        f"def update(state, {', '.join(['inputs', 'labels', *masks])}):",
        '    """Return the new state, in the memory of the old one, and the loss before."""',
        '    params = state["params"]',
        # Not of an integer, of which optax makes float32 also in a float64 program.
        *(['    optimizer = make_optimizer(learning_rate(state["step"].astype(DTYPE)))'] if has_schedule else []),
        f"    compute = {gradient}",
        *wrapped(f"    {'(loss, buffers)' if has_buffers else 'loss'}, gradients = compute(", arguments),
        *wrapped("    updates, optimizer_state = optimizer.update(", ["gradients", 'state["optimizer"]', "params"]),
        "    new = {",
        *(f"        {item}," for item in new),
        "    }",
        "    return new, loss",
    ])  # fmt: skip
    yield "\n".join([
        "def train_step(state, batch):",
        '    """Train on a batch; return the loss before the update."""',
        "    new, loss = update(state, *batch)",
        "    state.update(new)",
        "    return loss",
    ])  # fmt: skip


def _cross_entropy(smoothing: float) -> Iterator[str]:
    yield "def cross_entropy(logits, labels):"
    if smoothing:
        yield "    targets = jax.nn.one_hot(labels, logits.shape[-1], dtype=logits.dtype)"
        yield f"    targets = optax.smooth_labels(targets, {smoothing!r})"
        yield "    return optax.softmax_cross_entropy(logits, targets).mean()"
    else:
        yield "    return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()"


def _weights(network: NetworkCode) -> str:
    found = 'state["params"] | state["buffers"]' if network.has_statistics else 'state["params"]'
    condition = ' if name != "key"' if network.has_statistics and network.has_dropout else ""
    return "\n".join([
        "def weights(state):",
        f'    """Return copies of weights{" and running statistics" if network.has_statistics else ""} as arrays."""',
        f"    tensors = {found}",
        *wrapped("    return {", [f"name: np.array(one) for name, one in tensors.items(){condition}"], "}"),
    ])  # fmt: skip
