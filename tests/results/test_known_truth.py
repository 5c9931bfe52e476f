"""Results of studies on simulated machines with a known truth.

`benchmarks/proofs.py` measures coverage and false verdicts with the functions of this file. Of cases with few and with
many studies, the latter are exhaustive.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import msgspec
import pytest

from polybench.analysis.diff import diff
from polybench.analysis.explanation import SavedDocuments, explain
from polybench.analysis.history import build_history
from polybench.analysis.merge import merge
from polybench.analysis.recommendations import find_recommendations
from polybench.experiments.layers import run_layers
from polybench.html_report import study_section, sweep_section
from polybench.render import render
from polybench.render.footnotes import footnotes
from polybench.render.verdicts import summary_sentences
from polybench.results.repetitions import Repetitions
from polybench.results.summaries import FastestConfiguration, StudySummary, summarize
from polybench.results.sweep import build_overhead_document, build_sweep_document
from polybench.runner.progress import NullProgress
from polybench.schema.analyses import Series
from polybench.schema.result import SINGLE_PROCESS, Comparison
from polybench.schema.study import StudyDocument
from polybench.stats.statistics import steps_to_break_even
from polybench.storage.filters import Filters
from tests.simulated_machine import THREADS, Machine, Script, repeat, study_of

STEP = 0.020


def collecting(interval: int) -> Script:
    """Return an engine whose collector takes 1.5 ms of a mean step, in a pause every `interval` steps."""
    return Script(STEP, pause_interval=interval, pause_seconds=0.0015 * interval)


def share(machine: Machine, studies: int, holds: Callable[[Machine], bool]) -> float:
    """Return the share of studies on such machines for which a condition holds."""
    return sum(map(holds, repeat(machine, studies))) / studies


def few_or_many(few: int, many: int, *cases: tuple[object, ...]) -> list[object]:
    """Return the first case with few studies, and each with many as an exhaustive case."""
    return [
        *(pytest.param(*case, few, id=_name(case)) for case in cases[:1]),
        *(pytest.param(*case, many, id=f"{_name(case)}-many", marks=pytest.mark.wide) for case in cases),
    ]


def _name(case: tuple[object, ...]) -> str:
    return "-".join(getattr(value, "__name__", str(value)) for value in case)


def collected_study(**fields: object) -> tuple[Machine, StudyDocument]:
    """Measure an engine with a collector whose typical step is a little shorter than that of one without."""
    machine = Machine(process=0.002, round=0.001, tail=0.0)
    return machine, machine.measure(
        {"torch": Script(STEP, first_step_seconds=5.0), "tf": collecting(40)},
        processes=10,
        prices={"cpu": 3.6},
        **fields,
    )


def test_values_of_an_epoch_are_those_of_its_mean_step() -> None:
    machine, document = collected_study()
    torch, tf = document.results
    assert tf.step_time is not None
    assert torch.step_time is not None
    assert tf.step_time.median == pytest.approx(torch.step_time.median, rel=0.005)
    seconds, torch_seconds = machine.mean_seconds(collecting(40)), machine.mean_seconds(Script(STEP))
    assert tf.epoch_seconds == pytest.approx(390 * seconds, rel=0.02)
    assert tf.cost is not None
    assert tf.cost.dollars_per_epoch == pytest.approx(390 * seconds * 0.001, rel=0.02)
    assert tf.cost.relative == pytest.approx(seconds / torch_seconds, rel=0.02)
    assert torch.startup is not None
    assert tf.startup is not None
    gained = steps_to_break_even(
        torch.startup.cold_start_seconds, torch_seconds, tf.startup.cold_start_seconds, seconds
    )
    assert [one.steps for one in torch.break_even_steps] == [pytest.approx(gained, rel=0.2)]


def test_a_relative_cost_has_an_interval_and_may_be_inconclusive() -> None:
    machine, document = collected_study()
    cost = document.result("tf/cpu").cost
    assert cost is not None
    assert cost.ci95 is not None
    truth = machine.mean_seconds(collecting(40)) / machine.mean_seconds(Script(STEP))
    assert 1 < cost.ci95[0] <= truth <= cost.ci95[1]
    assert cost.inconclusive_reason is None
    single = machine.measure({"torch": Script(), "tf": Script()}, processes=1, prices={"cpu": 1.0}).result("tf/cpu")
    assert single.cost is not None
    assert single.cost.inconclusive_reason == SINGLE_PROCESS


def test_a_variant_whose_time_leaves_out_collections_is_named_in_no_sentence() -> None:
    machine = Machine(process=0.002, round=0.001)
    without = Script(0.015, pause_interval=10, pause_seconds=0.05, off_the_clock=True)
    scripts = {"torch": Script(0.030), "flux": collecting(10), "flux+gc_off": without}
    document = machine.measure(scripts, prices={"cpu": 1.0})
    teaching = document.result("flux+gc_off/cpu")
    assert teaching.vs_baseline is not None
    assert teaching.vs_baseline.is_significant
    assert (teaching.cost, teaching.caveat is None) == (None, False)
    (sentence,) = summary_sentences(document)
    assert sentence.startswith("flux is ")
    assert f"flux+gc_off/cpu: for teaching only: {teaching.caveat}" in footnotes(document, [])
    explanation = explain(document, SavedDocuments(), baseline="flux/cpu")
    assert explanation.recommendations == []
    assert any("for teaching only" in one.text for pair in explanation.comparisons for one in pair.statements)
    alone = machine.measure({"flux+gc_off": without, "flux": collecting(10)})
    assert alone.settings.baseline == "flux/cpu"
    assert not study_section.headline(document).startswith("flux+gc_off")
    assert summarize(document).fastest == FastestConfiguration(
        "flux/cpu", document.result("flux/cpu").step_seconds, inconclusive=False
    )


def test_the_parts_of_an_explanation_add_up_to_a_difference_of_the_same_kind() -> None:
    machine = Machine(process=0.002, round=0.001, tail=0.0)
    scripts = {"torch": Script(STEP), "tf": collecting(40)}
    document = machine.measure(scripts)
    with machine.simulate(scripts):
        layers = run_layers(study_of(scripts), NullProgress()).document
    (pair,) = explain(document, SavedDocuments((layers,))).comparisons
    found = pair.breakdown("layers")
    assert found is not None
    # Both differ by the collector alone.
    truth = machine.mean_seconds(scripts["tf"]) - machine.mean_seconds(scripts["torch"])
    assert pair.difference_seconds == found.difference_seconds == pytest.approx(truth, rel=0.2)
    parts = [*found.components, *found.unattributed]
    assert sum(one.difference_seconds for one in parts) == pytest.approx(found.difference_seconds)
    assert sum(one.difference_seconds for one in found.components) == pytest.approx(truth, rel=0.25)


def test_every_point_that_cannot_be_told_from_the_best_of_a_sweep_is_named() -> None:
    machine, speeds = Machine(seed=6), {1: 0.030, 2: 0.020, 4: 0.0199, 8: 0.0201}
    prices = {"cpu": 1.0}
    points = [
        ({"threads": threads}, machine.measure({"torch": Script(seconds)}, threads=threads, prices=prices))
        for threads, seconds in speeds.items()
    ]
    sweep = build_sweep_document({"threads": list(speeds)}, points, [], usable_threads=8)
    (curve,) = sweep.curves
    assert curve.as_good is not None
    assert sorted(one["threads"] for one in (curve.best, *curve.as_good)) == [2, 4, 8]
    assert {one.parameters["threads"] for one in sweep.cheapest} == {2, 4, 8}
    cheaper = sweep.points[1].configurations[0]
    assert cheaper.relative_cost == pytest.approx(2 / 3, rel=0.1)
    assert cheaper.relative_cost_ci95 is not None
    assert cheaper.relative_cost_ci95[1] < 1
    text = render(sweep, "table")
    assert text.count("no significant difference") == 2
    single = [({"threads": 1}, machine.measure({"torch": Script()}, processes=1)) for _ in range(2)]
    inconclusive = build_sweep_document({"threads": [1]}, single, [], 8)
    assert f"Cannot tell: {SINGLE_PROCESS}." in render(inconclusive, "table")
    assert sweep_section.headline(inconclusive) == f"Cannot tell: {SINGLE_PROCESS}."


def equal_configurations(machine: Machine, number: int) -> StudyDocument:
    names = ("torch" if index == 1 else f"torch#{index}" for index in range(1, number + 1))
    return machine.measure(dict.fromkeys(names, Script()))


def names_a_difference(document: StudyDocument) -> bool:
    return any("times as fast as" in sentence for sentence in summary_sentences(document))


def test_the_p_values_of_a_table_are_corrected_for_their_number() -> None:
    two, many = (equal_configurations(Machine(seed=8), number) for number in (2, 10))

    def compared(document: StudyDocument) -> list[Comparison]:
        return [one.vs_baseline for one in document.results[1:] if one.vs_baseline]

    (alone,) = compared(two)
    assert alone.p_value is not None
    assert alone.ci95 is not None
    assert (alone.p_value < 0.05) == (not alone.ci95[0] <= 1 <= alone.ci95[1])
    excluded = [one for one in compared(many) if one.ci95 and not one.ci95[0] <= 1 <= one.ci95[1]]
    assert [one.is_significant for one in excluded] == [False] * len(excluded)
    assert excluded, "choose another seed: no interval excludes 1"


@pytest.mark.parametrize(
    ("tolerance", "said"),
    [
        (0.02, "tf and torch differ by less than 2.0%: ratio 1.008 (1.003 to 1.013)."),
        (0.01, "polybench cannot tell whether tf and torch differ by more than 1.0%: ratio 1.008 (1.003 to 1.013)."),
        (0.001, "tf is 1.008 (1.003 to 1.013) times as fast as torch."),
    ],
)
def test_a_difference_below_the_tolerance_is_not_named(tolerance: float, said: str) -> None:
    machine = Machine(process=0.0005, round=0.0005, tail=0.0)
    document = machine.measure({"torch": Script(STEP), "tf": Script(STEP / 1.005)}, processes=10, tolerance=tolerance)
    comparison = document.result("tf/cpu").vs_baseline
    assert comparison is not None
    assert comparison.is_significant
    assert names_a_difference(document) == (tolerance == 0.001)
    assert summary_sentences(document) == [said]


LINEAR = Script(0.004, seconds_per_item=0.0005)


def covers_speedups(machine: Machine) -> list[bool]:
    """Return whether each point's speed-up over the first one contains the truth."""
    axes = {"batch_size": [8, 32, 128]}
    points = machine.measure_points({"torch": LINEAR}, axes)
    first, *others = build_sweep_document(axes, points, (), THREADS).points
    hits = []
    for point in others:
        size, first_size = (one.parameters["batch_size"] for one in (point, first))
        truth = size / first_size * LINEAR.step_seconds(first_size) / LINEAR.step_seconds(size)
        interval = point.configurations[0].ci95
        assert interval is not None
        hits.append(interval[0] <= truth <= interval[1])
    return hits


def covers_overhead(machine: Machine) -> list[bool]:
    """Return whether the intervals of the fit contain the truth, on a machine of its mean speed in this time."""
    points = machine.measure_points({"torch": LINEAR}, {"batch_size": [1, 8, 64]})
    (fit,) = build_overhead_document({values["batch_size"]: study for values, study in points}, ()).configurations
    assert fit.ci95 is not None
    unit = machine.mean_seconds(Script(1.0)) * machine.mean_level
    truths = (
        (fit.ci95.overhead_seconds, LINEAR.seconds * unit),
        (fit.ci95.seconds_per_item, LINEAR.seconds_per_item * unit),
    )
    return [interval is not None and interval[0] <= truth <= interval[1] for interval, truth in truths]


@dataclass(frozen=True)
class Shifts:
    """Standard deviations of what moves a machine between studies, and the number of saved repetitions."""

    own: float = 0.0
    common: float = 0.0
    saved: int = 0

    def machine(self, seed: int) -> Machine:
        return Machine(seed=seed, study=self.own, shared_study=self.common)

    def repetitions(self, machine: Machine, scripts: Mapping[str, Script]) -> list[StudySummary]:
        """Measure and summarize the repetitions."""
        documents = (machine.measure(scripts) for _ in range(self.saved))
        return [summarize(document) for document in documents]


ENGINES = ("torch", "tf", "jax", "flux", "lux")


def verdicts(machine: Machine, shifts: Shifts, engines: int, slower: Sequence[float]) -> list[list[str]]:
    """Return the verdicts on pairs of studies: on equal ones, and on those in which the first engine is slower."""
    scripts = dict.fromkeys(ENGINES[:engines], Script(STEP))
    saved = shifts.repetitions(machine, scripts)
    found = []
    for change in (0.0, *slower):
        before = machine.measure(scripts)
        after = machine.measure(scripts | {"torch": Script(STEP * (1 + change))})
        after.results[0].versions |= {"changed": str(change)} if change else {}
        found.append([row.verdict for row in diff(before, after, saved=saved).rows])
    return found


def is_advised(machine: Machine, shifts: Shifts) -> bool:
    """Return whether one of three settings that change nothing is recommended."""
    scripts = {"torch": Script(STEP)}
    saved, document = shifts.repetitions(machine, scripts), machine.measure(scripts)
    others = [machine.measure(scripts, **one) for one in ({"threads": 1}, {"threads": 4}, {"malloc": "system"})]
    spread = Repetitions(saved, {"": document}).spread("", device="cpu")
    return any(find_recommendations(document, document.results[0], others, spread))


def covers_merged(machine: Machine, shifts: Shifts) -> bool:
    """Return whether the speed-up between equal machines contains 1."""
    scripts = {"torch": Script(STEP)}
    saved, studies = [], []
    for name in ("one", "two"):
        repetitions, document = shifts.repetitions(machine, scripts), machine.measure(scripts)
        document.host = msgspec.structs.replace(document.host, hostname=name)
        studies.append(document)
        (own,) = {one.machine for one in repetitions} or {""}
        elsewhere = own.replace(own.partition(",")[0], name, 1)
        saved += [msgspec.structs.replace(one, machine=elsewhere) for one in repetitions]
    low, high = merge(studies, {}, saved=saved).results[1].speedup_ci95 or (0.0, 0.0)
    return low <= 1 <= high


def change_points(machine: Machine, studies: int, change: float = 0.0, others: Sequence[str] = ()) -> list[int]:
    """Return at which studies a series changes, whose second half is slower by `change`, beside `others`."""
    series, ids = changed_series(machine, studies, change, others)
    return [ids.index(one.study) for one in series.change_points]


def changed_series(
    machine: Machine, studies: int, change: float, others: Sequence[str] = ()
) -> tuple[Series, list[str]]:
    """Return a series whose second half is slower by `change`, measured beside `others`, and the IDs of its studies."""
    levels = (STEP * (1 + change * (2 * number >= studies)) for number in range(studies))
    documents = [
        machine.measure({"torch": Script(seconds), **dict.fromkeys(others, Script(STEP))}) for seconds in levels
    ]
    series = build_history(reversed(documents), Filters(engine="torch")).series[0]
    return series, [document.id for document in documents]


SHIFT_CASES = few_or_many(
    20, 200, *((Shifts(own, common, saved=5),) for own, common in ((0.02, 0.03), (0.0, 0.05), (0.05, 0.0), (0.0, 0.0)))
)
"""Cases of a machine with five saved repetitions."""


def test_a_change_is_found_on_a_machine_that_drifts_as_a_whole() -> None:
    """The drift of 5 % hides it without other engines."""
    drifting, pairs = Shifts(common=0.05, saved=5), 10
    alone, beside = (
        [verdicts(machine, drifting, engines, (0.2,))[1][0] for machine in repeat(drifting.machine(8), pairs)]
        for engines in (1, 4)
    )
    assert beside.count("slower") >= 0.9 * pairs
    assert alone.count("slower") <= 0.8 * pairs


@pytest.mark.parametrize(("shifts", "studies"), SHIFT_CASES)
def test_settings_without_an_effect_are_seldom_recommended(shifts: Shifts, studies: int) -> None:
    chance = 2 * (0.05 * 0.95 / studies) ** 0.5
    assert share(shifts.machine(9), studies, lambda machine: is_advised(machine, shifts)) <= 0.05 + chance


@pytest.mark.parametrize(("shifts", "studies"), SHIFT_CASES)
def test_speedups_between_machines_contain_the_shifts_of_both_studies(shifts: Shifts, studies: int) -> None:
    chance = 2 * (0.95 * 0.05 / studies) ** 0.5
    assert share(shifts.machine(10), studies, lambda machine: covers_merged(machine, shifts)) >= 0.95 - chance


def test_a_change_of_a_series_is_found_at_its_study() -> None:
    assert share(Shifts(own=0.02).machine(12), 20, lambda machine: change_points(machine, 10, 0.2) == [5]) >= 0.8
