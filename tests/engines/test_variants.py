"""Effects of variants on their engines, observed in their processes, and that they compute the same.

test_parity.py compares each with the reference as well, in float64 and after more calls.

ADD A VARIANT: an entry in EFFECTS, with a function whose result differs from that of the plain engine.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import pytest

from polybench.data import synthetic
from polybench.run import run_study
from polybench.runner.progress import NullProgress
from polybench.schema.options import Study
from tests.engine_matrix import CHAINED, LENET_CELLS
from tests.engine_workers import Processes, fast_compilation
from tests.engines.conftest import result_or_skip
from tests.engines.engine_fixtures import EngineFixture, in_process_of, load_fixture
from tests.example_networks import SEQUENCES


def channels_last(engine: Any) -> object:
    """Memory order of the first convolution's output."""
    torch = importlib.import_module("torch")
    orders = []
    convolution = engine._network.conv1
    hook = convolution.register_forward_hook(
        lambda _module, _inputs, output: orders.append(
            (output.is_contiguous(), output.is_contiguous(memory_format=torch.channels_last))
        )
    )
    engine.run_steps(0, 1)
    hook.remove()
    return orders


def compiled(_: Any) -> object:
    """Number of graphs that the compiler has generated since the engine was built."""
    return importlib.import_module("polybench.engines.torch.training").compiled_graphs()


def eager(engine: Any) -> object:
    """Return, for each convolution called from Python in a step, True if it runs eagerly."""
    executing_eagerly = importlib.import_module("tensorflow").executing_eagerly
    calls: list[bool] = []
    layer_class = type(engine._model.get_layer("conv1"))
    original = layer_class.call

    def call(*arguments: Any) -> Any:
        calls.append(executing_eagerly())
        return original(*arguments)

    with patch.object(layer_class, "call", call):
        engine.run_steps(0, 1)
    return calls


def keras_fit(engine: Any) -> object:
    """Return True if Keras has created the training function of `model.fit`."""
    return engine._model.train_function is not None


def xla(engine: Any) -> object:
    """Return True if XLA compiled the step; otherwise TensorFlow has no compiler IR."""
    try:
        return "HloModule" in engine._state.compiled.experimental_get_compiler_ir(*engine._batches[0])(stage="hlo")
    except ValueError as error:
        return "jit_compile=True" not in str(error)


def keras_tensors(engine: Any) -> object:
    """Framework of the model's output tensors."""
    images, _ = engine._batches[0]
    return type(engine._model(images)).__module__.partition(".")[0]


def foreach(engine: Any) -> object:
    """Names of the optimizer functions that a step calls."""
    optimizer = importlib.import_module("torch.optim.sgd")
    calls: list[str] = []
    for name in ("_single_tensor_sgd", "_multi_tensor_sgd"):
        original = getattr(optimizer, name)

        def record(*args: Any, original: Any = original, name: str = name, **kwargs: Any) -> Any:
            calls.append(name)
            return original(*args, **kwargs)

        setattr(optimizer, name, record)
    engine.run_steps(0, 1)
    return calls


def attention_kernels(_: Any) -> object:
    """Operations of PyTorch that multi-head attention calls below its own function."""
    torch = importlib.import_module("torch")
    heads = torch.rand(1, 2, 8, 4)
    with torch.profiler.profile() as profile:
        torch.nn.functional.scaled_dot_product_attention(heads, heads, heads)
    prefix = "aten::_scaled_dot_product_"
    return {event.name.removeprefix(prefix) for event in profile.events() if event.name.startswith(prefix)}


def julia_threads(_: Any) -> object:
    """Number of Julia threads in this process."""
    return int(importlib.import_module("juliacall").Main.seval("Threads.nthreads()"))


def julia_full_gcs(engine: Any) -> object:
    """Return True if nearly every step has a full collection; one during another thread's is dropped."""
    before = engine.gc_stats().full_collections
    engine.run_steps(0, 8)
    return engine.gc_stats().full_collections - before >= 7


def julia_collector(engine: Any) -> object:
    """Return True if the garbage collector is enabled in timed steps."""
    main = importlib.import_module("juliacall").Main
    main.PolyBench.disable_gc(engine._trainer.mode)
    return bool(main.seval("GC.enable(true)"))


def julia_step(engine: Any) -> object:
    """Name of the mode that selects the step function."""
    step_mode = importlib.import_module("juliacall").Main.seval("trainer -> typeof(trainer.mode).parameters[1]")
    return str(step_mode(engine._trainer))


def julia_blas(engine: Any) -> object:
    """Return True if Julia's BLAS is MKL."""
    return "mkl" in engine.probe().build["blas"]


class Effect(NamedTuple):
    """Results of a function for the plain engine and for the engine with the variant."""

    observe: Callable[[Any], object]
    plain: object
    changed: object


EFFECTS: dict[str, Effect] = {
    "torch+channels_last": Effect(channels_last, [(True, False)], [(False, True)]),
    "torch+compile": Effect(compiled, 0, 1),
    "torch+foreach": Effect(foreach, ["_single_tensor_sgd"], ["_multi_tensor_sgd"]),
    "torch+math_attention": Effect(attention_kernels, {"flash_attention_for_cpu"}, {"attention_math"}),
    "tf+eager": Effect(eager, [], [True, True]),
    "tf+keras_fit": Effect(keras_fit, False, True),
    "tf+xla": Effect(xla, False, True),
    "keras+torch": Effect(keras_tensors, "tensorflow", "torch"),
    "flux+framework_threads": Effect(julia_threads, 2, 1),
    "flux+gc_every_step": Effect(julia_full_gcs, False, True),
    "flux+gc_off": Effect(julia_collector, True, False),
    "flux+train": Effect(julia_step, "update", "train"),
    "flux+enzyme": Effect(julia_step, "update", "enzyme"),
    "flux+mooncake": Effect(julia_step, "update", "mooncake"),
    "flux+reactant": Effect(julia_step, "update", "reactant"),
    "flux+mkl": Effect(julia_blas, False, True),
}


class Observed(NamedTuple):
    """What EFFECTS[name]'s function returns after three steps of `lenet`, and the losses of the steps."""

    effect: object
    losses: list[float]


def observe_variant(name: str, variants: tuple[str, ...], folder: Path) -> Observed:
    """Train with these variants."""
    if dynamo := sys.modules.get("torch._dynamo"):  # drop code that other tests in this process compiled
        dynamo.reset()
        dynamo.utils.counters.clear()
    fixture = load_fixture(name.partition("+")[0], folder)
    fixture.build(variants=variants)
    engine = fixture.engine
    losses = []
    for step in range(3):
        engine.run_steps(step, 1)
        losses.append(engine.loss())
    effect = EFFECTS[name].observe(engine)
    assert engine.inactive_variant() == ""
    engine.close()
    return Observed(effect, losses)


VARIANTS = [configuration for configuration in LENET_CELLS if "+" in configuration and configuration not in CHAINED]


@pytest.mark.parametrize("name", VARIANTS)
def test_a_variant_has_its_effect_and_computes_the_same_as_the_plain_engine(
    name: str, processes: Processes, problem: Path
) -> None:
    assert name in EFFECTS, "add the effect of this variant"
    engine, variant = name.split("+")
    _, plain, changed = EFFECTS[name]
    compilation = fast_compilation(engine)
    without = result_or_skip(processes(engine, **compilation).submit(observe_variant, name, (), problem))
    # Skipped without a package that only the variant needs.
    process = processes(engine, (variant,), **compilation)
    observed = result_or_skip(process.submit(observe_variant, name, (variant,), problem))
    assert without.effect == plain != changed == observed.effect
    assert observed.losses == pytest.approx(without.losses, rel=1e-5)
    assert len({*observed.losses}) == 3


class TurnedOff(NamedTuple):
    """A configuration that a variable turns off without an error, and the reported problem."""

    configuration: str
    variable: str
    value: str
    problem: str


TURNED_OFF = (
    TurnedOff("torch+compile", "TORCHDYNAMO_DISABLE", "1", "torch.compile ran the step eagerly"),
    TurnedOff("torch+compile", "TORCH_COMPILE_OVERRIDE_BACKENDS", ">=0:eager", "torch.compile ran the step eagerly"),
    TurnedOff("jax", "JAX_DISABLE_JIT", "1", "JAX ran the step without jit"),
    TurnedOff("keras+jax", "JAX_DISABLE_JIT", "1", "JAX ran the step without jit"),
)


@pytest.mark.parametrize("off", TURNED_OFF, ids=lambda off: f"{off.configuration} {off.variable}")
def test_a_configuration_that_is_silently_off_fails_with_the_variable(
    off: TurnedOff, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip(off.configuration.partition("+")[0])
    monkeypatch.setenv(off.variable, off.value)
    monkeypatch.setitem(synthetic.IMAGES, "train", 64)
    study = Study(engines=(off.configuration,), devices=("cpu",), data="synthetic", batch_size=4, parity_steps=1)
    (result,) = run_study(study, NullProgress(), store=None, parity_check="only").results
    assert (result.status, result.reason) == ("failed", f"{off.problem}: expected compiled code: unset {off.variable}")
    assert result.versions["inherited"][off.variable] == off.value


@pytest.mark.wide
def test_a_forward_pass_of_an_lstm_is_not_called_compiled() -> None:
    pytest.importorskip("torch")
    study = Study(
        engines=("torch+compile",), devices=("cpu",), model=SEQUENCES, data="synthetic", inference=True, parity_steps=1
    )
    (result,) = run_study(study, NullProgress(), store=None, parity_check="only").results
    assert (result.status, result.reason) == (
        "failed",
        "torch.compile ran the step eagerly: PyTorch does not compile nn.LSTM: use torch without this variant",
    )


@in_process_of("tf", "keras")
def test_functions_that_run_eagerly_are_reported(fixture: EngineFixture) -> None:
    tensorflow = importlib.import_module("tensorflow")
    fixture.build()
    tensorflow.config.run_functions_eagerly(True)
    fixture.engine.run_steps(0, 1)
    assert "TensorFlow ran every tf.function eagerly" in fixture.engine.inactive_variant()
    tensorflow.config.run_functions_eagerly(False)
    fixture.engine.run_steps(0, 1)
    assert fixture.engine.inactive_variant() == ""
