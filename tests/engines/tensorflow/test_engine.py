"""What only a process with TensorFlow can show."""

from __future__ import annotations

import importlib
from collections import Counter
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest

from polybench.core.errors import Unavailable
from polybench.core.job import Job
from polybench.core.model import Model
from polybench.core.spec import Workload
from polybench.engines.base import Engine, Weights
from polybench.engines.reference.layers import batch_statistics
from polybench.engines.tensorflow.variants import check
from polybench.models.initial_weights import initial_weights
from tests.engines import pipeline_checks
from tests.engines.lab import Check, Lab, RunCheck, in_process_of
from tests.networks import EVERYTHING, FEATURES, SEQUENCES


@in_process_of("tf")
def test_threads_are_those_of_the_study(lab: Lab) -> None:
    import tensorflow as tf

    lab.build()
    pools = tf.config.threading
    assert pools.get_intra_op_parallelism_threads() == pools.get_inter_op_parallelism_threads() == 2


@in_process_of("tf")
def test_the_step_is_traced_once(lab: Lab) -> None:
    lab.build()
    for _ in range(3):
        lab.engine.reset()
        lab.engine.run_steps(0, 3)
    assert lab.engine._step.experimental_get_tracing_count() == 1


@in_process_of("tf")
def test_fit_is_timed_in_blocks_and_traced_once(lab: Lab) -> None:
    lab.build(variants=("keras_fit",))
    assert lab.engine.sample_kind == "block"
    assert lab.engine.calls_cost  # an epoch is trained in one
    lab.engine.run_steps(0, 1)
    step = lab.engine._model.train_function
    for n in (1, 2, 3):
        lab.engine.reset()
        lab.engine.run_steps(0, n)
    assert lab.engine._model.train_function is step


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


def same(a: Weights, b: Weights) -> bool:
    return a.keys() == b.keys() and all(np.allclose(a[name], b[name], rtol=1e-9) for name in b)


@in_process_of("tf")
def test_a_snapshot_changes_neither_statistics_nor_dropout_and_a_reset_brings_both_back(lab: Lab) -> None:
    build_everything(lab.engine, "own")
    losses, weights = losses_and_weights(lab.engine)
    again, weights_again = losses_and_weights(lab.engine, snapshots=True)
    assert np.allclose(losses, again, rtol=1e-9)
    assert same(weights, weights_again)
    assert not np.allclose(weights["norm1.running_mean"], 0)


@in_process_of("tf")
def test_given_masks_change_from_step_to_step_also_in_one_fit_without_another_trace(lab: Lab) -> None:
    build_everything(lab.engine, "given")
    _, expected = losses_and_weights(lab.engine)
    assert lab.engine._step.experimental_get_tracing_count() == 1
    build_everything(lab.engine, "given", "keras_fit")
    lab.engine.run_steps(0, 3)
    assert same(lab.engine.snapshot(3).weights, expected)


@in_process_of("tf")
def test_batch_statistics_are_eigens_running_sums_bit_for_bit(lab: Lab) -> None:
    import tensorflow as tf

    from polybench.engines.support.keras.layers import _EIGEN_SUMS

    x = np.random.default_rng(0).random((4, 64, 64, 8), dtype=np.float32)
    found = tf.nn.moments(tf.constant(x), (0, 1, 2))
    expected = batch_statistics(np.moveaxis(x, -1, 1), _EIGEN_SUMS)
    assert all(np.array_equal(a.numpy(), b) for a, b in zip(found, expected, strict=True))


@in_process_of("tf")
def test_tf32_is_off(lab: Lab) -> None:
    import tensorflow as tf

    lab.build()
    assert not tf.config.experimental.tensor_float_32_execution_enabled()


@in_process_of("tf")
def test_eager_and_xla_exclude_each_other(lab: Lab) -> None:
    with pytest.raises(Unavailable, match="XLA compiles"):
        lab.build(variants=("eager", "xla"))


def build_sequences(engine: Any, *variants: str) -> None:
    random = np.random.default_rng(0)
    tokens = random.integers(0, SEQUENCES.vocabulary, (1, 4, *SEQUENCES.input_shape), dtype=np.int32)
    engine.build(job_of(SEQUENCES, *variants), initial_weights(SEQUENCES, 0))
    engine.load(tokens, random.integers(0, SEQUENCES.classes, (1, 4)))


def operations(engine: Any) -> Counter[str]:
    """How many of each kind a step has, those of its loops included.

    Not constants: where Keras has tried in vain to fuse both directions, it leaves some that nothing takes.
    """
    graph = engine._step.get_concrete_function(*engine._batches[0]).graph.as_graph_def()
    nodes = [graph.node, *(function.node_def for function in graph.library.function)]
    return Counter(node.op for part in nodes for node in part if node.op != "Const")


@in_process_of("tf")
def test_nofuse_changes_nothing_on_the_cpu_where_keras_has_the_loop_only(lab: Lab) -> None:
    build_sequences(lab.engine)
    plain = operations(lab.engine)
    assert plain["While"] + plain["StatelessWhile"] > 0
    build_sequences(lab.engine, "nofuse")
    assert operations(lab.engine) == plain
    build_sequences(lab.engine, "unrolled")
    assert operations(lab.engine) != plain


@in_process_of("tf")
def test_nofuse_keeps_every_lstm_from_cudnns_kernel_where_there_is_a_gpu(lab: Lab) -> None:
    import tensorflow as tf

    rnn = importlib.import_module("keras.src.backend.tensorflow.rnn")
    missing = tf.errors.NotFoundError(None, None, "there is no GPU")
    with (
        patch.object(rnn, "_is_gpu_available", return_value=True),
        patch.object(rnn, "_cudnn_lstm", autospec=True, side_effect=missing) as fused,
    ):
        build_sequences(lab.engine)
        lab.engine.run_steps(0, 1)
        assert fused.call_count == 6  # of which four are those of both directions
        fused.reset_mock()
        build_sequences(lab.engine, "nofuse")
        lab.engine.run_steps(0, 1)
        assert not fused.called


@pytest.mark.parametrize("variant", ["nofuse", "unrolled"])
def test_variants_of_lstms_want_one(variant: str) -> None:
    check(job_of(SEQUENCES, variant))
    with pytest.raises(Unavailable, match="everything has no LSTM to"):
        check(job_of(EVERYTHING, variant))


def test_xla_has_no_kernel_of_cudnn() -> None:
    check(job_of(SEQUENCES, "xla"))
    check(job_of(EVERYTHING, "xla", device="cuda"))
    check(job_of(FEATURES, "xla", device="cuda"))  # its hard sigmoid is not in cuDNN's
    check(job_of(SEQUENCES, "nofuse", "xla", device="cuda"))
    with pytest.raises(Unavailable, match="XLA has none") as found:
        check(job_of(SEQUENCES, "xla", device="cuda"))
    assert "tf+nofuse+xla" in str(found.value.remedy)


@in_process_of("tf")
def test_a_missing_gpu_is_unavailable_with_a_remedy(lab: Lab) -> None:
    with pytest.raises(Unavailable) as missing:
        lab.build(device="cuda:99")
    assert missing.value.reason
    assert missing.value.remedy


@pytest.mark.parametrize("check", pipeline_checks.CHECKS)
def test_the_pipeline(run_check: RunCheck, check: Check) -> None:
    run_check("tf", check)
