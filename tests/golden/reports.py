"""What polybench says about studies of simulated machines: derived values, warnings and the printed table.

`reports.json` has a report per scenario, without raw step times and without what depends on this machine. `python -m
tests.golden` writes it again after an intended change; its diff shows which numbers and sentences have moved.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import msgspec

from polybench.experiments.layers import run_layers
from polybench.machine import host
from polybench.machine.memory import RssReading
from polybench.render import render
from polybench.results.sweep import build_overhead_document, build_sweep_document
from polybench.run import run_study
from polybench.runner.progress import NullProgress
from polybench.schema.measurements import LayersDocument, OverheadDocument, SweepDocument
from polybench.schema.study import StudyDocument
from tests import simulated_machine
from tests.factories import study as made_up
from tests.runner.studies import interrupt_at
from tests.simulated_machine import THREADS, Machine, Script, study_of

FILE = Path(__file__).with_name("reports.json")

FAST, PAUSING = Script(0.014), Script(0.014, pause_interval=40, pause_seconds=0.096)
TWO = {"torch": Script(), "tf": FAST}

Scenario = Callable[[], Any]


def _study(machine: Machine, scripts: Mapping[str, Script] = TWO, **fields: Any) -> Scenario:
    return lambda: replace(machine).measure(scripts, **({"processes": 5, "budget": 20.0} | fields))


def _interrupted() -> StudyDocument:
    with Machine(seed=31).simulate(TWO):
        return run_study(study_of(TWO, processes=4, budget=20.0), interrupt_at("process 3 of 4: round"), store=None)


def _layers() -> LayersDocument:
    with Machine(seed=32).simulate(TWO):
        return run_layers(study_of(TWO, processes=3, rounds_per_process=2), NullProgress()).document


AXES = {"batch_size": [16, 64, 256]}
LINEAR = {"torch": Script(0.004, seconds_per_item=0.0001), "tf": Script(0.002, seconds_per_item=0.00013)}


def _sweep() -> SweepDocument:
    points = Machine(seed=33).measure_points(LINEAR, AXES, processes=3, rounds_per_process=2)
    return build_sweep_document(AXES, points, (), THREADS)


def _overhead() -> OverheadDocument:
    points = Machine(seed=34).measure_points(LINEAR, AXES, processes=3, rounds_per_process=2)
    return build_overhead_document({values["batch_size"]: document for values, document in points}, ())


SCENARIOS: dict[str, Scenario] = {
    "two engines": _study(Machine(seed=1)),
    "three engines, a baseline and prices": _study(
        Machine(seed=2), {"torch": Script(), "tf": FAST, "jax": Script(0.030)}, baseline="tf/cpu", prices={"cpu": 3.6}
    ),
    "one process": _study(Machine(seed=3), processes=1),
    "two processes": _study(Machine(seed=4), processes=2),
    "equal engines": _study(Machine(seed=5), {"torch": Script(), "tf": Script(), "jax": Script()}),
    "repeats": _study(Machine(seed=6), {"torch": Script(), "torch#2": Script()}, tolerance=0.05),
    "pauses": _study(Machine(seed=7), {"torch": Script(), "tf": PAUSING}),
    "rare pauses": _study(
        Machine(seed=8), {"torch": Script(), "tf": Script(0.014, pause_interval=900, pause_seconds=0.4)}
    ),
    "pauses off the clock": _study(Machine(seed=9), {"torch": Script(), "tf": replace(PAUSING, off_the_clock=True)}),
    "a step against blocks": _study(
        Machine(seed=10), {"torch": Script(), "tf": Script(0.014, timing_resolution="block")}
    ),
    "processes of two kinds": _study(Machine(seed=11), {"torch": Script(), "tf": Script(slow_processes=0.4)}),
    "bursts of another program": _study(Machine(seed=12, bursts=0.2)),
    "bursts in most blocks": _study(Machine(seed=13, bursts=0.7)),
    "bursts that no counter shows": _study(Machine(seed=14, bursts=0.2, visible_bursts=False)),
    "drift": _study(Machine(seed=15, drift=0.1)),
    "a jump": _study(Machine(seed=16, jump=0.3)),
    "throttling": _study(Machine(seed=17, throttling=0.3), budget=120.0),
    "a slow warm-up": _study(Machine(seed=18, warm_up=1.0)),
    "correlated steps": _study(Machine(seed=19, autocorrelation=0.9)),
    "steps without a variance": _study(Machine(seed=20, tail_index=2.0)),
    "given rounds and steps": _study(Machine(seed=21), rounds_per_process=3, steps_per_round=7),
    "a budget that ends": _study(Machine(seed=22), rounds_per_process=100, budget=5.0),
    "trainings": _study(Machine(seed=23), epochs=3, accuracy=True),
    "trainings up to a loss": _study(Machine(seed=24), target_loss=1.16),
    "the forward pass": _study(Machine(seed=25), inference=True),
    "a pipeline": _study(Machine(seed=26), input="pipeline"),
    "an interrupted study": _interrupted,
    "layers": _layers,
    "a sweep": _sweep,
    "an overhead": _overhead,
}
"""Everything that a report derives from measurements, once."""


def report(name: str) -> dict[str, Any]:
    """Measure a scenario; return its document without raw values, as with `--format json`, and its table with notes."""
    resident = RssReading(90 << 20, 10 << 20, 100 << 20)
    with patch.object(simulated_machine, "_RSS", resident), patch.object(host, "usable_threads", lambda: THREADS):
        document = SCENARIOS[name]()
    fixed = made_up()
    same = {"id": fixed.id, "created": fixed.created, "host": fixed.host, "polybench": fixed.polybench}
    document = msgspec.structs.replace(document, **{k: v for k, v in same.items() if hasattr(document, k)})
    values = json.loads(render(document, "json"))
    return {"json": _derived(values), "table": render(document, "table", notes=True).splitlines()}


_LEFT_OUT = {
    # raw values, and what they add up to
    *("step_times", "steps_per_second", "seconds", "interference", "phase_seconds"),
    # what is given, and IDs that are counted
    *("study", "settings", "workload", "versions", "argv", "id", "created", "host", "polybench", "schema", "studies"),
}


def _derived(value: Any) -> Any:
    if isinstance(value, dict):
        derived = {key: _derived(item) for key, item in value.items() if key not in _LEFT_OUT}
        return {key: item for key, item in derived.items() if item not in (None, [], {})}
    if isinstance(value, list):
        return [_derived(item) for item in value]
    if isinstance(value, float) and math.isfinite(value):
        return float(f"{value:.9g}") if abs(value) > 1e-12 else 0.0  # processors round differently
    return value
