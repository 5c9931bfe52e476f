"""The program of JAX as text: what its readers see, and what differs between its uses."""

from __future__ import annotations

import difflib
import itertools
import math
from pathlib import Path
from textwrap import dedent
from types import SimpleNamespace
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from polybench.engines.jax.emitter import emit, emit_network, emit_training
from polybench.engines.reference.network import loss_and_gradients
from polybench.engines.shared.program import import_program
from polybench.networks import MODELS, find_model
from polybench.networks.initial_weights import LIMITS, initial_weights
from polybench.networks.layers import (
    AveragePool,
    BatchNorm,
    Conv,
    Dense,
    Flatten,
    MaxPool,
    ReLU,
    Residual,
    layer_shapes,
)
from polybench.networks.lenet import LENET
from polybench.networks.model import Model
from polybench.networks.optimizers import Optimizer
from tests.engines.emitted_programs import EXAMPLES, NAMES, changes, check_format, job, named, small, trees
from tests.engines.engine_fixtures import EngineFixture, in_process_of
from tests.example_networks import FEATURES, PATCHED, RESNET8, SEQUENCES

EXAMPLES = {**EXAMPLES, FEATURES.name: FEATURES}


@pytest.mark.parametrize("name", [*MODELS, *EXAMPLES])
def test_a_program_is_formatted_and_has_no_unused_name(name: str, tmp_path: Path) -> None:
    model = EXAMPLES.get(name) or find_model(name)
    (tmp_path / "trained.py").write_text(emit_training(job(model), 3), "utf-8")
    (tmp_path / "checked.py").write_text(emit(job(model, dtype="float64", dropout="given")), "utf-8")
    (tmp_path / "network.py").write_text(emit_network(job(model)), "utf-8")
    clipped = Optimizer("adam", 0.1, weight_decay=0.1, gradient_clip=1.0, lr_schedule=((3, 0.2), (5, 0.1)))
    (tmp_path / "bf16.py").write_text(emit_training(job(model, clipped, "cuda:1", precision="bf16"), 3), "utf-8")
    forward = job(model)
    workload = msgspec.structs.replace(forward.workload, pass_="forward")
    (tmp_path / "forward.py").write_text(emit(msgspec.structs.replace(forward, workload=workload)), "utf-8")
    check_format(tmp_path, "B905")


def test_repeated_blocks_are_one_function_and_a_loop() -> None:
    text = emit(job(find_model("resnet32")))
    assert text.count("= conv(params, ") == 6  # the first, two of a block, three of a block with a projection
    for stage in (2, 3):
        assert f'    x = projection_block(params, buffers, "stage{stage}.block1", x, training)\n' in text
        loop = "    for number in range(2, 6):\n        x = residual_block(params, buffers, "
        assert f'{loop}f"stage{stage}.block{{number}}", x, training)\n' in text
    mobile = emit(job(find_model("mobile-cifar")))
    assert "def block(params, buffers, name, x, training, hidden, stride):" in mobile
    assert emit(job(find_model("char-gpt"))).count('attention(params, f"{name}.attention", y, 4, causal=True)') == 1


def test_a_program_has_only_the_functions_of_its_layers() -> None:
    functions = [line.partition("(")[0] for line in emit(job()).splitlines() if line.startswith("def ")]
    own = ["shapes", "initial_weights", "setup", "reset", "load"]
    own += ["cross_entropy", "compute_loss", "update", "train_step", "weights"]
    assert functions == [f"def {name}" for name in ("conv", "dense", "max_pool", "network", *own)]


def test_the_checked_program_differs_from_the_timed_one_in_type_and_masks_only() -> None:
    assert changes(emit(job()), emit(job(dtype="float64"))) == [
        '+ jax.config.update("jax_enable_x64", True)',
        "- DTYPE = jnp.float32",
        "+ DTYPE = jnp.float64",
    ]
    model = find_model("mnist-mlp")
    lines = [line[2:] for line in changes(emit(job(model)), emit(job(model, dropout="given"))) if line[0] == "-"]
    function, changed = lines[:6], lines[6:]
    assert function[0] == "def dropout(rate, buffers, x, training):"
    assert changed == [
        "def network(params, buffers, x, training=False):",
        '    x = jax.nn.relu(dense(params, "dense2", dropout(0.2, buffers, x, training)))',
        '    return dense(params, "dense3", dropout(0.2, buffers, x, training)), buffers',
        "def compute_loss(params, buffers, inputs, labels):",
        "    logits, buffers = network(params, buffers, inputs, training=True)",
        "def update(state, inputs, labels):",
        '    (loss, buffers), gradients = compute(params, state["buffers"], inputs, labels)',
    ]


def test_the_exported_program_is_the_timed_one_and_a_main_part() -> None:
    timed, exported = emit(job()).splitlines(), emit_training(job(), 7).splitlines()
    removed = [line for line in difflib.ndiff(timed, exported) if line.startswith("- ")]
    assert removed == ['- """lenet in JAX."""']  # it goes on with how to run the program
    added = len(exported) - len(timed)
    assert added <= 60
    text = "\n".join(exported)
    assert "UNTIMED_STEPS, STEPS = 2, 7" in text
    assert text.index('os.environ["NPROC"] = "3"') < text.index("jax.devices")


@pytest.mark.parametrize(
    ("device", "expected"),
    [
        ("cpu", ["clock", "step", "synchronize", "clock"] * 2),
        ("cuda", ["synchronize", "clock", "step", "step", "synchronize", "clock"]),
    ],
)
def test_a_clock_stops_when_the_step_is_done(device: str, expected: list[str]) -> None:
    text = emit_training(job(device=device), 2)
    timed = dedent(text[text.index("    timed = ") : text.index("    print(json")])
    order: list[str] = []

    def record(name: str, result: Any = None) -> Any:
        return lambda *_: (order.append(name), result)[1]

    names: dict[str, Any] = {
        "time": SimpleNamespace(perf_counter=record("clock", 0.0)),
        "jax": SimpleNamespace(block_until_ready=record("synchronize")),
        "train_step": record("step", 0.5),
    }
    names |= {"batches": [()] * 4, "UNTIMED_STEPS": 2, "STEPS": 2, "state": None, "losses": []}
    exec(timed, names)
    assert order == expected
    assert names["losses"] == [0.5, 0.5]
    assert len(names["seconds"]) == (2 if device == "cpu" else 1)


@pytest.mark.parametrize(
    ("fields", "line"),
    [
        ({"device": "cuda:1"}, 'DEVICE = jax.devices("cuda")[1]'),
        ({"device": "cuda"}, 'DEVICE = jax.devices("cuda")[0]'),
        ({"precision": "tf32"}, 'jax.config.update("jax_default_matmul_precision", "tensorfloat32")  # of a GPU'),
        ({"precision": "bf16"}, "    x = x.astype(jnp.bfloat16)"),
        ({"precision": "bf16"}, "    return cross_entropy(logits.astype(DTYPE), labels)"),
    ],
)
def test_each_setting_is_in_the_program(fields: dict[str, Any], line: str) -> None:
    assert line in emit(job(**fields)).splitlines()
    assert line not in emit(job()).splitlines()


def test_a_program_has_the_seed_of_the_job() -> None:
    assert "SEED = 7\n" in emit(job(find_model("mnist-mlp"), seed=7))


def test_replicas_have_all_weights_and_shards_of_batches() -> None:
    one = job(device="cuda:1")
    text = emit(msgspec.structs.replace(one, workload=msgspec.structs.replace(one.workload, replicas=2)))
    assert 'MESH = Mesh(jax.devices("cuda")[1:3], ("replicas",))' in text
    assert "state.update(jax.device_put(start, DEVICE, may_alias=False))" in text
    assert "labels.astype(np.int32)), SHARDS)" in text
    assert "donate_argnums=0, out_shardings=DEVICE" in text


@pytest.mark.parametrize(
    ("optimizer", "code"),
    [
        (Optimizer("sgd", 0.5), "optimizer = optax.sgd(0.5)\n"),
        (
            Optimizer("momentum", 0.5, 0.8, 0.1),
            "optax.chain(optax.add_decayed_weights(0.1), optax.sgd(0.5, momentum=0.8))",
        ),
        (Optimizer("nesterov", 0.5, 0.8), "optimizer = optax.sgd(0.5, momentum=0.8, nesterov=True)\n"),
        (Optimizer("adam", 0.5, betas=(0.8, 0.9)), "scale_by_adam(0.8, 0.9), optax.scale_by_learning_rate(0.5)"),
        (Optimizer("rmsprop", 0.5), "optax.rmsprop(0.5, decay=0.9, eps=1e-07, eps_in_sqrt=False)"),
        (Optimizer("adamw", 0.5, weight_decay=0.1), "    optax.add_decayed_weights(0.1, is_matrix),\n"),
        (Optimizer(gradient_clip=0.7), "optimizer = optax.chain(clip_by_global_norm(0.7), optax.sgd("),
        (Optimizer(lr_schedule=((3, 0.2),)), "    optimizer = make_optimizer(learning_rate(state"),
    ],
)
def test_each_optimizer_is_as_a_user_writes_it(optimizer: Optimizer, code: str) -> None:
    text = emit(job(optimizer=optimizer))
    assert code in text
    assert text.count("optimizer.update(") == 1


@in_process_of("jax")
def test_the_learning_rate_is_that_of_the_schedule(fixture: EngineFixture) -> None:
    for optimizer in (
        Optimizer(learning_rate=0.4, lr_schedule=((3, 0.2), (5, 0.1))),
        Optimizer(learning_rate=0.4, warmup_steps=4),
        Optimizer(learning_rate=0.4, warmup_steps=2, cosine_steps=9, min_learning_rate=0.1),
        Optimizer(learning_rate=0.4, cosine_steps=6),
        Optimizer(learning_rate=0.4, cosine_steps=6, min_learning_rate=0.1),
    ):
        program = import_program(emit(job(optimizer=optimizer)), None)
        found = [float(program.learning_rate(np.int32(step))) for step in range(12)]
        assert found == pytest.approx([optimizer.learning_rate_at(step) for step in range(12)], rel=1e-6, abs=1e-8)
        weights = initial_weights(job().model, 0)
        state = program.setup(weights)
        program.reset(state, weights, step=2)
        assert int(state["step"]) == 2
        program.train_step(state, program.load(fixture.images[0], fixture.labels[0]))
        assert int(state["step"]) == 3


@in_process_of("jax")
def test_the_learning_rate_has_all_digits_in_float64(fixture: EngineFixture) -> None:
    import jax

    optimizer = Optimizer("sgd", 0.4, warmup_steps=2, cosine_steps=9, min_learning_rate=0.1)
    program = import_program(emit(job(optimizer=optimizer, dtype="float64")), None)
    try:
        state, batch = program.setup(fixture.weights), program.load(fixture.images[0], fixture.labels[0])
        for step in (1, 4):
            program.reset(state, fixture.weights, step)
            gradient = jax.jit(jax.grad(program.compute_loss))(state["params"], *batch)["dense3.bias"]
            program.train_step(state, batch)
            expected = -optimizer.learning_rate_at(step) * np.asarray(gradient)  # the bias starts at 0
            np.testing.assert_allclose(program.weights(state)["dense3.bias"], expected, rtol=1e-12)
    finally:
        jax.config.update("jax_enable_x64", False)


@in_process_of("jax")
def test_without_weights_a_program_draws_its_own(fixture: EngineFixture) -> None:
    for model in (msgspec.structs.replace(RESNET8, initialization="he"), SEQUENCES, PATCHED):
        program = import_program(emit(job(model)), None)
        found, limit = program.weights(program.setup()), LIMITS[model.initialization]
        for name, expected in initial_weights(model, 0).items():
            if expected.ndim == 1:
                np.testing.assert_array_equal(found[name], expected)
            else:
                assert 0.5 * limit(expected.shape) < np.abs(found[name]).max() <= limit(expected.shape)
        drawn = [one.tobytes() for one in found.values() if one.ndim > 1]
        assert len({*drawn}) == len(drawn)


@in_process_of("jax")
def test_the_shapes_of_a_program_are_those_of_the_network(fixture: EngineFixture) -> None:
    for model in map(find_model, MODELS):
        assert import_program(emit(job(model)), None).shapes() == model.tensor_shapes()


@in_process_of("jax")
def test_the_shapes_of_blocks_need_no_multiples_of_their_parameters(fixture: EngineFixture) -> None:
    sizes = ((12, 2), (24, 8))  # channels and groups: 6 and 3 inputs of each group
    layers = [
        layer
        for number, (channels, groups) in enumerate(sizes)
        for layer in (
            Conv(f"block{number}.conv", channels, channels, 1, groups=groups),
            Conv(f"block{number}.wide", channels, 24, 1),
        )
    ]
    model = small(Conv("first", 3, 12, 1), *layers, Flatten(), Dense("dense", 24 * 16, LENET.classes))
    text = emit(job(model))
    assert "def block(params, name, x, hidden)" in text
    assert import_program(text, None).shapes() == model.tensor_shapes()


def check_tensors(model: Model) -> None:
    """Check that a program returns the weights that it was given, each with its name."""
    random = np.random.default_rng(1)
    weights = {name: random.random(value.shape, np.float32) for name, value in initial_weights(model, 0).items()}
    program = import_program(emit(job(model)), None)
    found = program.weights(program.setup(weights))
    assert {name: one.tobytes() for name, one in found.items()} == {n: one.tobytes() for n, one in weights.items()}
    assert program.shapes() == model.tensor_shapes()


def check_gradients(model: Model) -> None:
    """Check the loss, gradients and running statistics of the float64 program."""
    import jax

    random = np.random.default_rng(2)
    weights = {name: one.astype(np.float64) for name, one in initial_weights(model, 1).items()}
    images, labels = random.normal(size=(4, *model.input_shape)), random.integers(model.classes, size=4)
    expected, gradients, statistics = loss_and_gradients(model, weights, images, labels)
    program = import_program(emit(job(model, dtype="float64")), None)
    try:
        state = program.setup(weights)
        variables = [state[name] for name in ("params", "buffers") if name in state]
        compute = jax.jit(jax.value_and_grad(program.compute_loss, has_aux=len(variables) > 1))
        loss, found = compute(*variables, *program.load(images, labels))
        changed = loss[1] if len(variables) > 1 else {}
        assert float(loss[0] if len(variables) > 1 else loss) == pytest.approx(expected, rel=1e-10)
        for name, one in [*found.items(), *changed.items()]:
            exact = {**gradients, **statistics}[name]
            scale = max(1e-3, float(np.abs(exact).max()))
            np.testing.assert_allclose(one, exact, rtol=1e-7, atol=1e-9 * scale, err_msg=name)
    finally:
        jax.config.update("jax_enable_x64", False)


@in_process_of("jax")
def test_any_names_of_layers_give_a_program_whose_tensors_have_these_names(fixture: EngineFixture) -> None:
    @settings(max_examples=12, deadline=None)
    @given(st.lists(NAMES, min_size=6, max_size=6, unique=True))
    def check(names: list[str]) -> None:
        conv, norm, inner, second, dense, last = names
        block = Residual((Conv(inner, 4, 4, 1), BatchNorm(second, 4)))
        head = (ReLU(), Flatten(), Dense(dense, 64, 5), Dense(last, 5, 10))
        model = small(Conv(conv, 3, 4, 1), BatchNorm(norm, 4), block, *head)
        check_tensors(model)
        check_gradients(model)

    check()


@in_process_of("jax")
def test_numbered_blocks_keep_the_names_of_their_tensors(fixture: EngineFixture) -> None:
    for number, prefix in enumerate(["block", "stage1.block", "layer1.", "stage{x}.b{0}", "conv", "class", "network"]):
        first = (0, 1, 3)[number % 3]
        blocks = [
            Residual((Conv(f"{prefix}{index}.conv", 3, 3, 1), BatchNorm(f"{prefix}{index}.norm", 3)))
            for index in range(first, first + 3)
        ]
        model = small(*blocks, Flatten(), Dense("dense", 48, 10))
        assert f"for number in range({first}, {first + 3}):" in emit(job(model))
        check_gradients(model)


@in_process_of("jax")
def test_layers_of_one_kind_may_differ_in_each_option(fixture: EngineFixture) -> None:
    convs = [{}, {"stride": 2}, {"padding": 1}, {"padding": ((0, 1), (1, 0))}, {"groups": 3}, {"bias": False}]
    pools = [(2,), (3, 1), (3, 1, 1), (2, 1, ((0, 1), (1, 0)))]
    pairs = [
        *((Conv("first", 3, 3, 3), Conv("second", 3, 3, 3, **options)) for options in convs),
        *((MaxPool(2), MaxPool(*sizes)) for sizes in pools),
        *((AveragePool(2), AveragePool(*sizes)) for sizes in pools),
        (AveragePool(2), AveragePool(3, 1, 1, count_padding=False)),
    ]
    for layers in pairs:
        for ordered in (layers, layers[::-1]):
            *_, (_, _, shape) = layer_shapes(ordered, (3, 9, 9))
            all_layers = (*ordered, Flatten(), Dense("dense", math.prod(shape), 10))
            check_gradients(
                msgspec.structs.replace(LENET, layers=all_layers, input_shape=(3, 9, 9), published_parameters=None)
            )


@in_process_of("jax")
def test_a_network_of_200_layers_works(fixture: EngineFixture) -> None:
    layers = tuple(layer for number in range(100) for layer in (Conv(f"conv{number}", 3, 3, 1), ReLU()))
    check_tensors(small(*layers, Flatten(), Dense("dense", 48, 10)))


@in_process_of("jax")
def test_any_residual_blocks_compute_what_the_reference_computes(fixture: EngineFixture) -> None:
    """The variables of branches never change what is still needed."""

    @settings(max_examples=12, deadline=None)
    @given(trees(2))
    def check(tree: tuple[Any, ...]) -> None:
        check_gradients(small(*named(tree, itertools.count()), Flatten(), Dense("dense", 48, 10)))

    check()


def test_a_call_that_is_too_long_has_its_arguments_in_lines_of_their_own() -> None:
    model = small(Conv("convolution" * 5, 3, 3, 3, padding=1), Flatten(), Dense("dense", 48, 10))
    lines = emit(job(model)).splitlines()
    start = lines.index("    x = conv(")
    assert lines[start + 1 : start + 3] == [f'        params, "{"convolution" * 5}", x, padding=1', "    )"]
