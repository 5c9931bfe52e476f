"""The programs of TensorFlow and Keras as text: what their readers see, and what differs between their uses."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from polybench.engines.job import Job
from polybench.engines.keras import emitter as keras_emitter
from polybench.engines.reference.network import loss_and_gradients
from polybench.engines.shared.keras_emitter import layer_program
from polybench.engines.shared.program import import_program
from polybench.engines.tf import emitter as tf_emitter
from polybench.networks import MODELS, find_model
from polybench.networks.initial_weights import initial_weights
from polybench.networks.layers import (
    BatchNorm,
    Conv,
    Dense,
    Dropout,
    Embedding,
    Flatten,
    GroupNorm,
    LayerNorm,
    MeanOverTime,
    Named,
    ReLU,
    Residual,
    walk,
)
from polybench.networks.lenet import LENET
from polybench.networks.model import Model
from polybench.networks.optimizers import OPTIMIZERS, Optimizer, apply_update
from tests.engines.emitted_programs import EXAMPLES, NAMES, changes, check_format, job, named, small, trees
from tests.engines.engine_fixtures import EngineFixture, in_process_of
from tests.example_networks import EVERYTHING, PATCHED, SEQUENCES, TEXT

EMITTERS: dict[str, Any] = {"tf": tf_emitter, "keras": keras_emitter}


@pytest.mark.parametrize("name", [*MODELS, *EXAMPLES])
def test_a_program_is_formatted_and_has_no_unused_name(name: str, tmp_path: Path) -> None:
    model = EXAMPLES.get(name) or find_model(name)
    for engine, emitter in EMITTERS.items():
        (tmp_path / f"{engine}_trained.py").write_text(emitter.emit_training(job(model), 3), "utf-8")
        checked = job(model, dtype="float64", dropout="given")
        (tmp_path / f"{engine}_checked.py").write_text(emitter.emit(checked), "utf-8")
        (tmp_path / f"{engine}_network.py").write_text(emitter.emit_network(job(model)), "utf-8")
    check_format(tmp_path, "B023")


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_every_variant_and_optimizer_is_formatted_python(optimizer: str, tmp_path: Path) -> None:
    variants = ("", "eager", "keras_fit", "no_fusion", "unrolled", "xla")
    changed = {"gradient_clip": 0.5, "weight_decay": 0.1, "warmup_steps": 2, "cosine_steps": 9}
    chosen = msgspec.structs.replace(OPTIMIZERS[optimizer], **changed)
    for model, variant, precision in itertools.product((SEQUENCES, TEXT), variants, ("fp32", "bf16", "tf32")):
        of = job(model, chosen, precision=precision, variants=(variant,) if variant else (), dropout="given")
        (tmp_path / f"{model.name}_{variant}_{precision}.py").write_text(tf_emitter.emit(of), "utf-8")
    for backend in ("jax", "torch"):
        of = job(TEXT, chosen, variants=(backend,))
        (tmp_path / f"{backend}.py").write_text(keras_emitter.emit_training(of, 3), "utf-8")
    (tmp_path / "replicas.py").write_text(tf_emitter.emit(job(TEXT, chosen, replicas=2, dropout="given")), "utf-8")
    (tmp_path / "forward.py").write_text(tf_emitter.emit(forward_pass(LENET)), "utf-8")
    check_format(tmp_path, "B023")


def forward_pass(model: Model) -> Job:
    plain = job(model)
    return msgspec.structs.replace(plain, workload=msgspec.structs.replace(plain.workload, pass_="forward"))


def test_repeated_blocks_are_one_function_and_a_loop() -> None:
    text = tf_emitter.emit(job(find_model("resnet32")))
    assert text.count("layers.Conv2D(") == 6  # the first, two of a block, three of a block with a projection
    assert text.count("for number in range(2, 6):\n        x = residual_block(x, 32, ") == 1
    assert '    x = projection_block(x, 32, name="stage2_block1")\n' in text
    assert tf_emitter.emit(job(find_model("char-gpt"))).count("self_attention(x, 4, causal=True") == 1


def test_a_plain_network_is_a_list_of_layers() -> None:
    text = tf_emitter.emit(job())
    assert '            layers.Dense(84, name="dense2"),\n' in text
    assert "keras.Model(" not in text


def test_the_checked_program_differs_from_the_timed_one_in_type_and_masks_only() -> None:
    assert changes(tf_emitter.emit(job()), tf_emitter.emit(job(dtype="float64"))) == [
        *('- DTYPE = "float32"', '+ DTYPE = "float64"'),
        "-     optimizer = keras.optimizers.SGD(0.01, momentum=0.9)",
        "+     optimizer = keras.optimizers.SGD(np.float64(0.01), momentum=np.float64(0.9))",
    ]
    model = find_model("mnist-mlp")
    for emitter in EMITTERS.values():
        found = changes(emitter.emit(job(model)), emitter.emit(job(model, dropout="given")))
        removed = {line[2:].strip() for line in found if line[0] == "-"}
        assert {line for line in removed if "Dropout" in line} == {
            f'layers.Dropout({rate}, name="dropout{number}"),' for number, rate in ((1, 0.2), (2, 0.2))
        }
        assert not {line for line in removed if "Dense" in line or "tape" in line}


@pytest.mark.parametrize("engine", EMITTERS)
def test_the_exported_program_is_the_timed_one_and_a_main_part(engine: str) -> None:
    emitter = EMITTERS[engine]
    found = changes(emitter.emit(job()), emitter.emit_training(job(), 7))
    product = {"tf": "TensorFlow", "keras": "Keras"}[engine]
    assert [line for line in found if line[0] == "-"] == [f'- """lenet in {product}."""']  # it goes on with its usage
    assert len(found) <= 60
    text = "\n".join(found)
    assert "UNTIMED_STEPS, STEPS = 2, 7" in text
    assert "tf.config.threading.set_intra_op_parallelism_threads(3)" in text
    assert "tf.config.threading.set_inter_op_parallelism_threads(3)" in text


def test_on_a_gpu_all_steps_are_timed_between_two_synchronizations() -> None:
    text = tf_emitter.emit_training(job(device="cuda:1"), 2)
    assert '    tf.config.set_visible_devices(tf.config.list_physical_devices("GPU")[1], "GPU")\n' in text
    timed = text[text.index("    tf.test.experimental.sync_devices()") : text.index("    print(json")]
    assert timed.count("tf.test.experimental.sync_devices()") == 2
    assert timed.index("train_step(state, batch)") < timed.rindex("tf.test.experimental.sync_devices()")


def test_a_restart_seeds_the_generator_from_which_dropout_draws_on_pytorch() -> None:
    text = keras_emitter.emit(job(find_model("mnist-mlp"), variants=("torch",)))
    _, _, reset = text.partition("def reset(")
    assert "    torch.manual_seed(SEED)\n    assign(state.model, weights)\n" in reset
    assert "manual_seed" not in keras_emitter.emit(job(variants=("torch",)))
    assert "manual_seed" not in keras_emitter.emit(job(find_model("mnist-mlp")))


def test_keras_reads_its_backend_from_the_program() -> None:
    text = keras_emitter.emit_training(job(variants=("jax",)), 3)
    beginning, found, _ = text.partition("\nimport keras\n")
    assert found
    for line in (
        '["KERAS_BACKEND"] = "jax"',
        '["NPROC"] = "3"',
        '["PJRT_NPROC"] = "3"',
        '["CUDA_VISIBLE_DEVICES"] = ""',
    ):
        assert f"os.environ{line}\n" in beginning
    assert "torch.set_num_interop_threads(3)" in keras_emitter.emit_training(job(variants=("torch",)), 3)
    assert "KERAS_BACKEND" not in keras_emitter.emit_network(job())


@pytest.mark.parametrize(
    ("fields", "line"),
    [
        ({"seed": 7}, "SEED = 7"),
        ({"device": "cuda:1"}, 'DEVICE = "/GPU:0"'),  # the only one that is visible
        ({"device": "cuda"}, "tf.config.experimental.enable_tensor_float_32_execution(False)"),
        ({"precision": "tf32"}, "tf.config.experimental.enable_tensor_float_32_execution(True)"),
        ({"precision": "bf16"}, 'keras.config.set_dtype_policy("mixed_bfloat16")'),
        ({"variants": ("xla",)}, "    @tf.function(jit_compile=True)"),
        ({"variants": ("keras_fit",)}, "    model.compile(optimizer, loss_function, jit_compile=False)"),
        (
            {"variants": ("eager", "keras_fit")},
            "    model.compile(optimizer, loss_function, jit_compile=False, run_eagerly=True)",
        ),
        ({"replicas": 2}, 'DEVICES = ["/CPU:0", "/CPU:1"]'),
        ({"replicas": 2}, "    shares = array.reshape(2, -1, *array.shape[1:])"),
    ],
)
def test_each_setting_is_in_the_program(fields: dict[str, Any], line: str) -> None:
    assert line in tf_emitter.emit(job(**fields)).splitlines()
    assert line not in tf_emitter.emit(job()).splitlines()


def test_an_eager_step_is_no_graph() -> None:
    assert "@tf.function" not in tf_emitter.emit(job(variants=("eager",)))


@pytest.mark.parametrize(
    ("optimizer", "code"),
    [
        (Optimizer("sgd", 0.5), "keras.optimizers.SGD(0.5)"),
        (Optimizer("momentum", 0.5, 0.8), "keras.optimizers.SGD(0.5, momentum=0.8)"),
        (Optimizer("nesterov", 0.5, 0.8), "keras.optimizers.SGD(0.5, momentum=0.8, nesterov=True)"),
        (Optimizer("sgd", 0.5, weight_decay=0.1), "gradient = gradient + 0.1 * variable"),
        (Optimizer("adam", 0.5, betas=(0.8, 0.9)), "Adam(0.5, beta_1=0.8, beta_2=0.9, epsilon=1e-08)"),
        (Optimizer("rmsprop", 0.5), "RMSprop(0.5, rho=0.9, epsilon=1e-07)"),
        (Optimizer("adamw", 0.5, weight_decay=0.1), "Adam(0.5, epsilon=1e-08, weight_decay=0.1)"),
        (Optimizer(gradient_clip=0.7), "0.7 / (norm + 1e-06)"),
    ],
)
def test_each_optimizer_is_as_a_user_writes_it(optimizer: Optimizer, code: str) -> None:
    text = tf_emitter.emit(job(optimizer=optimizer))
    assert code in text
    assert text.count("optimizer.apply_gradients(") == 1


def test_adamw_decays_no_tensor_with_one_axis() -> None:
    """The names are those of Keras's layers."""
    norms = {"weight": "gamma", "bias": "beta"}
    for model in (EVERYTHING, TEXT, PATCHED, find_model("resnet32")):
        text = tf_emitter.emit(job(model, Optimizer("adamw", 0.001, weight_decay=0.01)))
        _, _, names = text.partition("exclude_from_weight_decay(var_names=[")
        one_axis = {
            norms.get(tensor, tensor)
            if isinstance(layer, BatchNorm | LayerNorm | GroupNorm)
            else tensor.rpartition("_")[2]
            for layer in walk(model.layers)
            if isinstance(layer, Named)
            for tensor, shape in layer.weight_shapes().items()
            if len(shape) == 1
        }
        assert {*json.loads(f"[{names.partition(']')[0]}]")} == one_axis


@in_process_of("tf")
def test_the_learning_rate_is_that_of_the_schedule(fixture: EngineFixture) -> None:
    for optimizer in (
        Optimizer(learning_rate=0.4, lr_schedule=((3, 0.2), (5, 0.1))),
        Optimizer(learning_rate=0.4, warmup_steps=4),
        Optimizer(learning_rate=0.4, warmup_steps=2, cosine_steps=9, min_learning_rate=0.1),
    ):
        program = import_program(tf_emitter.emit(job(optimizer=optimizer)), None)
        expected = [optimizer.learning_rate_at(step) for step in range(12)]
        assert [program.learning_rate(step) for step in range(12)] == expected


@in_process_of("tf")
def test_any_names_of_layers_give_a_program_whose_tensors_have_these_names(fixture: EngineFixture) -> None:
    @settings(max_examples=25, deadline=None)
    @given(st.lists(NAMES, min_size=7, max_size=7, unique=True))
    def check(names: list[str]) -> None:
        conv, norm, inner, second, dense, last, dropout = names
        block = Residual((Conv(inner, 4, 4, 1), BatchNorm(second, 4)))
        head = (ReLU(), Flatten(), Dense(dense, 16, 5), Dropout(dropout, 0.5), Dense(last, 5, 10))
        check_tensors(small(Conv(conv, 3, 4, 3), BatchNorm(norm, 4), block, *head))

    check()


def check_tensors(model: Model) -> None:
    """Check that a program returns the weights that it was given, each with its name."""
    random = np.random.default_rng(1)
    weights = {name: random.random(value.shape, np.float32) for name, value in initial_weights(model, 0).items()}
    program = import_program(layer_program(model.layers, model.input_shape, "float32"), None)
    network = program.make_network()
    program.assign(network, weights)
    found = {name: view(variable.numpy()) for name, (variable, view) in program.variables(network).items()}
    assert {name: found[name].tobytes() for name in weights} == {name: one.tobytes() for name, one in weights.items()}


@in_process_of("tf")
def test_every_tensor_of_every_layer_keeps_its_name(fixture: EngineFixture) -> None:
    for model in EXAMPLES.values():
        check_tensors(model)


@in_process_of("tf")
def test_numbered_blocks_keep_the_names_of_their_tensors(fixture: EngineFixture) -> None:
    prefixes = ("block", "stage1.block", "layer1.", "stage{x}.b{0}", "class", "type", "load")
    for prefix, first in itertools.product(prefixes, (0, 3)):
        blocks = [
            Residual((Conv(f"{prefix}{number}.conv", 3, 3, 1), BatchNorm(f"{prefix}{number}.norm", 3)))
            for number in range(first, first + 3)
        ]
        model = small(*blocks, Flatten(), Dense("dense", 48, 10))
        assert f"for number in range({first}, {first + 3})" in tf_emitter.emit(job(model))
        check_tensors(model)


@in_process_of("tf")
def test_blocks_whose_names_would_not_be_unique_are_written_one_by_one(fixture: EngineFixture) -> None:
    blocks = [Residual((Conv(f"b{number}.conv", 3, 3, 1),)) for number in range(3)]
    model = small(Conv("b1_conv", 3, 3, 1), *blocks, Flatten(), Dense("dense", 48, 10))
    assert "for number" not in tf_emitter.emit(job(model))
    check_tensors(model)


@in_process_of("tf")
def test_a_network_of_200_layers_works(fixture: EngineFixture) -> None:
    layers = tuple(layer for number in range(100) for layer in (Conv(f"conv{number}", 3, 3, 1), ReLU()))
    check_tensors(small(*layers, Flatten(), Dense("dense", 48, 10)))


@in_process_of("tf")
def test_any_residual_blocks_compute_what_the_reference_computes(fixture: EngineFixture) -> None:
    """The variables of nested shortcuts never change what is still needed."""
    import keras

    @settings(max_examples=15, deadline=None)
    @given(trees(2))
    def check(tree: tuple[Any, ...]) -> None:
        check_gradients(small(*named(tree, itertools.count()), Flatten(), Dense("dense", 48, 10)))

    keras.config.set_dtype_policy("float64")
    check()


def check_gradients(model: Model) -> None:
    random = np.random.default_rng(2)
    weights = {name: one.astype(np.float64) for name, one in initial_weights(model, 1).items()}
    images, labels = random.normal(size=(4, *model.input_shape)), random.integers(model.classes, size=4)
    expected, gradients, _ = loss_and_gradients(model, weights, images, labels)
    program: ModuleType = import_program(tf_emitter.emit(job(model, dtype="float64", variants=("eager",))), None)
    state = program.setup(weights)
    loss, found = program.loss_and_gradients(state.model, *program.load(images, labels))
    assert float(loss) == pytest.approx(expected, rel=1e-10)
    views = {id(variable): (name, view) for name, (variable, view) in program.variables(state.model).items()}
    for variable, gradient in zip(state.model.trainable_variables, found, strict=True):
        name, view = views[id(variable)]
        scale = max(1e-3, float(np.abs(gradients[name]).max()))
        np.testing.assert_allclose(view(gradient.numpy()), gradients[name], rtol=1e-7, atol=1e-9 * scale, err_msg=name)


@in_process_of("tf")
def test_adam_and_clipping_add_up_the_gradients_of_repeated_tokens(fixture: EngineFixture) -> None:
    import keras

    keras.config.set_dtype_policy("float64")
    layers = (Embedding("embedding", 5, 4), MeanOverTime(), Dense("dense", 4, 3))
    model = msgspec.structs.replace(TEXT, layers=layers, input_shape=(6,), classes=3)
    weights = {name: one.astype(np.float64) for name, one in initial_weights(model, 0).items()}
    tokens, labels = np.array([[1, 1, 1, 2, 3, 1], [3, 3, 0, 1, 2, 2]]), np.array([0, 2])
    _, gradients, _ = loss_and_gradients(model, weights, tokens, labels)
    programs: list[tuple[str, dict[str, str]]] = [("tf", {}), ("keras", {}), ("keras", {"backend": ""})]
    for clip, (engine, backend) in itertools.product((0.0, 0.01), programs):
        optimizer = Optimizer("adam", 0.1, gradient_clip=clip)
        program = import_program(EMITTERS[engine].emit(job(model, optimizer, dtype="float64"), **backend), None)
        state = program.setup(weights)
        program.train_step(state, program.load(tokens, labels))
        factor = optimizer.clip_factor(float(np.sqrt(sum((one**2).sum() for one in gradients.values()))))
        for name, found in program.weights(state).items():
            expected, _ = apply_update(optimizer, 0.1, weights[name], factor * gradients[name], {})
            np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12)


@in_process_of("tf")
def test_a_restart_trains_the_same_with_the_same_masks_of_dropout(fixture: EngineFixture) -> None:
    import keras

    keras.config.set_dtype_policy("float32")
    model = find_model("mnist-mlp")
    random, weights = np.random.default_rng(0), initial_weights(model, 0)
    program = import_program(tf_emitter.emit(job(model)), None)
    batch = program.load(random.random((8, *model.input_shape), np.float32), random.integers(10, size=8))
    state = program.setup(weights)
    first = [float(program.train_step(state, batch)) for _ in range(3)]
    program.reset(state, weights)
    assert [float(program.train_step(state, batch)) for _ in range(3)] == first
    assert [float(program.train_step(state, batch)) for _ in range(3)] != first


@in_process_of("tf")
def test_the_exported_program_has_the_losses_of_the_engine_to_the_last_digit(fixture: EngineFixture) -> None:
    import tempfile

    plain = msgspec.structs.replace(job(), seed=3)
    one_thread = msgspec.structs.replace(plain, workload=msgspec.structs.replace(plain.workload, threads=1))
    random = np.random.default_rng(0)
    records = random.integers(256, size=(40, 3073)).astype(np.uint8)
    records[:, 0] %= 10
    order = random.permutation(40).reshape(5, 8)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for number, part in enumerate(np.array_split(records, 5), 1):
            part.tofile(folder / f"data_batch_{number}.bin")
        np.savez(folder / "start.npz", batches=order, **fixture.weights)
        (folder / "program.py").write_text(tf_emitter.emit_training(one_thread, 3), "utf-8")
        command = [sys.executable, str(folder / "program.py"), str(folder / "start.npz"), name]
        run = subprocess.run(command, capture_output=True, text=True, check=True, env=dict(os.environ))
        (folder / "engine.py").write_text(_ENGINE, "utf-8")
        command[1] = str(folder / "engine.py")
        engine = subprocess.run(command, capture_output=True, text=True, check=True, env=dict(os.environ))
    assert json.loads(run.stdout)["losses"] == json.loads(engine.stdout)


_ENGINE = """
import json, sys
from pathlib import Path
import numpy as np
from polybench.engines.job import Job
from polybench.engines.tf import make_engine
from polybench.networks.lenet import LENET
from polybench.schema.options import Workload

start = np.load(sys.argv[1])
records = np.concatenate([np.fromfile(Path(sys.argv[2]) / f"data_batch_{n}.bin", np.uint8) for n in range(1, 6)])
records = records.reshape(-1, 3073)
images = records[:, 1:].reshape(-1, 3, 32, 32).astype(np.float32) / 255
weights = {name: start[name] for name in start if name != "batches"}
engine = make_engine()
workload = Workload("lenet", "noise", 8, LENET.optimizer, "fp32", 1)
engine.build(Job(LENET, workload, "cpu", "float32", seed=3), weights)
engine.load(images[start["batches"]], records[start["batches"], 0].astype(np.int64))
losses = []
for step in range(5):
    engine.run_steps(step, 1)
    losses.append(engine.loss())
print(json.dumps(losses))
"""
