"""Invented studies for tests: none of these numbers was measured."""

from __future__ import annotations

from typing import Any

import msgspec

from polybench.log import PlannedConfiguration
from polybench.networks.layers import Operation
from polybench.networks.optimizers import Optimizer
from polybench.runner.configuration_run import ConfigurationRun
from polybench.schema.measurements import ConfigurationLayers, LayerRow, LayersDocument
from polybench.schema.metadata import Host, RoundInterference, Settings, ToolVersion
from polybench.schema.options import Configuration, Workload
from polybench.schema.parity import KnownDeviation, ParityCheck
from polybench.schema.resources import BlockCounters, Interference, Memory, NativeAllocation, SizeClasses
from polybench.schema.result import BaselineComparison, ColdStart, Result, StepTimes, TrainedEpoch, Training
from polybench.schema.study import StudyDocument
from polybench.stats.statistics import ratio, summarize_step_times

WORKLOAD = Workload("lenet", "synthetic", 128, Optimizer(), "fp32", 2)

_QUIET, _AFFECTED = BlockCounters(1.0, 1.0, 0.0, 0.0), BlockCounters(1.0, 1.0, 0.5, 0.0, affected=True)

DISTURBED = Interference(blocks=[[_AFFECTED, _QUIET], [_AFFECTED, _QUIET], [_QUIET, _QUIET]], blocks_affected=2)
"""Too much interference with the six timing blocks of `measured` for a conclusion."""

FLUX_DEVIATIONS = [
    KnownDeviation(
        "max-pool gradient goes to the first value within 3.5e-4 of the maximum", "conv1.weight", 8.8e-3, "NNlib"
    ),
    KnownDeviation(
        "max-pool gradient goes to the first value within 3.5e-4 of the maximum", "conv2.weight", 3.6e-3, "NNlib"
    ),
]


def run_of(engine: str, **planned: Any) -> ConfigurationRun:
    """Return a configuration on the CPU without measurements; `planned` are fields of its plan."""
    return ConfigurationRun(
        PlannedConfiguration(configuration=Configuration(engine, (), "cpu"), workload=WORKLOAD, **planned)
    )


def step_times_around(median: float, processes: int = 3, rounds: int = 2) -> list[list[list[float]]]:
    """Return step times [process][round][step]: processes 1 % apart, steps 1 % around each."""
    return [
        [[median * (1 + 0.01 * (process - 1)) * (1 + 0.01 * step) for step in (-1, 0, 1)] for _ in range(rounds)]
        for process in range(processes)
    ]


def measured(
    configuration: str, median: float, baseline: str = "torch/cpu", processes: int = 3, **changes: Any
) -> Result:
    """Return a measured configuration; `vs_baseline` refers to a baseline of 16.5 ms."""
    name, device = configuration.partition("#")[0].split("/")
    name, _, environment = name.partition("@")
    engine, _, variant = name.partition("+")
    step_times = step_times_around(median, processes)
    speedup = ratio(step_times_around(0.0165, processes), step_times)
    fields: dict[str, Any] = {
        "configuration": configuration,
        "engine": engine,
        "variant": variant or None,
        "environment": environment or None,
        "device": device,
        "workload": WORKLOAD,
        "status": "ok",
        "step_time": summarize_step_times(step_times, "step"),
        "items_per_second": 128 / median,
        "epoch_seconds": 390 * median,
        "startup": ColdStart(0.05, 1.5, 0.2, 0.1, 0.3, 0.02),
        "memory": Memory(peak_rss_bytes=412 << 20),
        "parity": ParityCheck("pass", steps=3, batch_size=16),
        "losses": [2.31, 2.3],
        "vs_baseline": BaselineComparison(baseline, speedup.speedup, speedup.ci95, speedup.scope),
        "step_times": StepTimes("step", 1, step_times),
    }
    return Result(**(fields | changes))


def unmeasured(configuration: str, status: str, reason: str | None, hint: str | None = None, **changes: Any) -> Result:
    """Return a configuration without times."""
    engine, device = configuration.split("/")
    return Result(
        **{
            "configuration": configuration,
            "engine": engine,
            "variant": None,
            "device": device,
            "workload": WORKLOAD,
            "status": status,
            "reason": reason,
            "hint": hint,
        }
        | changes
    )


def points_over_threads(**versions: str) -> list[tuple[dict[str, int], StudyDocument]]:
    """Create the points of a sweep: 100, 180 and 190 images/s with 1, 2 and 4 threads."""
    rates = {1: 100.0, 2: 180.0, 4: 190.0}
    points = []
    for threads, rate in rates.items():
        one = study(measured("torch/cpu", 128 / rate, versions={"torch": "2.13.0"} | versions))
        settings = msgspec.structs.replace(one.settings, threads=threads)
        points.append(({"threads": threads}, msgspec.structs.replace(one, settings=settings)))
    return points


def study(*results: Result, dataset: str = "synthetic", warnings: list[str] | None = None) -> StudyDocument:
    return StudyDocument(
        id="20250101-000000-abcd",
        created="2025-01-01T00:00:00Z",
        polybench=ToolVersion("0.1.0", None),
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
            malloc="retain",
            seed=0,
            processes=3,
            rounds_per_process=None,
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
            cpu_governor=None,
            load_average=0.1,
            python="3.11.7",
        ),
        interference=[RoundInterference(0, 0, 0.1, 1.0, 0.0, 0, False)],
        warnings=warnings or [],
        results=list(results),
    )


def native_allocation(size: float, relative: float | None = None, coverage: str = "all") -> NativeAllocation:
    """Return native allocations of `size` bytes per step."""
    return NativeAllocation(2700, size, 18 << 20, SizeClasses(2600, 90, 10), "memray", coverage, relative)


def typical_study() -> StudyDocument:
    """Return a study with every kind of row: baseline, faster, failed parity check, unavailable, failed."""
    return study(
        measured("torch/cpu", 0.0165),
        measured(
            "tf+keras_fit/cpu", 0.112, parity=ParityCheck("fail", "loss 3.1e-2 from the reference"), vs_baseline=None
        ),
        measured("tf/cpu", 0.00855, warnings=["steps became 4.1% slower over the rounds"]),
        measured("flux/cpu", 0.0201, parity=ParityCheck("pass", known_deviations=FLUX_DEVIATIONS)),
        unmeasured(
            "torch/cuda",
            "unavailable",
            "no CUDA device is visible to PyTorch",
            "install an NVIDIA driver, then run polybench doctor",
        ),
        unmeasured(
            "tf/cuda", "failed", "killed by signal 9 (SIGKILL)\nout of memory?", log_path="/tmp/polybench/tf.log"
        ),
        warnings=["CPU contention: 1 of 6 timing blocks was re-measured"],
    )


def trainings(*accuracies: float | None, epochs: int = 2) -> list[Training]:
    """Return a training for each seed from 0; `accuracies` are those after the last epoch."""
    return [
        Training(seed, [TrainedEpoch(1.0, [390.0], 1.5, 0.1)] * (epochs - 1) + [TrainedEpoch(1.0, [390.0], 1.2, last)])
        for seed, last in enumerate(accuracies)
    ]


def saved_again(study: StudyDocument, id: str = "20250102-000000-abcd", **changes: Any) -> StudyDocument:
    """Return the study with another ID and other settings, which also apply to each result's workload."""
    settings = msgspec.structs.replace(study.settings, **changes)
    workload_changes = {name: value for name, value in changes.items() if name in Workload.__struct_fields__}
    results = [
        msgspec.structs.replace(one, workload=msgspec.structs.replace(one.workload, **workload_changes))
        for one in study.results
    ]
    return msgspec.structs.replace(study, id=id, settings=settings, results=results)


def layers(
    study: StudyDocument, step_seconds: dict[str, float], operations: dict[str, dict[tuple[str, Operation], float]]
) -> LayersDocument:
    """Return layer times for this study: whole steps and operations by configuration, in seconds.

    There are two processes of two rounds; operations of the second process are 2 % slower. The means are as
    given.
    """
    configurations = []
    for configuration, seconds_per_step in step_seconds.items():
        result = study.result(configuration)
        times = [[1.01 * seconds_per_step] * 2, [0.99 * seconds_per_step] * 2]
        rows = [
            LayerRow(
                layer=layer,
                operation=operation,
                seconds_per_step=seconds,
                ci95=None,
                seconds=[[0.99 * seconds] * 2, [1.01 * seconds] * 2],
            )
            for (layer, operation), seconds in operations.get(configuration, {}).items()
        ]
        configurations.append(
            ConfigurationLayers(
                configuration=configuration,
                engine=result.engine,
                variant=result.variant,
                device=result.device,
                status="ok",
                parity="pass",
                step_seconds=seconds_per_step,
                unattributed_seconds=seconds_per_step - sum(operations.get(configuration, {}).values())
                if rows
                else None,
                rows=rows,
                step_times=StepTimes("step", 1, [[[time] for time in process] for process in times]),
                versions=result.versions,
            )
        )
    return LayersDocument(
        id="layers-20250103-000000-abcd",
        created=study.created,
        polybench=study.polybench,
        argv=["layers"],
        study=study.study,
        settings=study.settings,
        host=study.host,
        configurations=configurations,
    )
