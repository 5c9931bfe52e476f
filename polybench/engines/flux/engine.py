"""The engine `flux`: calls the Julia package in `julia/` through juliacall."""

from __future__ import annotations

import os
from collections.abc import Mapping
from time import perf_counter
from typing import Any, Literal

import numpy as np

from polybench.engines.base import Array, Engine, PipelineInput, Snapshot, TimedOperation, Weights
from polybench.engines.flux.emitter import emit, emit_layers
from polybench.engines.flux.julia import discovery, program
from polybench.engines.flux.julia.discovery import NAME
from polybench.engines.flux.julia.environment import OPTIMIZE, OPTIMIZED, requested_packages, start_julia, threads
from polybench.engines.flux.validation import conventions, validate
from polybench.engines.job import COLD_START, NO_DEVIATIONS, EngineInfo, Job, NumericalConventions
from polybench.engines.shared.batches import as_dtype, as_input, dropout_masks, is_tokens, prefault
from polybench.engines.shared.frameworks import cuda_index, has_cuda_driver
from polybench.errors import EngineUnavailable
from polybench.networks.layers import Operation
from polybench.networks.timed_layers import TimedLayer
from polybench.schema.measurements import AllocationProfile, AllocationSite
from polybench.schema.resources import Allocation, Allocations, DeviceAllocation, GcStats

_HOST_COVERAGE = "Julia's heap, on all threads; not what BLAS or a GPU allocates"
_DEVICE_COVERAGE = (
    "arrays and workspaces requested from CUDA.jl's pool, which retains freed memory; "
    "not the memory that cuBLAS, cuDNN and the driver allocate themselves"
)
NATIVE_COVERAGE_GAPS = (
    "Julia's objects below 2 KiB, whose pools allocate 64 MiB at a time, nor direct malloc calls of compiled Julia code"
)

_INCLUDE = """
function (folder, packages)
    push!(LOAD_PATH, folder) # names PolyBench's dependencies, which the project may have only indirectly
    include(joinpath(folder, "src", "PolyBench.jl"))
    for name in packages # only a loaded package has extensions
        file = joinpath(folder, "ext", "PolyBench$(name)Ext.jl")
        isfile(file) || continue
        include_string(Main, replace(read(file, String), "using PolyBench" => "using Main.PolyBench"), file)
    end
end
"""
"""Includes PolyBench like a script, which loads no precompiled code, and its extensions for these packages."""
_VERSIONS = ("julia", "flux", "nnlib", "zygote", "optimisers")
_BUILD = ("blas", "cpu", "julia_threads", "blas_threads", "gc_threads")


class FluxEngine(Engine):
    """`Flux.setup`, `Flux.withgradient` with Zygote, `Flux.update!`; with Julia's default garbage collection.

    Variants change thread pools, the training step, the BLAS library, and garbage collection.
    """

    timing_resolution: Literal["step", "block"] = "step"
    _batches: Any = None

    def __init__(self) -> None:
        self._julia = discovery.find()
        discovery.check(self._julia)
        extra = requested_packages()
        self._extra = discovery.check_packages(self._julia, extra)
        has_gpu = os.environ.get("CUDA_VISIBLE_DEVICES") != "" and has_cuda_driver()
        cuda = has_gpu and discovery.has_cuda(self._julia)
        # Including the package like a script loads no precompiled code, so the cold start is that of a user's script.
        # Only a loaded package has extensions, and CUDA is one.
        self._cold = COLD_START in os.environ and not cuda
        start = perf_counter()
        main = self._main = start_julia(self._julia)
        started = perf_counter()
        # MKL first, before another package uses the BLAS that it replaces.
        names = sorted({"Flux", *extra}, key=("MKL", "Flux", *extra).index)
        self._evaluate(main, f"() -> begin @eval Main using {', '.join(names)}; nothing end")
        if cuda:
            self._evaluate(main, "() -> begin @eval Main using CUDA, cuDNN; nothing end")
        packages = perf_counter()
        if self._cold:
            self._evaluate(main, _INCLUDE, str(discovery.package_folder()), extra)
        else:
            self._evaluate(main, "() -> begin @eval Main using PolyBench; nothing end")
        self._polybench = main.PolyBench
        self._python = self._polybench.Python
        # Stored, because after a step with cold caches the lookup takes longer than the call.
        self._run_steps = self._polybench.run_steps_b
        # The last one is polybench's own code, which a user's program does not load.
        self._detail = {
            "julia_seconds": started - start,
            "packages_seconds": packages - started,
            "polybench_seconds": perf_counter() - packages,
        }

    def _evaluate(self, main: Any, function: str, *arguments: object) -> None:
        try:
            main.seval(function)(*arguments)
        except Exception as error:
            extra, line = requested_packages(), discovery.first_error_line(error)
            hint = self._julia.add_command(extra) if extra else self._julia.setup
            raise EngineUnavailable(f"a Julia package does not load: {line}", hint) from error

    def probe(self) -> EngineInfo:
        info = self._polybench.build_info()
        known = {name: str(getattr(info, name)) for name in (*_VERSIONS, *_BUILD)}
        build = {name: known[name] for name in _BUILD} | {
            "executable": self._julia.executable,
            "project": self._julia.project,
            "found_by": self._julia.found_by,
            "garbage_collection": "default",
            **dict(self._polybench.cuda_info()),
        }
        cuda = tuple(f"cuda:{index}" for index in range(self._polybench.cuda_devices()))
        versions = {name: known[name] for name in _VERSIONS} | self._extra
        return EngineInfo(versions, build, ("cpu", *cuda))

    def build(self, job: Job, weights: Weights) -> None:
        validate(job)
        self._job = job
        self.timing_resolution = "step" if job.device == "cpu" else "block"
        if job.device != "cpu":
            devices = self._polybench.cuda_devices()
            install = self._julia.add_command(discovery.CUDA_PACKAGES)
            cuda_index(job.device, devices, cuda_build=discovery.has_cuda(self._julia), install=install)
        self._polybench.set_blas_threads(threads(job.workload.threads, job.variants)[1])
        self.is_forward_pass = job.workload.is_forward_pass
        modes = (*job.variants, *(["forward"] if self.is_forward_pass else []))
        self._shapes = job.model.tensor_shapes()
        arrays = as_dtype({name: weights[name] for name in self._shapes}, job.dtype)
        self.program = self.write_program(job)
        module = self._load_program("+".join(modes))
        self._trainer = self._python.build_program(module, "\n".join(arrays), addresses(arrays), "+".join(modes))

    def write_program(self, job: Job) -> str:
        """Return the program of a job."""
        return emit(job)

    def _load_program(self, modes: str) -> Any:
        """Return the program as a module. Only one of Zygote on the CPU that is timed is a package: others run in one
        process, or need what Julia lacks while it compiles a package.
        """
        if not self._uses_package():
            return program.include(self._main, self.program)
        package = program.load_package(self._main, self.program, workload(self._job, modes))
        return program.include(self._main, self.program) if package is None else package

    def _uses_package(self) -> bool:
        return not self._cold and is_compiled_once(self._job) and os.environ.get(OPTIMIZE, OPTIMIZED) == OPTIMIZED

    def conventions(self) -> NumericalConventions:
        if self.is_forward_pass:
            return NO_DEVIATIONS  # all of them are deviations of gradients
        if self._job.device != "cpu":
            # Not verified on a GPU: until cuDNN's rule is found and declared here, the parity check requires the
            # exact rule and fails if cuDNN deviates.
            return NO_DEVIATIONS
        return conventions(self._polybench, self._trainer, self._job)

    def load(self, images: Array, labels: Array) -> None:
        prefault(images)
        # Julia uses this memory in place, so it has to live as long as the batches.
        self._images, self._labels = images, np.ascontiguousarray(labels)
        self._batch_size = labels.shape[1]
        self._batches = self._python.load(
            self._trainer, images.ctypes.data, images.shape, self._labels.ctypes.data,
            self._job.model.classes, is_tokens(images), self._job.model.label_shape,
        )  # fmt: skip

    def open_pipeline(self, source: PipelineInput) -> None:
        self.timing_resolution = "block"
        arrays = (source.images, source.labels, source.order, source.augmentations)
        # Julia uses this memory in place, so it has to live as long as the pipeline.
        self._pipeline_arrays = [None if array is None else np.ascontiguousarray(array) for array in arrays]
        self._batch_size = source.order.shape[1]
        images, labels, order, augmentations = (0 if a is None else a.ctypes.data for a in self._pipeline_arrays)
        self._batches = self._python.open_pipeline(
            self._trainer, images, source.images.shape, labels, order, source.order.shape,
            augmentations, self._job.model.classes, source.workers,
        )  # fmt: skip

    def reset(self) -> None:
        # Flux's own dropout draws the same masks after every reset.
        self._polybench.reset_b(self._trainer, self._job.seed)

    def set_initial_weights(self, weights: Weights) -> None:
        arrays = as_dtype({name: weights[name] for name in self._shapes}, self._job.dtype)
        self._python.set_initial_weights_b(self._trainer, addresses(arrays))

    def training_state(self) -> Weights:
        if "reactant" in self._job.variants:
            return {}  # its optimizer state is on the device
        saved = self._polybench.training_state(self._trainer)
        numbers, generator = np.array(saved.numbers), np.array(saved.generator)
        return {"numbers": numbers, "rate": np.array(float(saved.rate)), "generator": generator}

    def restore_training_state(self, state: Weights) -> None:
        numbers, rate, generator = state["numbers"], float(state["rate"]), state["generator"]
        self._python.restore_b(self._trainer, numbers.ctypes.data, len(numbers), rate, generator.ctypes.data)

    def run_steps(self, first: int, n: int) -> float:
        if self._job.dropout == "given":
            return sum(self._run_with_masks(step) for step in range(first, first + n))
        return float(self._run_steps(self._trainer, self._batches, first, n))

    def inactive_variant(self) -> str:
        if "mkl" not in self._job.variants or "mkl" in (blas := self.probe().build["blas"]):
            return ""
        return f"Julia's BLAS is {blas}: expected MKL: remove the code that loads another BLAS after MKL.jl"

    def loss(self) -> float:
        return float(self._polybench.last_loss(self._trainer))

    def step_logits(self) -> Array:
        model = self._job.model
        logits = np.empty((self._batch_size, *model.label_shape, model.classes), self._job.dtype)
        self._python.fill_logits_b(logits.ctypes.data, self._trainer)
        return logits

    def logits(self, images: Array) -> Array:
        images, model = np.ascontiguousarray(images), self._job.model
        logits = np.empty((len(images), *model.label_shape, model.classes), self._job.dtype)
        arguments = images.ctypes.data, images.shape, is_tokens(images)
        self._python.write_logits_b(logits.ctypes.data, self._trainer, *arguments)
        return logits

    def snapshot(self, step: int) -> Snapshot:
        self._set_masks(step)
        gradients, weights = (
            {name: np.empty(shape, self._job.dtype) for name, shape in shapes.items()}
            for shapes in (self._job.model.weight_shapes(), self._shapes)
        )
        loss = self._python.snapshot_b(addresses(gradients), addresses(weights), self._trainer, self._batches, step)
        return Snapshot(float(loss), gradients, weights)

    def batch(self, step: int) -> tuple[Array, Array]:
        images, *_ = self._pipeline_arrays
        assert images is not None
        pixels = np.empty((self._batch_size, *images.shape[1:]), np.float32)
        labels = np.empty(self._batch_size, np.int64)
        self._python.fill_buffers_b(pixels.ctypes.data, labels.ctypes.data, self._batches, step)
        return pixels, labels

    def drain_pipeline(self, first: int, n: int) -> float:
        return float(self._polybench.drain_b(self._trainer, self._batches, first, n))

    def data_wait_seconds(self) -> float | None:
        seconds = self._polybench.wait_seconds(self._batches)
        return None if seconds is None else float(seconds)

    def wait_until_idle(self) -> None:
        self._polybench.wait_until_idle_b(self._batches)

    def startup_detail(self) -> dict[str, float]:
        return self._detail | ({} if self._cold else {"cached_code": 1.0})

    def gc_stats(self) -> GcStats:
        seconds, full_collections = self._polybench.gc_stats(self._trainer)
        return GcStats(float(seconds), int(full_collections))

    def run_gc(self) -> None:
        self._polybench.run_gc()

    def count_allocations(self, first: int, n: int) -> Allocations:
        host, device = self._polybench.count_allocations_b(self._trainer, self._batches, first, n)
        pool_bytes = self._polybench.device_reserved_bytes(self._trainer)
        pool_bytes = None if pool_bytes is None else int(pool_bytes)
        on_device = device and DeviceAllocation(
            *_means(device, n), "CUDA.jl's pool", _DEVICE_COVERAGE, reserved_bytes=pool_bytes
        )
        return Allocations(host=Allocation(*_means(host, n), "Base.gc_num()", _HOST_COVERAGE), device=on_device or None)

    def allocation_sites(self, first: int, n: int) -> AllocationProfile:
        if self._job.device != "cpu":
            raise EngineUnavailable(
                "CUDA.jl does not report which function allocates from its pool", "use --devices cpu"
            )
        self._evaluate(self._main, "() -> begin @eval Main using Profile; nothing end")
        profile = self._main.Profile
        found = self._polybench.allocation_sites_b(profile, self._trainer, self._batches, first, n)
        sites = [AllocationSite(str(name), int(size) / n, int(count) / n) for name, size, count in found]
        return AllocationProfile(
            "Julia's Profile.Allocs",
            f"{_HOST_COVERAGE}; by the innermost function of a package; the garbage collector frees it at any time",
            sorted(sites, key=lambda site: -site.bytes_per_step),
        )

    def untraced_native_allocations(self) -> str:
        return NATIVE_COVERAGE_GAPS

    def build_layer_operations(
        self, timed_layer: TimedLayer, weights: Weights, x: Array, dy: Array
    ) -> Mapping[Operation, TimedOperation]:
        arrays = as_dtype({name: weights[name] for name in timed_layer.tensor_shapes()}, self._job.dtype)
        x, dy = (as_input(array, "float32") for array in (x, dy))
        names = tuple(gradient.operation for gradient in timed_layer.gradients())
        whole, linear = (
            program.include(self._main, emit_layers(layers, timed_layer.input_shape, "A layer.", dtype=self._job.dtype))
            for layers in (timed_layer.layers, timed_layer.layers[:1])
        )
        found = self._python.build_layer_operations(
            self._trainer, whole, linear, "\n".join(arrays), addresses(arrays),
            x.ctypes.data, x.shape, dy.ctypes.data, dy.shape, names, is_tokens(x),
        )  # fmt: skip
        return self._timers(found)

    def build_step_operations(self) -> Mapping[Operation, TimedOperation]:
        return self._timers(self._python.build_step_operations(self._trainer, self._batches))

    def _timers(self, operations: Any) -> dict[Operation, TimedOperation]:
        """Wrap Julia's pairs (name, operation) as timers. The only activation that a timed layer has is a ReLU."""

        def timer(operation: Any) -> TimedOperation:
            return TimedOperation(lambda n: float(self._polybench.seconds(operation, n)))

        names = {"activation": "relu gradient"}
        return {names.get(str(name), str(name)): timer(operation) for name, operation in operations}  # type: ignore[misc]

    def device_peak_bytes(self) -> int | None:
        """Return the high-water mark of CUDA.jl's pool.

        It includes garbage and the workspaces that cuDNN used to try its algorithms.
        """
        peak = self._polybench.device_peak_bytes(self._trainer)
        return None if peak is None else int(peak)

    def heap_bytes_in_use(self) -> int:
        return int(self._polybench.heap_bytes_in_use())

    def device_bytes_in_use(self) -> int | None:
        used = self._polybench.device_bytes_in_use(self._trainer)
        return None if used is None else int(used)

    def float64_tensors(self) -> list[str]:
        return [str(name) for name in self._polybench.float64_tensors(self._trainer, self._batches)]

    def _run_with_masks(self, step: int) -> float:
        self._set_masks(step)
        return float(self._run_steps(self._trainer, self._batches, step, 1))

    def _set_masks(self, step: int) -> None:
        """Set the dropout masks of this step, if they are given."""
        if self._job.dropout == "given":
            given = dropout_masks(self._job.model, self._batch_size, self._job.seed, step)
            masks = as_dtype(given, self._job.dtype)
            shapes = tuple(mask.shape for mask in masks.values())
            self._python.set_masks_b(self._trainer, tuple(masks), addresses(masks), shapes)


def is_compiled_once(job: Job) -> bool:
    """Return True if workers share the compiled code of a program.

    Only the program that is timed is worth it, which has neither float64 nor given masks. Without a GPU and packages
    for other gradients, Julia cannot run it while it compiles a package.
    """
    is_timed = job.dtype == "float32" and not (job.dropout == "given" and job.model.is_random)
    return is_timed and job.device == "cpu" and not {*job.variants} & {"enzyme", "mooncake", "reactant"}


def workload(job: Job, modes: str) -> str:
    """Return the Julia expression that runs the module `program` with two steps of two examples."""
    return f'{NAME}.warm_up(program, "{modes}", {empty_batches(job, 2)})'


def empty_batches(job: Job, size: int) -> str:
    """Return Julia's expressions for the inputs and labels of two batches of this size."""
    model = job.model
    shape = ", ".join(map(str, (*reversed(model.input_shape), size, 2)))
    labels = ", ".join(map(str, (*reversed(model.label_shape), size, 2)))
    kind = "Float32" if model.vocabulary_size is None else "Int32"
    return f"zeros({kind}, {shape}), zeros(Int64, {labels})"


def addresses(arrays: Weights) -> tuple[int, ...]:
    """Return the addresses of C-order arrays, which must outlive the call that receives them."""
    return tuple(array.ctypes.data for array in arrays.values())


def _means(total: tuple[int, int], n: int) -> tuple[float, float]:
    """Return count and bytes per step."""
    count, size = total
    return count / n, size / n
