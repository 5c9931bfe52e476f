"""Writes the Keras program that the engine times: a Keras model that trains itself, on any backend.

This module does not import Keras.
"""

from __future__ import annotations

from polybench.engines.job import Job
from polybench.engines.keras.environment import BACKENDS
from polybench.engines.shared import keras_emitter as common
from polybench.engines.shared.main_part import NETWORK, NO_MAIN, MainPart, training


def emit(job: Job, main: MainPart = NO_MAIN, *, backend: str | None = None) -> str:
    """Return the program of a job; raises EngineUnavailable for a layer that Keras lacks.

    `DTYPE` is at its top. Its functions are those of a program of polybench: `setup`, `reset`, `load`, `train_step`
    (for a forward pass `forward_pass`) and `weights`; with given dropout masks also `set_masks`. `main` is its main
    part. `backend` is Keras's, by default that of the job's variant; with "", the program does not select one.
    """
    network, backend = common.network_code(job), backend_of(job) if backend is None else backend
    is_forward_pass = job.workload.is_forward_pass
    update = [] if is_forward_pass else common.optimizer(job, backend)
    compiled = [] if is_forward_pass else ["model.compile(optimizer, loss_function)"]
    sections = [
        network.text(job.model.summary),
        *([] if is_forward_pass else common.loss(job.model)),
        *update,
        common.state(job),
        common.setup(job, "", [], *compiled),
        common.reset(job, backend),
        common.load(job, "ops.convert_to_tensor", "    labels = labels.astype(np.int32)"),
        *common.set_masks(job, network),
        _step(job),
        common.WEIGHTS,
        *network.variables(),
    ]
    environment = [f'os.environ["KERAS_BACKEND"] = "{backend}"'] if backend else []
    if main.text and backend:
        environment += [
            f'os.environ["{name}"] = "{value.format(threads=job.workload.threads)}"'
            for name, value in {"CUDA_VISIBLE_DEVICES": "", **BACKENDS[backend].environment}.items()
            if not name.startswith("TF_")
        ]
    return common.program(job, "Keras", sections, main, environment=environment)


def backend_of(job: Job) -> str:
    """Return the name of Keras's backend: a variant of the engine, or the default."""
    return next((variant for variant in job.variants if variant in BACKENDS), next(iter(BACKENDS)))


def emit_training(job: Job, steps: int, *, clock: bool = False) -> str:
    """Return the program with a main part that trains and times `steps` steps; with `clock`, see `training`."""
    threads = {
        "tensorflow": [f"tf.config.threading.set_{pool}_op_parallelism_threads" for pool in ("intra", "inter")],
        "torch": ["torch.set_num_threads", "torch.set_num_interop_threads"],
        "jax": [],
    }
    settings = [f"{function}({job.workload.threads})" for function in threads[backend_of(job)]]
    return emit(job, training(job, steps, settings, "", clock=clock))


def emit_network(job: Job) -> str:
    """Return the program with a main part that makes `network`, with the weights of the .npz file beside it."""
    return emit(job, NETWORK, backend="")


def _step(job: Job) -> str:
    if job.workload.is_forward_pass:
        return "def forward_pass(state, batch):\n    return state.model.predict_on_batch(batch[0])"
    return "\n".join([
        "def train_step(state, batch):",
        '    """Train on a batch; return the loss before the update."""',
        *common.step_start(job),
        f"    return state.model.train_on_batch({common.inputs_of_step(job)})",
    ])  # fmt: skip
