"""Writes the TensorFlow program that the engine times: a Keras model and its training step in a `tf.function`.

This module does not import TensorFlow.
"""

from __future__ import annotations

from collections.abc import Iterator

from polybench.engines.job import Job
from polybench.engines.shared import keras_emitter as common
from polybench.engines.shared.main_part import NETWORK, NO_MAIN, MainPart, training


def emit(job: Job, main: MainPart = NO_MAIN) -> str:
    """Return the program of a job; raises EngineUnavailable for a layer that Keras lacks.

    `DTYPE` and `DEVICE` are at its top. Its functions are those of a program of polybench: `setup`, `reset`, `load`,
    `train_step` (for a forward pass `forward_pass`, for `model.fit` `train_steps`) and `weights`; with given dropout
    masks also `set_masks`. `main` is its main part.
    """
    network = common.network_code(job)
    is_forward_pass, on_gpu = job.workload.is_forward_pass, job.device != "cpu"
    sections = [
        network.text(job.model.summary),
        *([] if is_forward_pass else [*common.loss(job.model), *common.optimizer(job, "tensorflow")]),
        *(_forward_pass(job) if is_forward_pass else _fit(job) if _uses_fit(job) else _training_step(job)),
        common.reset(job),
        *_load(job),
        *common.set_masks(job, network),
        *_step(job),
        common.WEIGHTS,
        *network.variables(),
    ]
    tf32 = job.workload.precision == "tf32"
    settings = [f"tf.config.experimental.enable_tensor_float_32_execution({tf32})"] if on_gpu or tf32 else []
    constants = [f'DEVICE = "{"/GPU:0" if on_gpu else "/CPU:0"}"']
    if job.workload.replicas > 1:
        kind = "GPU" if on_gpu else "CPU"
        constants = [f"DEVICES = {[f'/{kind}:{number}' for number in range(job.workload.replicas)]}".replace("'", '"')]
        settings.append("STRATEGY = tf.distribute.MirroredStrategy(DEVICES)")
    return common.program(job, "TensorFlow", sections, main, constants=constants, settings=settings)


def emit_training(job: Job, steps: int, *, clock: bool = False) -> str:
    """Return the program with a main part that trains and times `steps` steps; with `clock`, see `training`."""
    pools = [
        f"tf.config.threading.set_{pool}_op_parallelism_threads({job.workload.threads})" for pool in ("intra", "inter")
    ]
    if job.device == "cpu":
        settings = [*pools, 'tf.config.set_visible_devices([], "GPU")']
        return emit(job, training(job, steps, settings, "", clock=clock))
    gpu = f'tf.config.list_physical_devices("GPU")[{int(job.device.partition(":")[2] or 0)}]'
    settings = [*pools, f'tf.config.set_visible_devices({gpu}, "GPU")']
    return emit(job, training(job, steps, settings, "tf.test.experimental.sync_devices()", clock=clock))


def emit_network(job: Job) -> str:
    """Return the program with a main part that makes `network`, with the weights of the .npz file beside it."""
    return emit(job, NETWORK)


def _uses_fit(job: Job) -> bool:
    return "keras_fit" in job.variants


def _scope(job: Job) -> str:
    return "STRATEGY.scope()" if job.workload.replicas > 1 else "tf.device(DEVICE)"


def _function(job: Job) -> list[str]:
    """Return the decorator of a compiled function; none if the step is eager."""
    if "eager" in job.variants:
        return []
    return ["@tf.function(jit_compile=True)" if "xla" in job.variants else "@tf.function"]


def _forward_pass(job: Job) -> Iterator[str]:
    yield common.state(job, "compiled: Callable")
    decorator = _function(job)
    yield "\n".join([
        "def make_step(model):",
        '    """Return the function of a forward pass, inputs -> logits."""',
        "",
        *(f"    {line}" for line in decorator),
        "    def step(inputs):",
        "        return model(inputs, training=False)",
        "",
        "    return step",
    ])  # fmt: skip
    yield common.setup(job, _scope(job), ["make_step(model)"])


def _fit(job: Job) -> Iterator[str]:
    # Keras's default, "auto", is XLA on a GPU only. It is explicit here because "auto" depends on the machine's GPUs,
    # not on the device of the model.
    eager = "eager" in job.variants
    xla = "xla" in job.variants or (job.device != "cpu" and not eager)
    yield common.state(job)
    options = f"jit_compile={xla}{', run_eagerly=True' if eager else ''}"
    yield common.setup(job, _scope(job), [], f"model.compile(optimizer, loss_function, {options})")


def _training_step(job: Job) -> Iterator[str]:
    yield common.state(job, "compiled: Callable")
    yield """def loss_and_gradients(model, inputs, labels):
    with tf.GradientTape() as tape:
        loss = loss_function(labels, model(inputs, training=True))
    return loss, tape.gradient(loss, model.trainable_variables)"""
    is_distributed = job.workload.replicas > 1
    decorator = [] if is_distributed else _function(job)
    lines = [
        "def make_step(model, optimizer):",
        '    """Return the function of a step, (inputs, labels) -> loss before the update."""',
        "",
        *(f"    {line}" for line in decorator),
        f"    def {'train_share' if is_distributed else 'step'}(inputs, labels):",
        "        loss, gradients = loss_and_gradients(model, inputs, labels)",
        "        weights = model.trainable_variables",
        "        optimizer.apply_gradients(zip(gradients, weights, strict=True))",
        "        return loss",
        "",
    ]
    if is_distributed:  # a replica's loss is its share of the mean, and Keras adds up the gradients
        lines += [
            "    @tf.function",
            "    def step(inputs, labels):",
            "        losses = STRATEGY.run(train_share, (inputs, labels))",
            "        return STRATEGY.reduce(tf.distribute.ReduceOp.SUM, losses, axis=None)",
            "",
        ]
    yield "\n".join([*lines, "    return step"])
    yield common.setup(job, _scope(job), ["make_step(model, optimizer)"])


def _load(job: Job) -> Iterator[str]:
    if job.workload.replicas == 1:
        yield common.load(job, "tf.constant", scope="tf.device(DEVICE)")
        return
    yield common.load(job, "split")
    yield f'''def split(array):
    """Give each replica its share of a batch."""
    shares = array.reshape({job.workload.replicas}, -1, *array.shape[1:])
    return STRATEGY.experimental_distribute_values_from_function(
        lambda context: tf.constant(shares[context.replica_id_in_sync_group])
    )'''


def _step(job: Job) -> Iterator[str]:
    if job.workload.is_forward_pass:
        yield "def forward_pass(state, batch):\n    return state.compiled(batch[0])"
    elif _uses_fit(job):
        masks = common.has_given_masks(job)
        callbacks = ["callbacks=callbacks"] if masks else []
        yield "\n".join([
            f"def train_steps(state, batches{', callbacks' if masks else ''}):",
            '    """Train on a data set of batches; return the mean of their losses."""',
            "    history = state.model.fit(",
            f"        {', '.join(['batches, epochs=1, shuffle=False, verbose=0', *callbacks])}",
            "    )",
            '    return history.history["loss"][-1]',
        ])  # fmt: skip
    else:
        yield "\n".join([
            "def train_step(state, batch):",
            '    """Train on a batch; return the loss before the update."""',
            *common.step_start(job),
            f"    return state.compiled({common.inputs_of_step(job)})",
        ])  # fmt: skip
