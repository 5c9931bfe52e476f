"""Tests of explanations: inconclusive pairs come first, and each statement has its evidence."""

from __future__ import annotations

import math
import shlex

import msgspec
import pytest

from polybench.analysis.explanation import SavedDocuments, explain
from polybench.analysis.step_parts import SharedLayers, find_shared_layers, step_parts
from polybench.errors import BadInput
from polybench.networks.layers import Operation
from polybench.schema.analyses import ExplanationDocument
from polybench.schema.measurements import LayersDocument
from polybench.schema.resources import BlockCounters, GarbageCollection, Interference
from polybench.schema.result import BreakEven, ColdStart, Pipeline, Result, StepTimes
from polybench.schema.study import StudyDocument
from polybench.stats.statistics import summarize_step_times
from tests.analysis.test_diff import with_step_times
from tests.factories import layers, measured, saved_again, study, typical_study, unmeasured

CONV: tuple[str, Operation] = ("conv2 + relu", "input gradient")
DENSE: tuple[str, Operation] = ("dense1", "weight gradient")
FAULTS = Interference(
    blocks=[[BlockCounters(1.0, 1.0, 0.0, 0.0, minor_faults=9, page_fault_seconds=0.1)]], minor_faults_per_step=9.0
)
AFFECTED = Interference(blocks=[[BlockCounters(1.0, 1.0, 0.5, 0.0, affected=True)]], blocks_affected=1)


@pytest.fixture
def document() -> StudyDocument:
    return study(
        measured(
            "flux/cpu",
            0.050,
            startup=ColdStart(0.1, 5.0, 1.0, 0.2, 11.0, 0.1),
            break_even_steps=[BreakEven("torch/cpu", None)],
            interference=FAULTS,
            gc=GarbageCollection(0.004),
        ),
        measured("torch/cpu", 0.020, interference=FAULTS),
    )


def explain_with_layers(
    document: StudyDocument, *others: StudyDocument, baseline: str | None = None
) -> ExplanationDocument:
    timed = layers(
        document,
        {"flux/cpu": 0.051, "torch/cpu": 0.020},
        {"flux/cpu": {CONV: 0.030, DENSE: 0.002}, "torch/cpu": {CONV: 0.009, DENSE: 0.006}},
    )
    return explain(document, SavedDocuments([timed], others), baseline)


def text(found: ExplanationDocument) -> str:
    return "\n".join(f"{one.text} [{one.evidence}] {one.command or ''}" for one in found.all_statements())


def test_largest_component_is_named_with_its_time(document: StudyDocument) -> None:
    (pair,) = explain_with_layers(document).comparisons
    opening, most, *others = pair.statements
    assert opening.text.startswith("flux/cpu takes 30.0 ms (")
    assert "longer per step than torch/cpu: 50.0 ms vs. 20.0 ms, 0.40 (" in opening.text
    assert most.text.startswith("Most of the difference comes from conv2 + relu, input gradient: 21.0 ms (")
    assert most.text.endswith("longer, 30.0 ms vs. 9.00 ms.")
    assert most.seconds == pytest.approx(0.021)
    assert most.evidence == "layers-20250103-000000-abcd: conv2 + relu, input gradient"
    assert others[0].text.startswith("Another part comes from garbage collection: 4.00 ms longer")
    assert others[0].evidence == "gc_time"


def test_every_statement_has_its_evidence(document: StudyDocument) -> None:
    found = explain_with_layers(document)
    assert all(statement.evidence for statement in found.all_statements())
    texts = text(found)
    for expected in (
        "The largest offset comes from dense1, weight gradient: 4.00 ms (",
        "Sums by operation: input gradient +21.0 ms, garbage collection +4.00 ms, weight",
        "Unattributed: +10.0 ms (",
        ") between operations, and -1.00 ms between this study",
        "Page faults take at most 5.00 ms of flux/cpu's step and 2.00 ms of torch/cpu's",
        "The cold start of flux/cpu is 15.2 s longer: 17.3 s vs. 2.15 s to the end of the first step (first",
    ):
        assert expected in texts
    assert "pays off" not in texts  # one start has no interval
    # The times of whole steps in the layers document.
    assert "study and the layers document, whose steps took 51.0 ms and 20.0 ms." in " ".join(texts.split())


def test_faster_configuration_is_described_from_its_side(document: StudyDocument) -> None:
    (pair,) = explain_with_layers(document, baseline="flux/cpu").comparisons
    assert (pair.configuration, pair.baseline) == ("torch/cpu", "flux/cpu")
    assert "torch/cpu takes 30.0 ms (" in pair.statements[0].text
    assert "less per step than flux/cpu" in pair.statements[0].text
    assert "Most of the difference comes from conv2 + relu, input gradient: 21.0 ms (" in pair.statements[1].text
    assert "less, 9.00 ms vs. 30.0 ms" in pair.statements[1].text
    assert any("The cold start of torch/cpu is 15.2 s shorter" in statement.text for statement in pair.statements)


def test_inconclusive_difference_comes_first() -> None:
    affected = measured("jax/cpu", 0.015, interference=AFFECTED)
    found = explain(study(measured("torch/cpu", 0.020), measured("tf/cpu", 0.010), affected), SavedDocuments())
    assert [pair.configuration for pair in found.comparisons] == ["jax/cpu", "tf/cpu"]
    assert found.comparisons[0].statements[0].text == (
        "The difference between jax/cpu and torch/cpu is inconclusive: interference affected 1 of 1 timing"
        " blocks of jax/cpu."
    )
    once = study(*(measured(configuration, 0.01, processes=1) for configuration in ("torch/cpu", "tf/cpu")))
    (pair,) = explain(once, SavedDocuments()).comparisons
    assert pair.statements[0].text == (
        "The difference between tf/cpu and torch/cpu is inconclusive: only one process, and another one may differ;"
        " use --processes 5."
    )


def test_an_inconclusive_difference_is_not_explained(document: StudyDocument) -> None:
    document.results[0] = measured("flux/cpu", 0.04, interference=AFFECTED)
    found = explain_with_layers(document)
    (pair,) = found.comparisons
    assert (len(pair.statements), pair.breakdowns) == (1, [])
    again = next(one for one in found.suggested_measurements if one.evidence == "speedup")
    assert again.command == "polybench compare --engines flux,torch --threads 2 --wait-idle 60.0"


@pytest.mark.parametrize(
    ("cores", "threads"), [(1, None), (2, "1,2"), (3, "1,2,3"), (6, "1,2,4,6"), (8, "1,2,4,8"), (12, "1,2,4,8,12")]
)
def test_a_suggested_sweep_has_powers_of_two_and_all_cores(
    cores: int, threads: str | None, document: StudyDocument
) -> None:
    document = msgspec.structs.replace(document, host=msgspec.structs.replace(document.host, cores=cores))
    commands = [one.command or "" for one in explain(document, SavedDocuments()).suggested_measurements]
    sweeps = [one for one in commands if one.startswith("polybench sweep") and "--batch-size" not in one]
    assert sweeps == ([f"polybench sweep --engines flux --threads {threads}"] if threads else [])


@pytest.mark.parametrize(("batch_size", "values"), [(128, "32,128,512"), (3, "1,3,12"), (1, "1,4")])
def test_a_suggested_sweep_has_a_quarter_and_four_times_the_batch(
    batch_size: int, values: str, document: StudyDocument
) -> None:
    settings = msgspec.structs.replace(document.settings, batch_size=batch_size)
    commands = [
        one.command or ""
        for one in explain(
            msgspec.structs.replace(document, settings=settings), SavedDocuments()
        ).suggested_measurements
    ]
    assert any(one.endswith(f"--batch-size {values}") for one in commands)


def test_missing_measurements_have_commands(document: StudyDocument) -> None:
    found = explain(document, SavedDocuments())
    commands = {statement.evidence: statement.command for statement in found.suggested_measurements}
    assert commands["layers"] == "polybench layers --engines flux,torch --threads 2"
    assert commands["overhead"] == "polybench overhead --engines flux,torch --threads 2"
    texts = text(found)
    assert "Not measured: in which layers the difference arises: those of flux/cpu, torch/cpu. [layers]" in texts
    assert "polybench sweep --engines flux --threads 1,2" in texts
    assert "polybench sweep --engines flux --threads 2 --batch-size 32,128,512" in texts
    assert "polybench compare --engines flux,flux+framework_threads,flux+train --threads 2" in texts
    assert "polybench compare --engines flux,torch --input pipeline --threads 2" in texts
    measured_all = explain_with_layers(
        document, saved_again(document, "a", threads=1), saved_again(document, "b", batch_size=32)
    )
    remaining = {statement.evidence for statement in measured_all.suggested_measurements}
    assert not remaining & {"layers", "sweep"}
    assert all(shlex.split(statement.command or "") for statement in found.suggested_measurements)


def test_known_layers_are_not_missing(document: StudyDocument) -> None:
    """The command measures the missing configuration and the one that it is compared with."""
    document.results += [measured("jax/cpu", 0.015), measured("tf/cpu", 0.010)]

    def of(*configurations: str) -> LayersDocument:
        return layers(
            document,
            {name: document.result(name).step_seconds for name in configurations},
            {configuration: {CONV: 0.009} for configuration in configurations},
        )

    def missing(*known: LayersDocument) -> tuple[str, str | None]:
        (texts,) = (
            one for one in explain(document, SavedDocuments(known)).suggested_measurements if one.evidence == "layers"
        )
        return texts.text, texts.command

    all_four = "Not measured: in which layers the difference arises: those of flux/cpu, torch/cpu, jax/cpu, tf/cpu."
    assert missing() == (all_four, "polybench layers --engines flux,torch,jax,tf --threads 2")
    assert missing(of("flux/cpu", "torch/cpu", "tf/cpu")) == (
        "Not measured: in which layers the difference arises: those of jax/cpu together with those of torch/cpu.",
        "polybench layers --engines torch,jax --threads 2",
    )
    assert missing(of("flux/cpu", "torch/cpu", "tf/cpu"), of("jax/cpu")) == (
        "Not measured: in which layers the difference arises: those of torch/cpu, jax/cpu in one study.",
        "polybench layers --engines torch,jax --threads 2",
    )


def test_studies_of_other_batch_sizes_reveal_the_fixed_overhead(document: StudyDocument) -> None:
    found = explain_with_layers(
        document, saved_again(document, "a", batch_size=1), saved_again(document, "b", batch_size=16)
    )
    assert found.comparisons[0].breakdown("batch size") is not None
    assert "By batch size, " in text(found)
    assert "overhead, linear fit to 3 studies" in text(found)


def test_retaining_memory_is_suggested_for_expensive_page_faults(document: StudyDocument) -> None:
    document.settings = msgspec.structs.replace(document.settings, malloc="system")
    assert "flux/cpu with --malloc retain" in text(explain_with_layers(document))


def test_measured_wait_for_data_is_reported(document: StudyDocument) -> None:
    for result, waiting in zip(document.results, (0.003, 0.001), strict=True):
        result.pipeline = Pipeline(waiting, 0.01)
    document.settings = msgspec.structs.replace(document.settings, input="pipeline")
    texts = text(explain_with_layers(document))
    assert "flux/cpu waits 3.00 ms per step for data, torch/cpu 1.00 ms: +2.00 ms of the difference." in texts
    assert "all data was preloaded" not in texts


def test_step_compiled_as_a_whole_has_no_layer_times() -> None:
    compiled = study(measured("torch/cpu", 0.020), measured("torch+compile/cpu", 0.010))
    found = explain(compiled, SavedDocuments())
    assert "torch+compile/cpu has no layer times: only its whole step can be timed." in text(found)
    assert not [statement for statement in found.suggested_measurements if statement.evidence == "layers"]
    assert found.recommendations[0].text == (
        "torch/cpu as torch+compile/cpu: 10.0 ms less per step, 10.0 ms instead of 20.0 ms."
    )


def test_excluded_configurations_have_a_reason_and_a_command() -> None:
    texts = {statement.text: statement.command for statement in explain(typical_study(), SavedDocuments()).excluded}
    assert texts == {
        "tf+keras_fit/cpu: failed the parity check": ("polybench parity --engines tf+keras_fit --threads 2"),
        "torch/cuda: unavailable: no CUDA device is visible to PyTorch (install an NVIDIA driver, then run"
        " polybench doctor)": "polybench compare --engines torch --threads 2",
        "tf/cuda: failed: killed by signal 9 (SIGKILL) out of memory?": ("polybench compare --engines tf --threads 2"),
    }


@pytest.mark.parametrize(
    ("document", "baseline", "message"),
    [
        (study(measured("torch/cpu", 0.01)), None, "only one measured configuration, torch/cpu, but an"),
        (
            study(measured("torch/cpu", 0.01), unmeasured("flux/cpu", "unavailable", "no Julia", "setup flux")),
            None,
            r"flux/cpu: unavailable: no Julia \(setup flux\); measure them together: polybench compare",
        ),
        (study(unmeasured("tf/cpu", "failed", "killed")), None, "no measured configuration"),
        (typical_study(), "tf/cuda", "tf/cuda: failed: killed by .*--baseline must be one of torch/cpu, tf/cpu"),
        (typical_study(), "tf+keras_fit/cpu", "failed the parity check"),
        (typical_study(), "tf/gpu", "unknown configuration 'tf/gpu'; did you mean"),
    ],
)  # fmt: skip
def test_explanation_without_a_comparison_is_bad_input(
    document: StudyDocument, baseline: str | None, message: str
) -> None:
    with pytest.raises(BadInput, match=message):
        explain(document, SavedDocuments(), baseline)


def test_a_step_without_its_collections_is_named_without_layers() -> None:
    """Nine steps of 10 ms and one of 110 ms: the mean is 20 ms, of which the collector takes 10."""
    steps = [[[0.010] * 9 + [0.110]] * 2] * 2

    def collecting(seconds: float) -> Result:
        times = StepTimes("step", 1, steps)
        summary = summarize_step_times(steps, "step")
        return measured("flux/cpu", 0.02, step_times=times, step_time=summary, gc=GarbageCollection(seconds, 4))

    def found(flux: Result) -> str:
        return text(explain(study(measured("torch/cpu", 0.005), flux), SavedDocuments()))

    assert "flux/cpu collects garbage for 10.0 ms of 20.0 ms; a step without it takes 10.0 ms." in found(
        collecting(0.01)
    )
    assert "flux/cpu takes 15.0 ms" in found(collecting(0.01))  # longer: of mean steps
    assert "collects garbage" not in found(collecting(0.0003))  # the longer steps have another cause
    every = measured("flux/cpu", 0.02, gc=GarbageCollection(0.01, 4))  # in every step: none is without it
    assert "collects garbage" not in found(every)


def test_the_largest_gain_is_recommended_first() -> None:
    document = study(
        measured("jax/cpu", 0.015),
        measured("tf/cpu", 0.020),
        measured("torch/cpu", 0.030),
        measured("tf+xla/cpu", 0.012),
        measured("torch+compile/cpu", 0.010),
    )
    found = explain(document, SavedDocuments(), "jax/cpu").recommendations
    assert [one.text.partition(":")[0] for one in found] == ["torch/cpu as torch+compile/cpu", "tf/cpu as tf+xla/cpu"]


@pytest.mark.parametrize(("others", "reason"), [(1, None), (5, "not significant among these comparisons")])
def test_differences_are_corrected_for_their_number(others: int, reason: str | None) -> None:
    """One with p = 0.03 is significant alone."""

    def one(engine: str, *logs: float) -> Result:
        return with_step_times(measured(f"{engine}/cpu", 0.01), [[[0.01 * math.exp(log)]] * 2 for log in logs])

    engines = ("tf", "jax", "flux", "keras", "lux")[:others]
    document = study(one("torch", 0.0, 0.0, 0.0), *(one(engine, 0.07, 0.10, 0.13) for engine in engines))
    found = explain(document, SavedDocuments()).comparisons
    assert [pair.inconclusive_reason for pair in found] == [reason] * others


@pytest.mark.parametrize("wide", ["flux/cpu", "torch/cpu", None])
def test_a_part_names_no_operation_whose_time_is_too_wide(wide: str | None, document: StudyDocument) -> None:
    times = {"flux/cpu": 0.030, "torch/cpu": 0.009}
    timed = layers(document, times, {name: {CONV: seconds} for name, seconds in times.items()})
    for one in timed.configurations:
        if one.configuration == wide:
            seconds = times[wide]
            one.rows = [msgspec.structs.replace(row, ci95=(seconds / 3, 3 * seconds)) for row in one.rows]
    part, *_ = step_parts(document.results, "torch/cpu", SharedLayers(timed, [*times]))
    assert part.name == CONV[0]
    assert (part.largest_difference is None) == (wide is not None)


def test_shared_layers_have_the_baseline_then_most_configurations_then_are_the_newest() -> None:
    seconds = {"torch/cpu": 0.02, "tf/cpu": 0.02, "jax/cpu": 0.02}
    document = study(*(measured(name, value) for name, value in seconds.items()))

    def timed(*names: str) -> LayersDocument:
        return layers(document, {name: seconds[name] for name in names}, {name: {CONV: 0.01} for name in names})

    def found(*documents: LayersDocument) -> tuple[int, list[str]] | None:
        shared = find_shared_layers(document, [*seconds], "torch/cpu", documents)
        return shared and (next(i for i, one in enumerate(documents) if one is shared.document), shared.configurations)

    without, alone, pair = timed("tf/cpu", "jax/cpu"), timed("torch/cpu"), timed("torch/cpu", "jax/cpu")
    assert found(without, alone) == (1, ["torch/cpu"])
    assert found(alone, without, pair) == (2, ["torch/cpu", "jax/cpu"])
    assert found(timed("tf/cpu"), without, timed("tf/cpu", "jax/cpu")) == (1, ["tf/cpu", "jax/cpu"])
    assert found() is None
