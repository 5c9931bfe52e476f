from __future__ import annotations

import tempfile
import warnings
from pathlib import Path
from typing import Any
from unittest.mock import patch

import msgspec
import numpy as np
import pytest

from polybench.engines.base import Array, Engine, Weights
from polybench.engines.job import SINGLE_RANK, Job, Rank
from polybench.engines.reference.engine import ReferenceEngine
from polybench.engines.shared.program import import_program
from polybench.engines.torch.emitter import emit_layer
from polybench.errors import EngineUnavailable
from polybench.networks.initial_weights import initial_weights
from polybench.networks.layers import BatchNorm, Conv, Dropout, Flatten, ReLU, Residual
from polybench.networks.model import Model
from polybench.networks.optimizers import Optimizer
from polybench.parity_check.comparison import vary_constants
from polybench.schema.options import Workload
from tests.engines.engine_fixtures import EngineFixture, in_process_of, make_pipeline_input
from tests.example_networks import EVERYTHING, PADDED, PATCHED, SEQUENCES, TEXT


@in_process_of("torch")
def test_only_compile_reports_cached_code(fixture: EngineFixture) -> None:
    fixture.build()
    assert fixture.engine.startup_detail() == {}
    fixture.build(variants=("compile",))
    assert fixture.engine.startup_detail() == {"cached_code": 1.0}


@in_process_of("torch")
def test_batches_use_the_memory_mapped_file_without_a_copy(fixture: EngineFixture) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fixture.build()
    first, second = fixture.engine._batches[0][0], fixture.engine._batches[1][0]
    assert first.data_ptr() == fixture.images.ctypes.data
    assert second.data_ptr() == fixture.images.ctypes.data + fixture.images[0].nbytes


@in_process_of("torch")
def test_channels_last_batches_are_converted_when_loaded(fixture: EngineFixture) -> None:
    import torch

    fixture.build(variants=("channels_last",))
    batch = fixture.engine._batches[1][0]
    assert batch.is_contiguous(memory_format=torch.channels_last)
    assert np.array_equal(batch.numpy(), fixture.images[1])


@in_process_of("torch")
def test_in_place_operations_do_not_change_results(fixture: EngineFixture) -> None:
    import torch

    block = Residual((ReLU(), Conv("second", 3, 3, 1), BatchNorm("norm", 3), ReLU(), ReLU()))
    head = ReLU(), Dropout("dropout", 0.5), ReLU(), Flatten()
    layers = (ReLU(), Residual(()), Conv("first", 3, 3, 1), block, *head)
    network = import_program(emit_layer(layers, (3, 8, 8)), None).Network()
    network.dropout.p = 0.0
    images = torch.randn(2, 3, 8, 8)
    original = images.clone()
    outputs = network(images)
    assert torch.equal(images, original)
    x = network.first(2 * images.relu())
    expected = (x + network.norm(network.second(x.relu())).relu()).relu().flatten(1)
    assert torch.equal(outputs, expected)
    weights = [network.first.weight, network.second.weight, network.norm.weight]
    gradients = (torch.autograd.grad(result.sum(), weights) for result in (outputs, expected))
    assert all(map(torch.equal, *gradients))


@in_process_of("torch")
def test_each_rank_draws_dropout_masks_of_its_own(fixture: EngineFixture) -> None:
    import torch

    from polybench.engines.torch.replicas import Replicas

    fixture.build()
    engine: Any = fixture.engine
    with patch.object(engine, "_replicas", Replicas(Rank(2, 4, ""))):
        engine.reset()
        assert torch.initial_seed() == engine._job.seed + 2


@in_process_of("torch")
def test_a_restored_rank_draws_masks_of_its_own_that_follow_from_the_saved_generator(fixture: EngineFixture) -> None:
    import torch

    from polybench.engines.torch.replicas import Replicas

    fixture.build()
    engine: Any = fixture.engine
    engine.run_steps(0, 1)
    torch.manual_seed(7)
    state = engine.training_state()
    saved = torch.rand(4).tolist()

    def drawn(number: int) -> list[float]:
        torch.manual_seed(100)  # of another process
        with patch.object(engine, "_replicas", Replicas(Rank(number, 3, ""))):
            engine.restore_training_state(state)
        return torch.rand(4).tolist()

    of_ranks = [drawn(number) for number in range(3)]
    assert of_ranks[0] == saved
    assert len({tuple(values) for values in of_ranks}) == 3
    assert [drawn(number) for number in range(3)] == of_ranks


@in_process_of("torch")
def test_ranks_have_consecutive_gpus_from_that_of_the_job(fixture: EngineFixture) -> None:
    from polybench.engines.torch.replicas import Replicas

    fixture.build()
    engine: Any = fixture.engine
    found = [
        Replicas(rank).device(msgspec.structs.replace(engine._job, device=device))
        for device, rank in (("cuda:1", Rank(0, 4, "")), ("cuda:1", Rank(2, 4, "")), ("cuda", Rank(2, 4, "")))
    ]
    assert found == ["cuda:1", "cuda:3", "cuda:2"]
    assert [Replicas(rank).device(engine._job) for rank in (SINGLE_RANK, Rank(2, 4, ""))] == ["cpu", "cpu"]


@in_process_of("torch")
def test_the_input_pipeline_pins_memory_for_a_gpu_only(fixture: EngineFixture) -> None:
    import torch

    from polybench.engines.torch import pipeline

    source, _ = make_pipeline_input(0, False)
    for device, is_pinned in (("cpu", False), ("cuda", True)):
        with patch.object(pipeline, "DataLoader") as loader:
            pipeline.open_batches(source, torch.device(device), torch.float32, torch.contiguous_format)
        assert loader.call_args.kwargs["pin_memory"] == is_pinned


@in_process_of("torch")
def test_thread_pools_have_the_size_of_the_study(fixture: EngineFixture) -> None:
    import torch

    from polybench.engines.torch import engine as torch_engine

    fixture.build()
    assert torch.get_num_threads() == torch.get_num_interop_threads() == 2
    with patch.object(torch_engine, "set_threads") as sized:  # the size of a pool that has run is fixed
        fixture.build(threads=3)
    sized.assert_called_once_with(3)


@in_process_of("torch")
def test_precision_is_set_explicitly(fixture: EngineFixture) -> None:
    import torch

    fixture.build(precision="tf32")
    assert torch.get_float32_matmul_precision() == "high"
    assert torch.backends.cudnn.allow_tf32
    fixture.build(precision="fp32")
    assert torch.get_float32_matmul_precision() == "highest"
    assert not torch.backends.cudnn.allow_tf32
    assert not torch.backends.cuda.matmul.allow_tf32


@in_process_of("torch")
def test_cudagraph_on_the_cpu_is_unavailable_with_a_hint(fixture: EngineFixture) -> None:
    with pytest.raises(EngineUnavailable) as missing:
        fixture.build(variants=("channels_last", "cudagraph"))
    assert missing.value.reason == "cudagraph needs a CUDA device"
    assert missing.value.hint == "use --devices cuda"


@in_process_of("torch")
def test_reset_zeroes_the_optimizer_state_in_place(fixture: EngineFixture) -> None:
    def momentum() -> list[Any]:
        return [state["momentum_buffer"] for state in fixture.engine._optimizer.state.values()]

    fixture.build()
    fixture.engine.run_steps(0, 1)
    before = momentum()
    assert len(before) == 10
    assert all(buffer.any() for buffer in before)
    fixture.engine.reset()
    assert all(new is old and not new.any() for new, old in zip(momentum(), before, strict=True))


@in_process_of("torch")
def test_cudnn_benchmarks_its_algorithms(fixture: EngineFixture) -> None:
    import torch

    assert torch.backends.cudnn.benchmark
    assert fixture.engine.probe().build.get("cudnn_autotune", "on") == "on"


@in_process_of("torch")
def test_the_probe_returns_version_and_build_details(fixture: EngineFixture) -> None:
    import torch

    info = fixture.engine.probe()
    assert info.versions == {"torch": torch.__version__}
    assert {"onednn", "parallel_backend", "cpu_capability"} <= set(info.build), info.build


@in_process_of("torch")
def test_the_probe_returns_the_version_of_triton_without_importing_it(fixture: EngineFixture) -> None:
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as monkeypatch:
        package = Path(folder, "triton-9.8.7.dist-info")
        package.mkdir()
        (package / "METADATA").write_text("Metadata-Version: 2.1\nName: triton\nVersion: 9.8.7\n")
        monkeypatch.syspath_prepend(folder)
        assert fixture.engine.probe().build["triton"] == "9.8.7"


def _trained(engine: Engine, model: Model, images: Array, labels: Array) -> dict[str, Array]:
    """Train three steps in float64; return losses, gradients, weights and logits by name."""
    workload = Workload(model.name, "noise", images.shape[1], model.optimizer, "fp32", 2)
    engine.build(Job(model, workload, "cpu", "float64", dropout="given"), vary_constants(initial_weights(model, 0)))
    engine.load(images, labels)
    found: Weights = {}
    for step in range(4):
        snapshot = engine.snapshot(step)
        found |= {f"loss {step}": np.array(snapshot.loss), f"logits {step}": engine.logits(images[step])}
        found |= {f"gradient {step} of {name}": value for name, value in snapshot.gradients.items()}
        found |= {f"weight {step} {name}": value for name, value in snapshot.weights.items()}
        engine.run_steps(step, 1)
    return found


@in_process_of("torch")
def test_every_layer_and_rule_computes_what_the_reference_does(fixture: EngineFixture) -> None:
    random = np.random.default_rng(0)
    rules = {
        EVERYTHING: Optimizer("adamw", 0.01, weight_decay=0.1, lr_schedule=((1, 0.002),)),
        PADDED: Optimizer("rmsprop", 0.001, gradient_clip=0.1),
        SEQUENCES: Optimizer("nesterov", 0.05, 0.8, weight_decay=0.1, gradient_clip=0.1),
        TEXT: Optimizer("momentum", 0.05, 0.8),
        PATCHED: PATCHED.optimizer,
    }
    for network, optimizer in rules.items():
        model = msgspec.structs.replace(network, optimizer=optimizer)
        shape = (4, 4, *model.input_shape)
        tokens = model.vocabulary_size
        images: Array = random.random(shape) if tokens is None else random.integers(tokens, size=shape, dtype=np.int32)
        labels = random.integers(model.classes, size=(4, 4, *model.label_shape))
        expected = _trained(ReferenceEngine(), model, images, labels)
        actual = _trained(fixture.engine, model, images, labels)
        assert actual.keys() == expected.keys()
        for name, value in expected.items():
            np.testing.assert_allclose(actual[name], value, rtol=1e-6, atol=1e-8, err_msg=f"{model.name}: {name}")
