"""The roofs of this machine: products, the network's own convolutions, and the bandwidth of memory."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import msgspec
import numpy as np

from polybench.core.document.circumstances import RoundNoise
from polybench.core.document.limit import LimitDocument
from polybench.core.errors import BadInput, CellFailed
from polybench.core.layers import Conv, Dense
from polybench.core.model import Model
from polybench.core.pieces import Piece, pieces
from polybench.core.spec import Study
from polybench.core.units import nbytes
from polybench.engines import ENGINES
from polybench.machine import host
from polybench.machine.caches import last_level_bytes
from polybench.measuring.environments import Environments
from polybench.measuring.probing import probe
from polybench.measuring.progress import Progress
from polybench.measuring.replicates import measure
from polybench.measuring.rounds import Replicate, Team
from polybench.measuring.scratch import scratch_folder
from polybench.measuring.state import StudyState, record_of
from polybench.measuring.study import new_context, started
from polybench.planning.pace import Block
from polybench.planning.plan import Plan, resolve
from polybench.report.limit import (
    Kernel,
    Timing,
    differences,
    joined,
    limit_document,
    not_measured,
    square,
    timings_of_engine,
    timings_of_numpy,
)
from polybench.report.roofs import KeptRoofs, play_a_script
from polybench.wire.environment import worker_environment
from polybench.wire.layer_messages import LayersOpened, LayersTimed, PartTimed, TimeLayers
from polybench.wire.limit_messages import Alone, NumpyTimed, OpenAlone, TimeNumpy
from polybench.wire.process import WorkerProcess

_ROUNDS = 6
"""The least and the most of six are an interval of their median; see `core.statistics.median_interval`."""

_REPEATS = 3
"""Of each part in a round."""

SIZES: dict[str, tuple[int, ...]] = {"cpu": (768, 1024, 1536), "gpu": (2048, 4096, 8192)}
"""Of square matrices: from what takes so long that three are a measurement, to what the budget allows."""

_LARGE, _MANY_THREADS = 4096, 8
"""So many threads need a larger product."""

_CACHES = 4
"""Each array of the triad is so many times the caches, as STREAM's rules ask for."""

_UNKNOWN_CACHE = 64 << 20


def run_limit(
    study: Study, progress: Progress, *, argv: Sequence[str] = (), recheck: bool = False
) -> LimitDocument:
    """Measure what this machine reaches on each device in each precision, or take what was kept of it.

    Args:
        study: whose engines, devices, precisions, threads, network and batch size; it is not trained.
        progress: told what runs.
        argv: the command line, for the record.
        recheck: measure what is kept, too.

    What is kept counts only while the versions of the engines that were asked for, and of those that set a
    roof, are what they were. Ctrl-C gives the roofs that were finished so far, marked.

    Raises:
        BadInput: before anything is started.
        KeyboardInterrupt: nothing was measured yet.
    """
    if "bf16" in study.precisions:
        raise BadInput("roofs are measured with --precision fp32 or tf32 only")
    devices = dict.fromkeys(cell.device for cell in resolve(study).cells)
    documents: list[LimitDocument] = []
    for device in devices:
        for precision in study.precisions:
            one = msgspec.structs.replace(
                study, devices=(device,), precision=precision, baseline=None, prices={}, data="synthetic",
                input="preload", parity=False, metrics=False, processes=1, rounds=_ROUNDS, steps=1,
            )  # fmt: skip
            try:
                kept = None if recheck else _kept(one, progress)
                documents.append(kept or _measured(one, progress, argv))
            except KeyboardInterrupt:
                if not documents:
                    raise
                documents.append(not_measured(documents[-1], resolve(one).cells))
            if any(engine.status == "interrupted" for engine in documents[-1].engines):
                return joined(documents)
    return joined(documents)


def _kept(study: Study, progress: Progress) -> LimitDocument | None:
    """What is kept of the same engines, network and batch size on this machine, if they have not changed."""
    found = _found(resolve(study))
    if found is None:
        return None
    asked = {cell.name for cell in resolve(study).cells}
    progress.stage("looking whether the engines are those of the kept roofs")
    changed = _changed(found, asked, study)
    if changed:
        progress.warn(f"the kept roofs are of other versions ({'; '.join(changed)}): measured again")
    return None if changed else found


def _found(plan: Plan) -> LimitDocument | None:
    (device,), work = {cell.device for cell in plan.cells}, plan.workload
    scripted = play_a_script(cell.engine for cell in plan.cells)
    found = KeptRoofs().find(
        host.this_host(), device, work.precision, work.threads, plan.study.heap, scripted=scripted
    )
    if found is None or (found.model, found.batch_size) != (plan.model.name, work.batch_size):
        return None
    asked = {cell.name for cell in plan.cells}
    return found if asked <= {engine.cell for engine in found.engines} else None


def _changed(found: LimitDocument, asked: Collection[str], study: Study) -> list[str]:
    """What was asked for, or set a roof, and is now another version, in words."""
    setters = {roof.engine for roof in found.roofs}
    known = {
        engine.cell: engine
        for engine in found.engines
        if engine.cell in asked or engine.cell.partition("/")[0] in setters
    }
    names = tuple(cell.partition("/")[0] for cell in known)
    try:
        plan = resolve(msgspec.structs.replace(study, engines=names))
    except BadInput as gone:  # an engine of another package
        return [str(gone)]
    with scratch_folder() as scratch:
        environments = Environments(plan, scratch)
        records = {
            cell.name: record_of(cell, plan, environments) for cell in plan.cells if cell.name in known
        }
        probe(list(records.values()), study.timeout)
    then = {cell: engine.versions for cell, engine in known.items()} | {"numpy": {"NumPy": found.numpy}}
    now = {cell: one.probe.versions if one.probe else {} for cell, one in records.items()}
    return differences(then, now | {"numpy": {"NumPy": np.__version__}})


def _measured(study: Study, progress: Progress, argv: Sequence[str]) -> LimitDocument:
    with started(resolve(study), progress, context=new_context(argv)) as running:
        state = running.state
        work = _work(state)
        try:
            measure(state, None, partial(_Replicate, work))
        except KeyboardInterrupt:
            state.interrupt()
        finished = state.finish()
        cells = [result.cell for result in finished.results if result.status != "failed"]
        timings = [timing for cell in cells for timing in work.timings(cell)]
        asked = state.plan.study.model
        document = limit_document(
            finished,
            [*timings, *work.timings_of_numpy()],
            np.__version__,
            network=asked if isinstance(asked, Model) else None,
        )
    KeptRoofs().keep(document)
    return document


@dataclass
class _Work:
    """What is timed, and the seconds so far: of cells by name, [round][part]; of NumPy one a round.

    `of_numpy` is None on a GPU, of which NumPy knows nothing.
    """

    kernels: list[Kernel]
    of_numpy: TimeNumpy | None
    times: dict[str, list[list[PartTimed]]] = field(default_factory=dict)
    numpy: list[NumpyTimed] = field(default_factory=list)

    def timings(self, cell: str) -> Iterator[Timing]:
        engine = cell.partition("/")[0]
        return timings_of_engine(engine, self.kernels, self.times.get(cell, []))

    def timings_of_numpy(self) -> Iterator[Timing]:
        return timings_of_numpy(self.of_numpy, self.numpy)


def _work(state: StudyState) -> _Work:
    plan, threads = state.plan, state.plan.workload.threads
    on_cpu = plan.cells[0].device == "cpu"
    sizes = SIZES["cpu" if on_cpu else "gpu"]
    if on_cpu and threads >= _MANY_THREADS:
        sizes = (*sizes, _LARGE)
    kernels = [*map(_product, sizes), *_convolutions(plan)]
    return _Work(kernels, TimeNumpy(sizes, _triad_bytes(state), threads, _REPEATS) if on_cpu else None)


def _product(size: int) -> Kernel:
    piece = Piece("product", "product", (Dense("product", size, size),), (size,), wants_data_gradient=True)
    return Kernel("gemm", square(size), piece, size)


def _convolutions(plan: Plan) -> Iterator[Kernel]:
    batch_size = plan.workload.batch_size
    for piece in pieces(plan.model):
        if isinstance(conv := piece.layer, Conv):
            _, height, width = piece.input_shape
            window = f"{conv.kernel}x{conv.kernel} {conv.inputs}->{conv.outputs}"
            shape = f"{conv.name}: {window} on {height}x{width}, batch {batch_size}"
            yield Kernel("convolution", shape, piece, batch_size)


def _triad_bytes(state: StudyState) -> int | None:
    """Of each of the three arrays; None where memory does not hold them beside the engines."""
    cache = last_level_bytes(state.plan.workload.threads)
    if cache is None:
        state.warn(f"this system does not tell its caches: the triad takes {nbytes(_UNKNOWN_CACHE)} for them")
    wanted = _CACHES * (cache or _UNKNOWN_CACHE)
    if 3 * wanted > host.available_memory() // 2:
        state.warn(f"no triad: three arrays of {nbytes(wanted)} would take more than half of the memory")
        return None
    return wanted


class _Replicate(Replicate):
    """Times every kernel once a round in each engine, then in NumPy; whole steps are for the pace only."""

    tells_startup = False

    def __init__(self, work: _Work, *given: Any) -> None:
        super().__init__(*given)
        self._work = work

    def _warm_up(self, team: Team) -> None:
        super()._warm_up(team)
        request = OpenAlone([Alone(kernel.piece, kernel.batch_size) for kernel in self._work.kernels])
        for name in list(team):
            _, worker = team[name]
            self._state.progress.stage(f"building products and convolutions of {name}")
            with self._failures_noted(team, name):
                worker.ask(request, LayersOpened, self._timeout)
                self._work.times[name] = []

    def _measure(self, team: Team, name: str, block: Block) -> None:  # noqa: ARG002
        _, worker = team[name]
        with self._failures_noted(team, name):
            answer = worker.ask(TimeLayers(_REPEATS), LayersTimed, self._timeout)
            self._work.times[name].append(answer.parts)

    @contextlib.contextmanager
    def _team(self) -> Iterator[Team]:
        plan = self._state.plan
        environment = worker_environment(
            ENGINES["reference"], "cpu", plan.workload.threads, heap=plan.study.heap, cpus=plan.cpus
        )
        log = self._state.logs / "numpy.log"
        with WorkerProcess(environment, log) as self._numpy, super()._team() as team:
            yield team

    def _round(self, team: Team, block: Block, number: int) -> RoundNoise:
        noise = super()._round(team, block, number)
        if self._work.of_numpy is not None:
            start = time.monotonic()
            try:
                answer = self._numpy.ask(self._work.of_numpy, NumpyTimed, self._timeout)
                self._work.numpy.append(answer)
            except CellFailed as error:
                self._state.warn(f"NumPy could not be timed: {error}")
                self._work.of_numpy = None
            self._pace.spend(time.monotonic() - start)
        return noise
