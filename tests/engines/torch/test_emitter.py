"""The program of PyTorch as text: what its readers see, and what differs between its uses."""

from __future__ import annotations

import difflib
import itertools
from pathlib import Path
from textwrap import dedent
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from polybench.engines.reference.network import loss_and_gradients
from polybench.engines.shared.program import import_program
from polybench.engines.torch.emitter import emit, emit_training
from polybench.networks import MODELS, find_model
from polybench.networks.initial_weights import initial_weights
from polybench.networks.layers import BatchNorm, Conv, Dense, Dropout, Flatten, ReLU, Residual
from polybench.networks.lenet import LENET
from polybench.networks.model import Model
from polybench.networks.optimizers import Optimizer
from tests.engines.emitted_programs import EXAMPLES, NAMES, changes, check_format, job, named, small, trees
from tests.lazy import needs


@pytest.mark.parametrize("name", [*MODELS, *EXAMPLES])
def test_a_program_is_formatted_and_has_no_unused_name(name: str, tmp_path: Path) -> None:
    model = EXAMPLES.get(name) or find_model(name)
    (tmp_path / "trained.py").write_text(emit_training(job(model), 3), "utf-8")
    (tmp_path / "checked.py").write_text(emit(job(model, dtype="float64", dropout="given")), "utf-8")
    check_format(tmp_path, "B905", "B023")


def test_repeated_blocks_are_one_class_and_a_loop() -> None:
    text = emit(job(find_model("resnet32")))
    assert text.count("nn.Conv2d(") == 6  # the first, two of a block, three of a block with a projection
    assert "self.stage1 = nn.Sequential(*[ResidualBlock(16) for _ in range(5)])" in text
    assert "ProjectionBlock(16, 32), *[ResidualBlock(32) for _ in range(4)]" in text
    assert "F.relu(self.norm1(self.conv1(x)), inplace=True)" in text
    assert emit(job(find_model("char-gpt"))).count("SelfAttention(128, 4, causal=True, bias=False)") == 1


def test_the_checked_program_differs_from_the_timed_one_in_type_and_masks_only() -> None:
    assert changes(emit(job()), emit(job(dtype="float64"))) == ["- DTYPE = torch.float32", "+ DTYPE = torch.float64"]
    model = find_model("mnist-mlp")
    found = changes(emit(job(model)), emit(job(model, dropout="given")))
    removed = [line[2:].strip() for line in found if line[0] == "-"]
    assert removed == [
        *("self.dropout1 = nn.Dropout(0.2)", "self.dropout2 = nn.Dropout(0.2)"),
        "inputs, labels = batch",
    ]


def test_the_exported_program_is_the_timed_one_and_a_main_part() -> None:
    timed, exported = emit(job()).splitlines(), emit_training(job(), 7).splitlines()
    removed = [line for line in difflib.ndiff(timed, exported) if line.startswith("- ")]
    assert removed == ['- """lenet in PyTorch."""']  # it goes on with how to run the program
    added = len(exported) - len(timed)
    assert added <= 60
    text = "\n".join(exported)
    assert "UNTIMED_STEPS, STEPS = 2, 7" in text
    assert "torch.set_num_threads(3)" in text
    assert "torch.set_num_interop_threads(3)" in text


def test_on_a_gpu_all_steps_are_timed_between_two_synchronizations() -> None:
    text = emit_training(job(device="cuda"), 2)
    timed = dedent(text[text.index("    timed = ") : text.index("    print(json")])
    order: list[str] = []

    def record(name: str, result: Any = None) -> Any:
        return lambda *_: (order.append(name), result)[1]

    names: dict[str, Any] = {
        "time": SimpleNamespace(perf_counter=record("clock", 0.0)),
        "torch": SimpleNamespace(cuda=SimpleNamespace(synchronize=record("synchronize"))),
        "train_step": record("step", 0.5),
    }
    names |= {"batches": [()] * 4, "UNTIMED_STEPS": 2, "STEPS": 2, "state": None, "losses": []}
    exec(timed, names)
    assert order == ["synchronize", "clock", "step", "step", "synchronize", "clock"]
    assert names["losses"] == [0.5, 0.5]
    assert len(names["seconds"]) == 1


@pytest.mark.parametrize(
    ("fields", "line"),
    [
        ({"seed": 7}, "SEED = 7"),
        ({"device": "cuda:1"}, 'DEVICE = "cuda:1"'),
        ({"device": "cuda"}, 'DEVICE = "cuda:0"'),
        ({"device": "cuda"}, "torch.backends.cudnn.allow_tf32 = False"),
        ({"device": "cuda", "precision": "tf32"}, "torch.backends.cudnn.allow_tf32 = True"),
        ({"device": "cuda", "precision": "tf32"}, 'torch.set_float32_matmul_precision("high")'),
        ({"precision": "bf16"}, '    with torch.autocast("cpu", dtype=torch.bfloat16):'),
        ({"variants": ("compile",)}, "@torch.compile(dynamic=False)"),
        (
            {"variants": ("compile",), "dtype": "float64"},
            '@torch.compile(dynamic=False, options={"layout_optimization": False})',
        ),
        (
            {"variants": ("channels_last",)},
            "    model = Network().to(DEVICE, DTYPE, memory_format=torch.channels_last)",
        ),
        ({"variants": ("math_attention",)}, "torch.backends.cuda.enable_mem_efficient_sdp(False)"),
    ],
)
def test_each_setting_is_in_the_program(fields: dict[str, Any], line: str) -> None:
    assert line in emit(job(**fields)).splitlines()
    assert line not in emit(job()).splitlines()


@pytest.mark.parametrize(
    ("optimizer", "code"),
    [
        (Optimizer("sgd", 0.5), "torch.optim.SGD(model.parameters(), lr=0.5)"),
        (Optimizer("momentum", 0.5, 0.8, 0.1), "SGD(model.parameters(), lr=0.5, momentum=0.8, weight_decay=0.1)"),
        (Optimizer("nesterov", 0.5, 0.8), "SGD(model.parameters(), lr=0.5, momentum=0.8, nesterov=True)"),
        (Optimizer("nesterov", 0.5, 0.0), "SGD(model.parameters(), lr=0.5)"),
        (Optimizer("adam", 0.5, betas=(0.8, 0.9)), "Adam(model.parameters(), lr=0.5, betas=(0.8, 0.9))"),
        (Optimizer("rmsprop", 0.5), "RMSprop(model.parameters(), lr=0.5, alpha=0.9, eps=1e-07)"),
        (Optimizer("adamw", 0.5, weight_decay=0.1), '{"params": decayed, "weight_decay": 0.1},'),
        (Optimizer(gradient_clip=0.7), "nn.utils.clip_grad_norm_(state.model.parameters(), 0.7)"),
    ],
)
def test_each_optimizer_is_as_a_user_writes_it(optimizer: Optimizer, code: str) -> None:
    text = emit(job(optimizer=optimizer))
    assert code in text
    assert text.count("state.optimizer.step()") == 1


@needs("torch")
@pytest.mark.parametrize(
    "optimizer",
    [
        Optimizer(learning_rate=0.4, lr_schedule=((3, 0.2), (5, 0.1))),
        Optimizer(learning_rate=0.4, warmup_steps=4),
        Optimizer(learning_rate=0.4, warmup_steps=2, cosine_steps=9, min_learning_rate=0.1),
        Optimizer(learning_rate=0.4, cosine_steps=6),
    ],
)
def test_the_learning_rate_is_that_of_the_schedule(optimizer: Optimizer) -> None:
    program = import_program(emit(job(optimizer=optimizer)), None)
    assert [program.learning_rate(step) for step in range(12)] == [
        optimizer.learning_rate_at(step) for step in range(12)
    ]


@needs("torch")
@settings(max_examples=60, deadline=None)
@given(st.lists(NAMES, min_size=7, max_size=7, unique=True))
def test_any_names_of_layers_give_a_program_whose_tensors_have_these_names(names: list[str]) -> None:
    conv, norm, inner, second, dense, last, dropout = names
    block = Residual((Conv(inner, 4, 4, 1), BatchNorm(second, 4)))
    head = (ReLU(), Flatten(), Dense(dense, 16, 5), Dropout(dropout, 0.5), Dense(last, 5, 10))
    check_tensors(small(Conv(conv, 3, 4, 3), BatchNorm(norm, 4), block, *head))


def check_tensors(model: Model) -> None:
    """Check that a program returns the weights that it was given, each with its name."""
    random = np.random.default_rng(1)
    weights = {name: random.random(value.shape, np.float32) for name, value in initial_weights(model, 0).items()}
    program = import_program(emit(job(model)), None)
    found = program.weights(program.setup(weights))
    assert {name: found[name].tobytes() for name in weights} == {name: one.tobytes() for name, one in weights.items()}


@needs("torch")
@pytest.mark.parametrize("prefix", ["block", "stage1.block", "layer1.", "stage{x}.b{0}", "encoder.stage.block"])
@pytest.mark.parametrize("first", [0, 1, 3])
def test_numbered_blocks_keep_the_names_of_their_tensors(prefix: str, first: int) -> None:
    blocks = [
        Residual((Conv(f"{prefix}{number}.conv", 3, 3, 1), BatchNorm(f"{prefix}{number}.norm", 3)))
        for number in range(first, first + 3)
    ]
    model = small(*blocks, Flatten(), Dense("dense", 48, 10))
    assert "for _ in range(3)" in emit(job(model))
    check_tensors(model)


@needs("torch")
def test_a_network_of_200_layers_works() -> None:
    layers = tuple(layer for number in range(100) for layer in (Conv(f"conv{number}", 3, 3, 1), ReLU()))
    check_tensors(small(*layers, Flatten(), Dense("dense", 48, 10)))


@needs("torch")
@settings(max_examples=80, deadline=None)
@given(trees(2))
@example(((((("norm",), ()), ReLU()), (((), ()),)),))
def test_any_residual_blocks_compute_what_the_reference_computes(tree: tuple[Any, ...]) -> None:
    """In-place operations and the variables of branches never change what is still needed."""
    check_gradients(small(*named(tree, itertools.count()), Flatten(), Dense("dense", 48, 10)))


def check_gradients(model: Model) -> None:
    import torch

    random = np.random.default_rng(2)
    weights = {name: one.astype(np.float64) for name, one in initial_weights(model, 1).items()}
    images, labels = random.normal(size=(4, *model.input_shape)), random.integers(model.classes, size=4)
    expected, gradients, _ = loss_and_gradients(model, weights, images, labels)
    program = import_program(emit(job(model, dtype="float64")), None)
    state = program.setup(weights)
    loss = program.train_step(state, program.load(images, labels))
    named_gradients = {name: weight.grad for name, weight in state.model.named_parameters()}
    assert loss.item() == pytest.approx(expected, rel=1e-10)
    for name, gradient in getattr(program, "canonical", dict)(named_gradients).items():
        scale = max(1e-3, float(np.abs(gradients[name]).max()))
        assert torch.allclose(gradient, torch.from_numpy(gradients[name]), rtol=1e-7, atol=1e-9 * scale), name


@needs("torch")
def test_residual_blocks_without_a_layer_between_them_keep_their_shortcuts() -> None:
    def block(name: str) -> Residual:
        return Residual((Conv(f"{name}_conv", 3, 3, 1), BatchNorm(f"{name}_norm", 3)))

    deeper = Residual((block("c"), block("d")), (Conv("s", 3, 3, 1), ReLU()))
    check_gradients(small(block("a"), block("b"), deeper, block("e"), Flatten(), Dense("dense", 48, 10)))


@pytest.mark.parametrize("variant", ["", "compile", "channels_last", "foreach", "math_attention", "cudagraph"])
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_every_variant_is_formatted_python(variant: str, precision: str, tmp_path: Path) -> None:
    device = "cuda" if variant == "cudagraph" else "cpu"
    optimizer = Optimizer("sgd", 0.1, gradient_clip=1.0)
    for model in (find_model("lenet"), find_model("char-gpt")):
        chosen = job(model, optimizer, device, precision=precision, variants=(variant,) if variant else ())
        (tmp_path / f"{model.classes}.py").write_text(emit_training(chosen, 3), "utf-8")
    check_format(tmp_path, "B905", "B023")


@needs("torch")
def test_the_engine_says_which_program_it_has_imported() -> None:
    from polybench.engines.torch.engine import TorchEngine

    engine = TorchEngine()
    engine.build(job(), initial_weights(LENET, 0))
    assert engine.program == emit(job())
    assert Path(engine._program.__file__ or "").read_text("utf-8") == engine.program
