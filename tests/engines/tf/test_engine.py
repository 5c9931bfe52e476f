"""TensorFlow engine, checked inside its process."""

from __future__ import annotations

import importlib
import tempfile
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import msgspec
import numpy as np
import pytest

from polybench.engines.base import Engine, Weights
from polybench.engines.job import Job
from polybench.engines.reference.layers import batch_statistics
from polybench.engines.tf.validation import validate
from polybench.errors import EngineUnavailable
from polybench.networks.initial_weights import initial_weights
from polybench.networks.model import Model
from polybench.schema.options import Workload
from tests.engines.engine_fixtures import EngineFixture, in_process_of, make_pipeline_input
from tests.example_networks import EVERYTHING, FEATURES, SEQUENCES
from tests.small_datasets import job


@in_process_of("tf")
def test_thread_pools_have_the_size_of_the_study(fixture: EngineFixture) -> None:
    import tensorflow as tf

    from polybench.engines.tf import engine as tf_engine

    fixture.build()
    pools = tf.config.threading
    assert pools.get_intra_op_parallelism_threads() == pools.get_inter_op_parallelism_threads() == 2
    with patch.object(tf_engine, "set_threads") as sized:  # the size of a pool that has run is fixed
        fixture.build(threads=3)
    sized.assert_called_once_with(3)


KERAS_PROGRAM = """
import keras

DTYPE = "float32"
keras.config.set_floatx(DTYPE)
first = keras.layers.Dense(2)  # its type is that of all later layers


def setup():
    return keras.layers.Dense(2)


def load(images, labels):
    return images


def train_step(state, batch):
    return 0.0
"""


@in_process_of("tf")
def test_a_program_is_checked_in_float64_and_then_as_it_is_timed(fixture: EngineFixture) -> None:
    from polybench.engines.program.engine import ProgramEngine

    with tempfile.TemporaryDirectory() as folder:
        (path := Path(folder, "mine.py")).write_text(KERAS_PROGRAM)
        engine = ProgramEngine(str(path))
        for dtype in ("float64", "float32"):
            engine.build(msgspec.structs.replace(job(), dtype=dtype), {})
            assert engine._state.compute_dtype == dtype


@in_process_of("tf")
def test_the_step_is_traced_once(fixture: EngineFixture) -> None:
    fixture.build()
    for _ in range(3):
        fixture.engine.reset()
        fixture.engine.run_steps(0, 3)
    assert fixture.engine._state.compiled.experimental_get_tracing_count() == 1


@in_process_of("tf")
def test_fit_is_timed_in_blocks_and_traced_once(fixture: EngineFixture) -> None:
    fixture.build(variants=("keras_fit",))
    assert fixture.engine.timing_resolution == "block"
    assert fixture.engine.has_call_overhead  # so an epoch is a single call
    fixture.engine.run_steps(0, 1)
    step = fixture.engine._model.train_function
    for n in (1, 2, 3):
        fixture.engine.reset()
        fixture.engine.run_steps(0, n)
    assert fixture.engine._model.train_function is step


@in_process_of("tf")
def test_fit_continues_the_pipeline_until_batches_are_preloaded(fixture: EngineFixture) -> None:
    engine: Any = fixture.engine
    fixture.build(variants=("keras_fit",))
    engine.open_pipeline(make_pipeline_input(0, False)[0])
    with patch.object(engine._pipeline, "dataset") as dataset:
        engine._dataset(range(6, 8))  # of four batches
        dataset.assert_called_once_with(2, 2)
        engine.load(fixture.images, fixture.labels)
        ((_, labels),) = engine._dataset(range(6, 7))
        dataset.assert_called_once()
    np.testing.assert_array_equal(labels, fixture.labels[2])


@in_process_of("tf")
def test_a_dataset_of_the_pipeline_has_the_batches_of_its_steps(fixture: EngineFixture) -> None:
    engine: Any = fixture.engine
    fixture.build(variants=("keras_fit",))
    for workers in (0, 2):
        source, expected = make_pipeline_input(workers, True)
        engine.open_pipeline(source)
        for first, n, steps in ((0, 4, [0, 1, 2, 3]), (0, 1, [0]), (1, 2, [1, 2]), (2, 1, [2]), (2, -1, [2, 3])):
            batches = [(images.numpy(), labels.numpy()) for images, labels in engine._pipeline.dataset(first, n)]
            assert len(batches) == len(steps), (first, n)
            for (images, labels), step in zip(batches, steps, strict=True):
                np.testing.assert_array_equal(images.transpose(0, 3, 1, 2), expected[step])
                np.testing.assert_array_equal(labels, source.labels[source.order[step]])


@in_process_of("tf")
def test_only_the_requested_steps_omit_the_all_reduce(fixture: EngineFixture) -> None:
    from polybench.engines.tf.engine import TensorFlowEngine

    engine: Any = TensorFlowEngine()
    engine._replicas = SimpleNamespace(without_allreduce=lambda *_: "without all-reduce")
    engine._state = SimpleNamespace(compiled="step", optimizer=None)
    with patch.object(engine, "run_steps", lambda _, n: (engine._state.compiled, n)):
        assert engine.run_steps_without_allreduce(0, 3) == ("without all-reduce", 3)
        assert engine.run_steps(0, 2) == ("step", 2)


def job_of(model: Model, *variants: str, device: str = "cpu", **changes: Any) -> Job:
    workload = Workload(model.name, "noise", 4, model.optimizer, "fp32", 2)
    return Job(model, workload, device, "float64", variants, **changes)


def build_everything(engine: Engine, dropout: str, *variants: str) -> None:
    random = np.random.default_rng(0)
    images = random.random((4, 4, *EVERYTHING.input_shape), dtype=np.float32)
    labels = random.integers(0, EVERYTHING.classes, (4, 4))
    engine.build(job_of(EVERYTHING, *variants, dropout=dropout), initial_weights(EVERYTHING, 0))
    engine.load(images, labels)


def losses_and_weights(engine: Engine, snapshots: bool = False) -> tuple[list[float], Weights]:
    losses = []
    engine.reset()
    for step in range(3):
        if snapshots:
            engine.snapshot(step)
        engine.run_steps(step, 1)
        losses.append(engine.loss())
    return losses, engine.snapshot(3).weights


def equal(a: Weights, b: Weights) -> bool:
    return a.keys() == b.keys() and all(np.allclose(a[name], b[name], rtol=1e-9) for name in b)


@in_process_of("tf")
def test_snapshots_keep_and_reset_restores_statistics_and_dropout(fixture: EngineFixture) -> None:
    build_everything(fixture.engine, "own")
    losses, weights = losses_and_weights(fixture.engine)
    again, weights_again = losses_and_weights(fixture.engine, snapshots=True)
    assert np.allclose(losses, again, rtol=1e-9)
    assert equal(weights, weights_again)
    assert not np.allclose(weights["norm1.running_mean"], 0)


@in_process_of("tf")
def test_fixed_masks_change_each_step_without_retracing_and_in_fit(fixture: EngineFixture) -> None:
    build_everything(fixture.engine, "given")
    _, expected = losses_and_weights(fixture.engine)
    assert fixture.engine._state.compiled.experimental_get_tracing_count() == 1
    build_everything(fixture.engine, "given", "keras_fit")
    fixture.engine.run_steps(0, 3)
    assert equal(fixture.engine.snapshot(3).weights, expected)


@in_process_of("tf")
def test_batch_statistics_equal_eigens_partial_sums_bit_for_bit(fixture: EngineFixture) -> None:
    import tensorflow as tf

    from polybench.engines.shared.keras_state import EIGEN_PARTIAL_SUMS

    x = np.random.default_rng(0).random((4, 64, 64, 8), dtype=np.float32)
    moments = tf.nn.moments(tf.constant(x), (0, 1, 2))
    expected = batch_statistics(np.moveaxis(x, -1, 1), EIGEN_PARTIAL_SUMS)
    assert all(np.array_equal(a.numpy(), b) for a, b in zip(moments, expected, strict=True))


@in_process_of("tf")
def test_tf32_is_off(fixture: EngineFixture) -> None:
    import tensorflow as tf

    fixture.build()
    assert not tf.config.experimental.tensor_float_32_execution_enabled()


def test_eager_and_xla_cannot_be_combined() -> None:
    with pytest.raises(EngineUnavailable, match="eager has no tf"):
        validate(job_of(EVERYTHING, "eager", "xla"))


def build_sequences(engine: Any, *variants: str) -> None:
    random = np.random.default_rng(0)
    tokens = random.integers(0, SEQUENCES.vocabulary_size, (1, 4, *SEQUENCES.input_shape), dtype=np.int32)
    engine.build(job_of(SEQUENCES, *variants), initial_weights(SEQUENCES, 0))
    engine.load(tokens, random.integers(0, SEQUENCES.classes, (1, 4)))


def operations(engine: Any) -> Counter[str]:
    """Count the operations of a step by type, including those in loops.

    Constants are excluded: if Keras fails to fuse both directions, it leaves unused constants.
    """
    graph = engine._state.compiled.get_concrete_function(*engine._batches[0]).graph.as_graph_def()
    graphs = [graph.node, *(function.node_def for function in graph.library.function)]
    return Counter(node.op for nodes in graphs for node in nodes if node.op != "Const")


@pytest.mark.wide  # three graphs of LSTMs; the variant without a GPU is the engine
@in_process_of("tf")
def test_no_fusion_has_no_effect_on_the_cpu_where_keras_always_uses_a_loop(fixture: EngineFixture) -> None:
    build_sequences(fixture.engine)
    plain = operations(fixture.engine)
    assert plain["While"] + plain["StatelessWhile"] > 0
    build_sequences(fixture.engine, "no_fusion")
    assert operations(fixture.engine) == plain
    build_sequences(fixture.engine, "unrolled")
    assert operations(fixture.engine) != plain


@in_process_of("tf")
def test_no_fusion_disables_the_cudnn_kernel_for_every_lstm(fixture: EngineFixture) -> None:
    import tensorflow as tf

    rnn = importlib.import_module("keras.src.backend.tensorflow.rnn")
    missing = tf.errors.NotFoundError(None, None, "no GPU")
    with (
        patch.object(rnn, "_is_gpu_available", return_value=True),
        patch.object(rnn, "_cudnn_lstm", autospec=True, side_effect=missing) as fused,
    ):
        build_sequences(fixture.engine)
        fixture.engine.run_steps(0, 1)
        assert fused.call_count == 6  # four of them for two bidirectional LSTMs
        fused.reset_mock()
        build_sequences(fixture.engine, "no_fusion")
        fixture.engine.run_steps(0, 1)
        assert not fused.called


@pytest.mark.parametrize("variant", ["no_fusion", "unrolled"])
def test_lstm_variants_require_an_lstm(variant: str) -> None:
    validate(job_of(SEQUENCES, variant))
    with pytest.raises(EngineUnavailable, match="everything has no LSTM"):
        validate(job_of(EVERYTHING, variant))


def test_xla_is_unavailable_with_the_cudnn_lstm_kernel() -> None:
    validate(job_of(SEQUENCES, "xla"))
    validate(job_of(EVERYTHING, "xla", device="cuda"))
    validate(job_of(FEATURES, "xla", device="cuda"))  # cuDNN does not support its hard sigmoid
    validate(job_of(SEQUENCES, "no_fusion", "xla", device="cuda"))
    with pytest.raises(EngineUnavailable, match="XLA does not support") as error:
        validate(job_of(SEQUENCES, "xla", device="cuda"))
    assert "tf+no_fusion+xla" in str(error.value.hint)
