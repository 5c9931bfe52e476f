"""The parts that programs in TensorFlow and in Keras have in common: settings, optimizer, weights.

This module does not import Keras. The network is that of `keras_network_code`. Keras 3.15 differs in seven places from
the formulas of `networks.optimizers`, so the programs have classes of their own for what is not the same:

- `SGD` stores V = -rate v: the same weights while the rate is constant. If the rate changes, V is rescaled.
- `Adam` adds epsilon to the root of v before the bias correction: an epsilon 32 times as large in the first
  step. It computes 1 - 0.999^t in the weights' dtype, which in float32 is 5e-5 off in the first step.
- `RMSprop` adds epsilon inside the root.
- `weight_decay` shrinks the weights separately instead of adding to the gradient: the formula of AdamW only.
- `global_clipnorm` divides by the norm without the 1e-6 of PyTorch.
- `Adam` and `RMSprop` on TensorFlow, for an embedding row that occurs several times in a batch, add the
  squares of its gradients instead of squaring their sum (docs/upstream/keras_adam.md).
- A Python float is rounded to float32 even if the weights are float64; `np.float64` is not.

`SGD(nesterov=True)` has the canonical form.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from polybench.engines.job import Job
from polybench.engines.shared import program_text
from polybench.engines.shared.keras_network_code import KerasNetwork
from polybench.engines.shared.main_part import NO_MAIN, MainPart
from polybench.engines.shared.program_text import batch_name, schedule, start_of_load
from polybench.networks import layers as spec
from polybench.networks.model import Model
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
    *("import keras", "import numpy as np", "import tensorflow as tf", "import torch"),
    "from keras import layers, ops",
)


def program(
    job: Job,
    product: str,
    sections: Sequence[str],
    main: MainPart,
    *,
    environment: Sequence[str] = (),
    constants: Sequence[str] = (),
    settings: Sequence[str] = (),
) -> str:
    """Return a program of these sections, with its imports and constants.

    `environment` are lines before Keras is imported; `settings` are lines after the constants.
    """
    top = [
        f'DTYPE = "{job.dtype}"',
        *constants,
        f"SEED = {job.seed}",
        "",
        "keras.config.set_floatx(DTYPE)",
        *(['keras.config.set_dtype_policy("mixed_bfloat16")'] if _is_mixed(job) else []),
        *settings,
    ]
    title = f"{job.model.title} in {product}."
    return program_text.program(title, ["\n".join(top), *sections], _LIBRARIES, main, environment)


def _is_mixed(job: Job) -> bool:
    return job.workload.precision == "bf16" and job.dtype == "float32"


def network_code(job: Job) -> KerasNetwork:
    """Return the network of a job."""
    share = job.workload.batch_size // job.workload.replicas
    return KerasNetwork(
        job.model.layers,
        job.model.input_shape,
        mask_batch_size=share if job.dropout == "given" else None,
        variants=job.variants,
        float64=job.dtype == "float64",
        input_dtype="int32" if job.model.vocabulary_size is not None else "",
    )


def layer_program(
    layers: Sequence[spec.Layer],
    shape: spec.Shape,
    dtype: str,
    variants: Sequence[str] = (),
    batch_size: int | None = None,
    main: MainPart = NO_MAIN,
) -> str:
    """Return the program of layers alone, for inputs of `shape` and `dtype`: `make_network`, `assign` and `variables`.

    With a batch size, dropout has given masks.
    """
    network = KerasNetwork(
        layers, shape, mask_batch_size=batch_size, variants=variants, float64=dtype == "float64", input_dtype=dtype
    )
    return program_text.program("Layers in Keras.", [network.text(), _ASSIGN, *network.variables()], _LIBRARIES, main)


def has_given_masks(job: Job) -> bool:
    """Return True if the masks of dropout are an argument of the step."""
    return job.dropout == "given" and job.model.is_random


def state(job: Job, *fields: str) -> str:
    """Return the class of a training's state, with these fields after the model and the optimizer."""
    is_forward_pass = job.workload.is_forward_pass
    lines = ["@dataclass", "class State:", "    model: keras.Model"]
    if not is_forward_pass:
        lines.append("    optimizer: keras.Optimizer")
    lines += [f"    {field}" for field in fields]
    if _restarts_dropout(job):
        lines.append("    start: list")
    if has_schedule(job):
        lines += ["    step: int = 0", f"    rate: float = {job.workload.optimizer.learning_rate!r}"]
    return "\n".join(lines)


def _restarts_dropout(job: Job) -> bool:
    return job.model.is_random and job.dropout == "own" and not job.workload.is_forward_pass


def has_schedule(job: Job) -> bool:
    """Return True if a step sets the learning rate."""
    return job.workload.optimizer.has_schedule and not job.workload.is_forward_pass


def loss(model: Model) -> Iterator[str]:
    """Yield the mean cross-entropy of logits, over inputs and positions, with the model's label smoothing."""
    if not model.label_smoothing:
        yield "loss_function = keras.losses.SparseCategoricalCrossentropy(from_logits=True)"
        return
    yield f'''class SmoothedCrossentropy(keras.losses.CategoricalCrossentropy):
    """Keras's cross-entropy with label smoothing, which needs one-hot labels."""

    def call(self, labels, logits):
        labels = ops.one_hot(ops.cast(labels, "int32"), {model.classes}, dtype=logits.dtype)
        return super().call(labels, logits)'''
    arguments = ["from_logits=True", f"label_smoothing={model.label_smoothing!r}"]
    yield "\n".join(wrapped("loss_function = SmoothedCrossentropy(", arguments))


def setup(job: Job, scope: str, made: Sequence[str], *compiled: str) -> str:
    """Return the function that makes the state, in the context manager `scope` if there is one.

    `made` are the fields of `State`, `compiled` are lines that prepare the model.
    """
    is_forward_pass = job.workload.is_forward_pass
    lines = ["model = make_network()", *([] if is_forward_pass else ["optimizer = make_optimizer(model)"])]
    fields = ["model", *([] if is_forward_pass else ["optimizer"]), *made]
    copied = []
    if _restarts_dropout(job):
        copied = ["    start = [(one, one.numpy().copy()) for one in model.non_trainable_variables]"]
        fields.append("start")
    if scope:
        lines = [f"with {scope}:", *(f"    {line}" for line in lines)]
    return "\n".join([
        "def setup(weights=None):",
        '    """Return the start of a training, from these weights (arrays by name) if given."""',
        "    keras.utils.set_random_seed(SEED)",
        *(f"    {line}" for line in [*lines, *compiled]),
        *copied,
        *wrapped("    state = State(", fields),
        "    if weights is not None:",
        "        reset(state, weights)",
        "    return state",
    ])  # fmt: skip


def reset(job: Job, backend: str = "") -> str:
    """Return the function that starts again; on the backend "torch", dropout draws from PyTorch's own generator."""
    lines = ["def reset(state, weights, step=0):", '    """Start again from these weights, in place."""']
    if _restarts_dropout(job):
        lines += [
            "    for variable, value in state.start:  # also the generators of dropout",
            "        variable.assign(value.copy())",
            *(["    torch.manual_seed(SEED)"] if backend == "torch" else []),
        ]
    lines.append("    assign(state.model, weights)")
    if not job.workload.is_forward_pass:
        lines += [
            "    for variable in state.optimizer.variables:",
            "        if variable is not state.optimizer.learning_rate:",
            "            variable.assign(np.zeros(variable.shape))",
        ]
    return "\n".join([*lines, *(["    state.step = step"] if has_schedule(job) else [])])


def load(job: Job, to_device: str, *converted: str, scope: str = "") -> str:
    """Return the function that moves a batch to the device; `to_device` makes a tensor of an array.

    `converted` are lines before it.
    """
    model, name, last, lines = job.model, batch_name(job.model), "", list[str]()
    if len(model.input_shape) == 3:
        last = ", channels last"
        lines = [f'    {name} = np.array({name}.transpose(0, 2, 3, 1), DTYPE, order="C")']
    elif model.vocabulary_size is None:
        lines = [f"    {name} = {name}.astype(DTYPE)"]
    returned = f"return {to_device}({name}), {to_device}(labels)"
    return "\n".join([
        *start_of_load(model, last),
        *lines,
        *converted,
        *([f"    with {scope}:", f"        {returned}"] if scope else [f"    {returned}"]),
    ])  # fmt: skip


def set_masks(job: Job, network: KerasNetwork) -> Iterator[str]:
    """Yield the function that sets given masks; a replica has its share of them."""
    if not has_given_masks(job):
        return
    count = job.workload.replicas
    assigned = [f"            layer.mask.assign(masks[{network.renamed}])"]
    if count > 1:
        assigned = [
            f"            mask = masks[{network.renamed}]",
            f"            shares = mask.reshape({count}, -1, *mask.shape[1:])",
            "            for copy, share in zip(layer.mask.value.values, shares, strict=True):",
            "                copy.assign(share)",
        ]
    yield "\n".join([
        "def set_masks(state, masks):",
        '    """Set the masks of the next step, channels last, by the names of dropout layers."""',
        "    for layer in state.model.layers:",
        "        if isinstance(layer, GivenDropout):",
        *assigned,
    ])  # fmt: skip


def step_start(job: Job) -> list[str]:
    """Return the first lines of `train_step`: masks and learning rate."""
    lines = ["    inputs, labels, masks = batch", "    set_masks(state, masks)"] if has_given_masks(job) else []
    if has_schedule(job):
        lines += ["    set_learning_rate(state, learning_rate(state.step))", "    state.step += 1"]
    return lines


def inputs_of_step(job: Job) -> str:
    """Return the arguments of a compiled step."""
    return "inputs, labels" if has_given_masks(job) else "*batch"


_ASSIGN = '''def assign(model, weights):
    """Set the variables to these arrays."""
    for name, (variable, view) in variables(model).items():
        array = weights[name]
        positions = view(np.arange(array.size).reshape(variable.shape))
        value = np.empty(array.size, array.dtype)
        value[positions.ravel()] = array.ravel()
        variable.assign(value.reshape(variable.shape))'''
WEIGHTS = f'''{_ASSIGN}


def weights(state):
    """Return copies of weights and running statistics, as arrays by name."""
    return {{
        name: np.array(view(variable.numpy()), order="C")
        for name, (variable, view) in variables(state.model).items()
    }}'''


def optimizer(job: Job, backend: str) -> Iterator[str]:
    """Yield the class of the optimizer where Keras's is another one, `make_optimizer`, and the learning rate.

    On the backend "torch", the class updates all weights at once, as Keras's own do there.
    """
    chosen = job.workload.optimizer
    number = _exact if job.dtype == "float64" else repr
    is_exact = chosen.name in ("sgd", "momentum", "nesterov") and not chosen.weight_decay
    if not is_exact or chosen.gradient_clip:
        yield "\n".join(_class(job, backend, number))
    name = _CLASSES.get(chosen.name, "SGD")
    module = "" if not is_exact or chosen.gradient_clip else "keras.optimizers."
    arguments = [number(chosen.learning_rate), *_options(chosen, number)]
    lines = ["def make_optimizer(model):", *wrapped(f"    optimizer = {module}{name}(", arguments)]
    if vectors := _vectors(job.model) if chosen.name == "adamw" else []:
        lines.append(f"    optimizer.exclude_from_weight_decay(var_names=[{', '.join(vectors)}])")
    lines += ["    optimizer.build(model.trainable_variables)", "    return optimizer"]
    yield "\n".join(lines)
    if chosen.has_schedule:
        yield "\n".join(schedule(chosen))
        yield "\n".join(_set_learning_rate(chosen, "np.float64(rate)" if job.dtype == "float64" else "rate"))


def _exact(value: float) -> str:
    return f"np.float64({value!r})"


_CLASSES = {"adam": "Adam", "adamw": "Adam", "rmsprop": "RMSprop"}


def _options(chosen: Optimizer, number: Callable[[float], str]) -> Iterator[str]:
    match chosen.name:
        case "adam" | "adamw":
            if chosen.betas not in (None, ADAM_BETAS):
                yield f"beta_1={chosen.betas[0]!r}"
                yield f"beta_2={chosen.betas[1]!r}"
            yield f"epsilon={ADAM_EPSILON!r}"
            if chosen.name == "adamw":  # Keras's AdamW is its Adam with this setting
                yield f"weight_decay={number(chosen.weight_decay)}"
        case "rmsprop":
            yield f"rho={RMSPROP_DECAY!r}"
            yield f"epsilon={RMSPROP_EPSILON!r}"
        case _:
            if chosen.momentum:
                yield f"momentum={number(chosen.momentum)}"
            if chosen.name == "nesterov":
                yield "nesterov=True"


def _vectors(model: Model) -> list[str]:
    """Return Keras's names of tensors with one axis, which AdamW does not decay."""
    named = [layer for layer in spec.walk(model.layers) if isinstance(layer, spec.Named)]
    norms = [layer for layer in named if layer.is_norm]
    found = {
        "bias": any(name.endswith("bias") for layer in named if layer not in norms for name in layer.weight_shapes()),
        "gamma": bool(norms),
        "beta": any("bias" in layer.weight_shapes() for layer in norms),
        "token": any("token" in layer.weight_shapes() for layer in named),
    }
    return [f'"{name}"' for name, exists in found.items() if exists]


def _set_learning_rate(chosen: Optimizer, rate: str) -> Iterator[str]:
    yield "def set_learning_rate(state, rate):"
    yield f'    """Set the learning rate{", a factor of the velocities in Keras" if chosen.momentum else ""}."""'
    yield "    if rate != state.rate:"
    if chosen.momentum:
        yield "        for velocity in state.optimizer.momentums:"
        yield "            velocity.assign(velocity.numpy() * (rate / state.rate))"
    yield f"        state.optimizer.learning_rate = {rate}"
    yield "        state.rate = rate"


def _class(job: Job, backend: str, number: Callable[[float], str]) -> Iterator[str]:
    """Yield the lines of an optimizer's class."""
    chosen, at_once = job.workload.optimizer, backend == "torch"
    name = _CLASSES.get(chosen.name, "SGD")
    base = f"keras.optimizers.{name}"
    if at_once and name == "SGD":
        base = "type(keras.optimizers.SGD())"  # Keras's class for PyTorch
    decay = chosen.weight_decay if chosen.name != "adamw" else 0.0
    has_table = job.model.vocabulary_size is not None
    yield f"class {name}({base}):"
    first, *others = _differences(chosen, decay)
    yield from [f'    """{first}', "", f"    {' '.join(others)}", '    """'] if others else [f'    """{first}"""']
    if chosen.gradient_clip:
        yield ""
        largest, one = number(chosen.gradient_clip), number(1.0)
        yield "    def apply(self, grads, trainable_variables=None):"
        yield from _dense(backend, "grads", "[{} for one in grads]", "one") if has_table else ()
        yield from _CLIP.format(largest=largest, one=one, epsilon=CLIP_EPSILON).splitlines()
    if name != "SGD" or decay:
        yield ""
        decayed = (_DECAY_AT_ONCE if at_once else _DECAY).format(decay)
        for line in (_AT_ONCE if at_once else _EACH)[name].splitlines():
            if line.strip() == "# dense":
                yield from _dense(backend, "gradient") if has_table and not chosen.gradient_clip else ()
            elif line.strip() == "# decay":
                yield from [f"        {decayed}"] * bool(decay)
            else:
                yield line


def _dense(backend: str, variable: str, converted: str = "{}", one: str = "") -> Iterator[str]:
    """Yield the lines that add up repeated rows in an embedding's gradient, which only TensorFlow has.

    `keras.ops.convert_to_tensor` leaves them as they are. An unknown backend, "", may be TensorFlow.
    """
    call = f"convert_to_tensor({one or variable})"
    if backend == "tensorflow":
        yield f"        {variable} = {converted.format(f'tf.{call}')}"
    elif not backend:
        yield '        if keras.backend.backend() == "tensorflow":'
        yield "            import tensorflow"
        yield ""
        yield f"            {variable} = {converted.format(f'tensorflow.{call}')}"


def _differences(chosen: Optimizer, decay: float) -> Iterator[str]:
    """Yield how a class differs from Keras's."""
    if chosen.name in ("adam", "adamw"):
        yield "Adam of its paper: epsilon is added after the correction of the bias."
    elif chosen.name == "rmsprop":
        yield "RMSprop with epsilon added to the root."
    if decay:
        yield "The gradient has the decay."
    if chosen.gradient_clip:
        yield "Clips as PyTorch does."


_CLIP = """\
        norm = ops.sqrt(sum(ops.sum(ops.square(gradient)) for gradient in grads))
        factor = ops.minimum({one}, {largest} / (norm + {epsilon!r}))
        clipped = [gradient * ops.cast(factor, gradient.dtype) for gradient in grads]
        super().apply(clipped, trainable_variables)"""

_DECAY = "gradient = gradient + {!r} * variable"
_DECAY_AT_ONCE = "grads = torch._foreach_add(grads, weights, alpha={!r})"

_EACH = {
    "Adam": """\
    def update_step(self, gradient, variable, learning_rate):
        # dense
        # decay
        index = self._get_variable_index(variable)
        m, v = self._momentums[index], self._velocities[index]
        self.assign_add(m, (gradient - m) * (1 - self.beta_1))
        self.assign_add(v, (ops.square(gradient) - v) * (1 - self.beta_2))
        # 1 - beta^t; both corrections are in the rate and in epsilon.
        t = ops.cast(self.iterations + 1, m.dtype)
        correction_1 = -ops.expm1(t * math.log(self.beta_1))
        root = ops.sqrt(-ops.expm1(t * math.log(self.beta_2)))
        rate = ops.cast(learning_rate, variable.dtype) * root / correction_1
        self.assign_sub(variable, m * rate / (ops.sqrt(v) + self.epsilon * root))""",
    "RMSprop": """\
    def update_step(self, gradient, variable, learning_rate):
        # dense
        # decay
        s = self._velocities[self._get_variable_index(variable)]
        self.assign(s, self.rho * s + (1 - self.rho) * ops.square(gradient))
        rate = ops.cast(learning_rate, variable.dtype)
        self.assign_sub(variable, rate * gradient / (ops.sqrt(s) + self.epsilon))""",
    "SGD": """\
    def update_step(self, gradient, variable, learning_rate):
        # dense
        # decay
        super().update_step(gradient, variable, learning_rate)""",
}
"""Methods that update a variable."""

_AT_ONCE = {
    "Adam": """\
    def _backend_update_step(self, grads, trainable_variables, learning_rate):
        indices = [self._get_variable_index(one) for one in trainable_variables]
        weights = [one.value for one in trainable_variables]
        # decay
        m = [self._momentums[index].value for index in indices]
        v = [self._velocities[index].value for index in indices]
        torch._foreach_mul_(m, self.beta_1)
        torch._foreach_add_(m, grads, alpha=1 - self.beta_1)
        torch._foreach_mul_(v, self.beta_2)
        torch._foreach_addcmul_(v, grads, grads, value=1 - self.beta_2)
        t = ops.cast(self.iterations + 1, self._momentums[0].dtype)
        correction_1 = -ops.expm1(t * math.log(self.beta_1))
        root = ops.sqrt(-ops.expm1(t * math.log(self.beta_2)))
        roots = torch._foreach_sqrt(v)
        torch._foreach_add_(roots, self.epsilon * root)
        steps = torch._foreach_div(m, roots)
        rate = ops.cast(learning_rate, root.dtype) * root / correction_1
        rate = ops.cast(rate, weights[0].dtype)
        torch._foreach_sub_(weights, torch._foreach_mul(steps, rate))""",
    "RMSprop": """\
    def _backend_update_step(self, grads, trainable_variables, learning_rate):
        indices = [self._get_variable_index(one) for one in trainable_variables]
        weights = [one.value for one in trainable_variables]
        # decay
        s = [self._velocities[index].value for index in indices]
        torch._foreach_mul_(s, self.rho)
        torch._foreach_addcmul_(s, grads, grads, value=1 - self.rho)
        roots = torch._foreach_sqrt(s)
        torch._foreach_add_(roots, self.epsilon)
        steps = torch._foreach_div(grads, roots)
        rate = ops.cast(learning_rate, weights[0].dtype)
        torch._foreach_sub_(weights, torch._foreach_mul(steps, rate))""",
    "SGD": """\
    def _backend_update_step(self, grads, trainable_variables, learning_rate):
        weights = [one.value for one in trainable_variables]
        # decay
        super()._backend_update_step(grads, trainable_variables, learning_rate)""",
}
"""Methods of Keras on PyTorch that update all variables."""
