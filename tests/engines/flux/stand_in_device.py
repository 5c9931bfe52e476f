"""The flux engine on a GPU of JLArrays, which the Julia package's own tests use in place of CUDA.jl's arrays.

Their operations are those of GPUArrays and NNlib's kernels for any GPU, and `julia/test/gpu_operations.jl` in place of
cuDNN. An operation on single elements fails. One that mixes them with arrays of the CPU does not: see `array_types`.
"""

from __future__ import annotations

from typing import Any

import msgspec

from polybench.engines.base import Array, Weights
from polybench.engines.flux import engine
from polybench.engines.flux.engine import FluxEngine
from polybench.engines.flux.julia.discovery import package_folder
from polybench.engines.job import Job

engine.cuda_index = lambda *_, **__: 0  # type: ignore[assignment]  # it looks for NVIDIA's driver


class StandInEngine(FluxEngine):
    """The flux engine with all of a job on the stand-in device."""

    def __init__(self) -> None:
        super().__init__()
        for name in ("load_fake_cuda.jl", "gpu_operations.jl"):
            file = package_folder() / "test" / name
            self._main.seval(f'isdefined(Main, :GPUOperations) || include(raw"{file}")')

    def build(self, job: Job, weights: Weights) -> None:
        super().build(msgspec.structs.replace(job, device="cuda"), weights)

    def write_program(self, job: Job) -> str:
        text = super().write_program(job)
        replaced = {
            "using CUDA\nusing Flux\nusing Random\nusing cuDNN\n": (
                "using Flux\nusing Main: CUDA, PolyBench\nusing Random\n"
            ),
            "gpu_device(nothing, nothing; force = true)": "x -> PolyBench.to_device(PolyBench.CUDADevice(0), x)",
            "cpu(state.model)": "Flux.adapt(Array, state.model)",  # MLDataDevices takes JLArrays for arrays of the CPU
        }
        for real, stand_in in replaced.items():
            assert real in text, real
            text = text.replace(real, stand_in)
        return text

    def array_types(self) -> set[str]:
        """Return the types of all arrays of the network and of the batches."""
        types: Any = self._main.seval("""
            (trainer, batches) -> join(unique(string(nameof(typeof(array))) for array in [
                PolyBench.Flux.trainables(trainer.state.model);
                [batch.images for batch in batches]; [batch.labels.indices for batch in batches]
            ]), " ")
        """)
        return set(str(types(self._trainer, self._batches)).split())


class LabelsOnCPU(StandInEngine):
    """Leaves the labels on the CPU."""

    def load(self, images: Array, labels: Array) -> None:
        super().load(images, labels)
        move: Any = self._main.seval("""
            batches -> [PolyBench.Batch(one.images, Flux.adapt(Array, one.labels), one.owner) for one in batches]
        """)
        self._batches = move(self._batches)
