"""Flux.jl through juliacall: the border to the Julia package in `julia/`, which does the training."""

from __future__ import annotations

import os
from collections.abc import Mapping
from time import perf_counter
from typing import Any, Literal

import numpy as np

from polybench.core.document.layers import Part
from polybench.core.document.places import Places
from polybench.core.document.resources import Allocations
from polybench.core.errors import Unavailable
from polybench.core.job import COLD_START, EXACT, Collected, Conventions, Job, Probe
from polybench.core.pieces import Piece
from polybench.engines.base import Array, Engine, Replayed, Snapshot, Stream, Weights
from polybench.engines.flux.allocations import NATIVELY_UNSEEN, allocations, places
from polybench.engines.flux.conventions import conventions
from polybench.engines.flux.crossing import addresses, as_toml
from polybench.engines.flux.julia import finding
from polybench.engines.flux.julia.environment import threads
from polybench.engines.flux.julia.extra_packages import EXTEND, check_packages, wanted
from polybench.engines.flux.julia.package import package_folder
from polybench.engines.flux.julia.starting import compiled_code, cuda_wanted, first_line, start_julia
from polybench.engines.flux.kept_training import crossing, training_state
from polybench.engines.flux.refusals import refuse
from polybench.engines.flux.replay import replay, timed
from polybench.engines.support.arrays import as_dtype, is_tokens, touch
from polybench.engines.support.dropout_masks import dropout_masks
from polybench.engines.support.frameworks import cuda_index

CUDA_INSTALL = (
    "julia --project={project} -e 'using Pkg; "
    'Pkg.add([PackageSpec(name="CUDA", version="5"), PackageSpec(name="cuDNN", version="1")])'
    "'"
)

_PATH = "dir -> begin push!(LOAD_PATH, dir); nothing end"
"""Where Julia looks for PolyBench, if it is not in the project."""
_INCLUDE = 'dir -> begin include(joinpath(dir, "src", "PolyBench.jl")); nothing end'
_VERSIONS = ("julia", "flux", "nnlib", "zygote", "optimisers")
_BUILD = ("blas", "cpu", "julia_threads", "blas_threads", "gc_threads")


class FluxEngine(Engine):
    """`Flux.setup`, `Flux.withgradient` with Zygote, `Flux.update!`; Julia's garbage collector is left alone.

    Its variants differ in the pools of threads, in what makes a step, in the BLAS, and in when Julia collects
    garbage.
    """

    sample_kind: Literal["step", "block"] = "step"
    ways: tuple[str, ...] = ()
    """What Julia is told beside the job's variants."""
    _batches: Any = None

    def load_framework(self) -> None:
        self._julia = finding.find()
        finding.check(self._julia)
        cuda, extra = cuda_wanted(self._julia), wanted()
        self._extra = check_packages(self._julia, extra)
        # Included as a script is, the package has no code from an earlier process: what any user waits for.
        # Only a package that is loaded has extensions, though, and CUDA is one.
        self._cold = COLD_START in os.environ and not cuda
        start = perf_counter()
        main = self._main = start_julia(self._julia)
        started = perf_counter()
        self._evaluate(main, _PATH, str(package_folder()))
        # MKL first, so that nobody asks the BLAS that it replaces.
        names = sorted({"Flux", *extra}, key=("MKL", "Flux", *extra).index)
        self._evaluate(main, f"() -> begin @eval Main using {', '.join(names)}; nothing end")
        if cuda:
            self._evaluate(main, "() -> begin @eval Main using CUDA, cuDNN; nothing end")
        packages = perf_counter()
        how = _INCLUDE if self._cold else "dir -> begin @eval Main using PolyBench; nothing end"
        self._evaluate(main, how, str(package_folder()))
        for name in extra:
            self._evaluate(main, EXTEND, str(package_folder() / "ext" / f"PolyBench{name}Ext.jl"))
        self._polybench = main.PolyBench
        # Kept, since after a step, which leaves the caches full of other things, to look it up takes longer
        # than to call it.
        self._run_steps = self._polybench.run_steps_b
        # The last is no user's: it is polybench's own code, and what it brings beside Flux.
        self._detail = {
            "julia_seconds": started - start,
            "packages_seconds": packages - started,
            "polybench_seconds": perf_counter() - packages,
        }

    def _evaluate(self, main: Any, function: str, *arguments: object) -> None:
        try:
            main.seval(function)(*arguments)
        except Exception as error:
            extra = wanted()
            remedy = self._julia.adding(extra) if extra else self._julia.setup
            raise Unavailable(f"a Julia package does not load: {first_line(error)}", remedy) from error

    def probe(self) -> Probe:
        facts = self._polybench.facts()
        known = {name: str(getattr(facts, name)) for name in (*_VERSIONS, *_BUILD)}
        build = {name: known[name] for name in _BUILD} | {
            "executable": self._julia.executable,
            "project": self._julia.project,
            "found_by": self._julia.found_by,
            "garbage_collection": "left alone",
            "compiled_code": compiled_code(self._julia),
            **dict(self._polybench.cuda_facts()),
        }
        cuda = tuple(f"cuda:{index}" for index in range(self._polybench.cuda_devices()))
        versions = {name: known[name] for name in _VERSIONS} | self._extra
        return Probe(versions, build, ("cpu", *cuda))

    def build(self, job: Job, weights: Weights) -> None:
        refuse(job)
        self._job = job
        self._rate: float | None = None
        self.sample_kind = "step" if job.device == "cpu" else "block"
        if job.device != "cpu":
            devices = self._polybench.cuda_devices()
            install = CUDA_INSTALL.format(project=self._julia.project)
            cuda_index(job.device, devices, cuda_build=finding.has_cuda(self._julia), install=install)
        self._polybench.set_blas_threads(threads(job.workload.threads, job.variants)[1])
        self._shapes = job.model.tensor_shapes()
        arrays = as_dtype({name: weights[name] for name in self._shapes}, job.dtype)
        optimizer = job.workload.optimizer
        self._trainer = self._polybench.build(
            as_toml(job.model.layers),
            addresses(arrays), job.dtype, job.device, job.workload.precision,
            optimizer.name, optimizer.learning_rate, optimizer.momentum or 0.0, optimizer.weight_decay,
            job.dropout == "given", "+".join((*self.ways, *job.variants)),
        )  # fmt: skip

    def conventions(self) -> Conventions:
        if self._job.device != "cpu":
            # Not looked at on a GPU yet: until cuDNN's rule is declared here as it was found, the check holds
            # cuDNN to the exact rule, and fails it where that is not its own.
            return EXACT
        return conventions(self._polybench, self._trainer, self._job)

    def load(self, images: Array, labels: Array) -> None:
        touch(images)
        # Julia uses this memory in place, so it has to live as long as the batches.
        self._images, self._labels = images, np.ascontiguousarray(labels)
        self._batch_size = labels.shape[1]
        self._batches = self._polybench.load(
            self._trainer, images.ctypes.data, images.shape, self._labels.ctypes.data,
            self._job.model.classes, is_tokens(images),
        )  # fmt: skip

    def open_stream(self, stream: Stream) -> None:
        self.sample_kind = "block"
        arrays = (stream.images, stream.labels, stream.order, stream.decisions)
        # Julia uses this memory in place, so it has to live as long as the pipeline.
        self._stream = [None if array is None else np.ascontiguousarray(array) for array in arrays]
        self._batch_size = stream.order.shape[1]
        images, labels, order, decisions = (0 if a is None else a.ctypes.data for a in self._stream)
        self._batches = self._polybench.open_stream(
            self._trainer, images, stream.images.shape, labels, order, stream.order.shape,
            decisions, self._job.model.classes, stream.workers,
        )  # fmt: skip

    def reset(self) -> None:
        self._rate = None  # the initial one, which may not be that of the step to come
        # Dropout of its own draws the same masks after every reset.
        self._polybench.reset_b(self._trainer, self._job.seed)

    def start_from(self, weights: Weights) -> None:
        arrays = as_dtype({name: weights[name] for name in self._shapes}, self._job.dtype)
        self._polybench.start_from_b(self._trainer, addresses(arrays))

    def training_state(self) -> Weights:
        if "reactant" in self._job.variants:
            return {}  # numbers of its optimizers are the device's
        return training_state(self._polybench.kept_training(self._trainer))

    def go_on_from(self, state: Weights) -> None:
        self._polybench.go_on_from_b(self._trainer, *crossing(state))
        self._rate = float(state["rate"])

    def run_steps(self, first: int, n: int) -> float:
        seconds = 0.0
        for steps, rate in self._job.workload.optimizer.stretches(first, n):
            if rate != self._rate:
                self._polybench.set_rate_b(self._trainer, rate)
                self._rate = rate
            seconds += self._run(steps)
        return seconds

    def _run(self, steps: range) -> float:
        if self._job.dropout == "given":
            return sum(self._run_given(step) for step in steps)
        return float(self._run_steps(self._trainer, self._batches, steps.start, len(steps)))

    def loss(self) -> float:
        return float(self._polybench.last_loss(self._trainer))

    def correct(self, images: Array, labels: Array) -> int:
        images, labels = np.ascontiguousarray(images), np.ascontiguousarray(labels)
        given = images.ctypes.data, images.shape, labels.ctypes.data, is_tokens(images)
        return int(self._polybench.correct(self._trainer, *given))

    def snapshot(self, step: int) -> Snapshot:
        self._give_masks(step)
        gradients, weights = (
            {name: np.empty(shape, self._job.dtype) for name, shape in shapes.items()}
            for shapes in (self._job.model.weight_shapes(), self._shapes)
        )
        loss = self._polybench.snapshot_b(
            addresses(gradients), addresses(weights), self._trainer, self._batches, step
        )
        return Snapshot(float(loss), gradients, weights)

    def batch(self, step: int) -> tuple[Array, Array]:
        images, *_ = self._stream
        assert images is not None
        pixels = np.empty((self._batch_size, *images.shape[1:]), np.float32)
        labels = np.empty(self._batch_size, np.int64)
        self._polybench.hand_out_b(pixels.ctypes.data, labels.ctypes.data, self._batches, step)
        return pixels, labels

    def draw_batches(self, first: int, n: int) -> float:
        return float(self._polybench.draw_b(self._trainer, self._batches, first, n))

    def waited(self) -> float | None:
        seconds = self._polybench.waited(self._batches)
        return None if seconds is None else float(seconds)

    def wait_until_idle(self) -> None:
        self._polybench.wait_until_idle_b(self._batches)

    def startup_detail(self) -> dict[str, float]:
        return self._detail | ({} if self._cold else {"cached_code": 1.0})

    def collected(self) -> Collected:
        seconds, full_sweeps = self._polybench.collected(self._trainer)
        return Collected(float(seconds), int(full_sweeps))

    def collect(self) -> None:
        self._polybench.collect_b()

    def count_allocations(self, first: int, n: int) -> Allocations:
        host, device = self._polybench.count_allocations_b(self._trainer, self._batches, first, n)
        held = self._polybench.device_reserved_bytes(self._trainer)
        return allocations(host, device or None, None if held is None else int(held), n)

    def allocation_places(self, first: int, n: int) -> Places:
        if self._job.device != "cpu":
            raise Unavailable("nothing tells which function asks CUDA.jl's pool", "use --devices cpu")
        self._evaluate(self._main, "() -> begin @eval Main using Profile; nothing end")
        profile = self._main.Profile
        found = self._polybench.allocation_places_b(profile, self._trainer, self._batches, first, n)
        return places(found, n)

    def unseen_natively(self) -> str:
        return NATIVELY_UNSEEN

    def replay(self, piece: Piece, weights: Weights, x: Array, dy: Array) -> Mapping[Part, Replayed]:
        arrays = as_dtype({name: weights[name] for name in piece.tensor_shapes()}, self._job.dtype)
        return replay(self._polybench, self._trainer, piece, arrays, x, dy)

    def replay_step(self) -> Mapping[Part, Replayed]:
        return timed(self._polybench, self._polybench.replay_step(self._trainer, self._batches))

    def device_peak_bytes(self) -> int | None:
        """The high-water mark of CUDA.jl's pool.

        In it is what Julia had not collected yet, and the workspaces in which cuDNN's algorithms were tried.
        """
        peak = self._polybench.device_peak_bytes(self._trainer)
        return None if peak is None else int(peak)

    def close(self) -> None:
        pass

    def _run_given(self, step: int) -> float:
        self._give_masks(step)
        return float(self._run_steps(self._trainer, self._batches, step, 1))

    def _give_masks(self, step: int) -> None:
        """Put the masks of this step in place, where they are given."""
        if self._job.dropout == "given":
            given = dropout_masks(self._job.model, self._batch_size, self._job.seed, step)
            masks = as_dtype(given, self._job.dtype)
            shapes = tuple(mask.shape for mask in masks.values())
            self._polybench.give_masks_b(self._trainer, tuple(masks), addresses(masks), shapes)
