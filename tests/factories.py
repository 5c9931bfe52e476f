"""Made-up studies for tests: none of these numbers was measured."""

from __future__ import annotations

from typing import Any

import msgspec

from polybench.core.document.circumstances import Host, RoundNoise, Settings, Tool
from polybench.core.document.identity import Deviation, Parity
from polybench.core.document.layers import EngineLayers, LayerRow, LayersDocument, Part
from polybench.core.document.resources import Memory, NativeAllocation, SizeClasses
from polybench.core.document.result import Result
from polybench.core.document.study import StudyDocument
from polybench.core.document.times import Relative, Samples, Startup
from polybench.core.document.training import TrainedEpoch, Training
from polybench.core.optimizers import Optimizer
from polybench.core.spec import Workload
from polybench.core.statistics import ratio, step_seconds

WORKLOAD = Workload("lenet", "synthetic", 128, Optimizer(), "fp32", 2)

FLUX_DEVIATIONS = [
    Deviation(
        "max-pool gradient goes to the first value within 3.5e-4 of the maximum",
        "conv1.weight",
        8.8e-3,
        "NNlib",
    ),
    Deviation(
        "max-pool gradient goes to the first value within 3.5e-4 of the maximum",
        "conv2.weight",
        3.6e-3,
        "NNlib",
    ),
]


def samples(median: float, processes: int = 3, rounds: int = 2) -> list[list[list[float]]]:
    """Processes 1 % apart, steps 1 % around each; [process][round][sample] in seconds."""
    return [
        [
            [median * (1 + 0.01 * (process - 1)) * (1 + 0.01 * step) for step in (-1, 0, 1)]
            for _ in range(rounds)
        ]
        for process in range(processes)
    ]


def measured(
    cell: str, median: float, baseline: str = "torch/cpu", processes: int = 3, **changes: Any
) -> Result:
    """A cell that ran; `relative` is to a baseline of 16.5 ms."""
    name, device = cell.partition("#")[0].split("/")
    name, _, environment = name.partition("@")
    engine, _, variant = name.partition("+")
    seconds = samples(median, processes)
    found = ratio(samples(0.0165, processes), seconds)
    fields: dict[str, Any] = {
        "cell": cell,
        "engine": engine,
        "variant": variant or None,
        "environment": environment or None,
        "device": device,
        "workload": WORKLOAD,
        "status": "ok",
        "step_seconds": step_seconds(seconds, "step"),
        "samples_per_second": 128 / median,
        "epoch_seconds": 390 * median,
        "startup": Startup(0.05, 1.5, 0.2, 0.1, 0.3, 0.02),
        "memory": Memory(peak_rss_bytes=412 << 20),
        "parity": Parity("pass", steps=3, batch_size=16),
        "losses": [2.31, 2.3],
        "relative": Relative(baseline, found.value, found.interval95, found.scope),
        "samples": Samples("step", 1, seconds),
    }
    return Result(**(fields | changes))


def absent(cell: str, status: str, reason: str | None, remedy: str | None = None, **changes: Any) -> Result:
    """A cell that has no times."""
    engine, device = cell.split("/")
    return Result(
        **{
            "cell": cell,
            "engine": engine,
            "variant": None,
            "device": device,
            "workload": WORKLOAD,
            "status": status,
            "reason": reason,
            "remedy": remedy,
        }
        | changes
    )


def study(*results: Result, dataset: str = "synthetic", warnings: list[str] | None = None) -> StudyDocument:
    return StudyDocument(
        id="20250101-000000-abcd",
        created="2025-01-01T00:00:00Z",
        polybench=Tool("0.1.0", None),
        argv=["polybench", "compare"],
        study='engines = ["torch", "tf"]\n',
        settings=Settings(
            model="lenet",
            parameters=62_006,
            dataset=dataset,
            data_sha256="0" * 64,
            weights_sha256="1" * 64,
            batches_sha256="2" * 64,
            batch_size=128,
            optimizer=Optimizer(),
            precision="fp32",
            threads=2,
            heap="keep",
            seed=0,
            processes=3,
            rounds=None,
            steps_per_round=None,
            input="preload",
            epochs=None,
            baseline="torch/cpu",
            prices={},
        ),
        host=Host(
            hostname="host",
            os="Linux",
            cpu="Some CPU @ 2.00GHz",
            cores=2,
            threads=2,
            memory_bytes=8 << 30,
            gpus=[],
            governor=None,
            load=0.1,
            python="3.11.7",
            noise=[RoundNoise(0, 0, 0.1, 1.0, 0.0, 0, False)],
        ),
        warnings=warnings or [],
        results=list(results),
    )


def native(size: float, relative: float | None = None, covers: str = "all") -> NativeAllocation:
    """What a step asks for, so many bytes."""
    return NativeAllocation(2700, size, 18 << 20, SizeClasses(2600, 90, 10), "memray", covers, relative)


def typical_study() -> StudyDocument:
    """Every kind of row: baseline, faster, failed parity, unavailable, failed."""
    return study(
        measured("torch/cpu", 0.0165),
        measured(
            "tf+keras_fit/cpu", 0.112, parity=Parity("fail", "loss 3.1e-2 from the reference"), relative=None
        ),
        measured("tf/cpu", 0.00855, warnings=["steps became 4.1% slower over the rounds"]),
        measured("flux/cpu", 0.0201, parity=Parity("pass", deviations=FLUX_DEVIATIONS)),
        absent(
            "torch/cuda",
            "unavailable",
            "no CUDA device is visible to PyTorch",
            "install an NVIDIA driver, then run polybench doctor",
        ),
        absent(
            "tf/cuda", "failed", "killed by signal 9 (SIGKILL)\nout of memory?", log="/tmp/polybench/tf.log"
        ),
        warnings=["1 of 6 rounds was disturbed by other processes"],
    )


def trainings(*accuracies: float | None, epochs: int = 2) -> list[Training]:
    """One for each seed from 0; `accuracies` are those after the last epoch."""
    return [
        Training(
            seed,
            [TrainedEpoch(1.0, [390.0], 1.5, 0.1)] * (epochs - 1) + [TrainedEpoch(1.0, [390.0], 1.2, last)],
        )
        for seed, last in enumerate(accuracies)
    ]


def saved(study: StudyDocument, id: str = "20250102-000000-abcd", **changes: Any) -> StudyDocument:
    """The same study once more, with other settings, in which each cell has as many images and threads."""
    settings = msgspec.structs.replace(study.settings, **changes)
    own = {name: value for name, value in changes.items() if name in Workload.__struct_fields__}
    results = [
        msgspec.structs.replace(one, workload=msgspec.structs.replace(one.workload, **own))
        for one in study.results
    ]
    return msgspec.structs.replace(study, id=id, settings=settings, results=results)


def layers(
    study: StudyDocument,
    steps: dict[str, float],
    parts: dict[str, dict[tuple[str, Part], float]],
) -> LayersDocument:
    """Times of layers that belong to this study: whole steps and parts by cell, in seconds.

    Two processes of two rounds, the parts of the second 2 % slower; in all, each takes what is said.
    """
    engines = []
    for cell, step in steps.items():
        result = study.result(cell)
        times = [[1.01 * step] * 2, [0.99 * step] * 2]
        rows = [
            LayerRow(
                layer=layer,
                part=part,
                seconds_per_step=seconds,
                interval95=None,
                seconds=[[0.99 * seconds] * 2, [1.01 * seconds] * 2],
            )
            for (layer, part), seconds in parts.get(cell, {}).items()
        ]
        engines.append(
            EngineLayers(
                cell=cell,
                engine=result.engine,
                variant=result.variant,
                device=result.device,
                status="ok",
                parity="pass",
                step_seconds=step,
                residue_seconds=step - sum(parts.get(cell, {}).values()) if rows else None,
                rows=rows,
                samples=Samples("step", 1, [[[time] for time in process] for process in times]),
                versions=result.versions,
            )
        )
    return LayersDocument(
        id="20250103-000000-abcd",
        created=study.created,
        polybench=study.polybench,
        argv=["layers"],
        study=study.study,
        settings=study.settings,
        host=study.host,
        engines=engines,
    )
