"""An explanation: what is not certain is said first, each sentence has its figure, nothing is invented."""

from __future__ import annotations

import shlex

import msgspec
import pytest

from polybench.core.document.explanation import ExplanationDocument
from polybench.core.document.identity import Parity
from polybench.core.document.layers import LayersDocument, Part
from polybench.core.document.resources import BlockReading, Disturbance, GarbageCollection
from polybench.core.document.study import StudyDocument
from polybench.core.document.times import BreakEven, Pipeline, Startup
from polybench.core.errors import BadInput
from polybench.report.explanation import Saved, explain
from tests.factories import absent, layers, measured, saved, study, typical_study

CONV: tuple[str, Part] = ("conv2 + relu", "data gradient")
DENSE: tuple[str, Part] = ("dense1", "weight gradient")
FAULTS = Disturbance(
    blocks=[[BlockReading(1.0, 1.0, 0.0, 0.0, minor_faults=9, fault_seconds=0.1)]], minor_faults_per_step=9.0
)
DISTURBED = Disturbance(blocks=[[BlockReading(1.0, 1.0, 0.5, 0.0, disturbed=True)]], blocks_disturbed=1)


@pytest.fixture
def document() -> StudyDocument:
    return study(
        measured(
            "flux/cpu",
            0.050,
            startup=Startup(0.1, 5.0, 1.0, 0.2, 11.0, 0.1),
            break_even=[BreakEven("torch/cpu", None)],
            disturbance=FAULTS,
            gc=GarbageCollection(0.004),
        ),
        measured("torch/cpu", 0.020, disturbance=FAULTS),
    )


def explained(
    document: StudyDocument, *others: StudyDocument, against: str | None = None
) -> ExplanationDocument:
    timed = layers(
        document,
        {"flux/cpu": 0.051, "torch/cpu": 0.020},
        {"flux/cpu": {CONV: 0.030, DENSE: 0.002}, "torch/cpu": {CONV: 0.009, DENSE: 0.006}},
    )
    return explain(document, Saved([timed], others), against)


def text(found: ExplanationDocument) -> str:
    return "\n".join(f"{one.text} [{one.figure}] {one.command or ''}" for one in found.all_sentences())


def test_the_part_that_makes_most_of_it_is_named_with_its_number(document: StudyDocument) -> None:
    (pair,) = explained(document).pairs
    opening, most, *others = pair.sentences
    assert opening.text.startswith("flux/cpu takes 30.0 ms (")
    assert "a step longer than torch/cpu: 50.0 ms against 20.0 ms, 0.40 (" in opening.text
    assert most.text.startswith("Most of it is conv2 + relu, data gradient: 21.0 ms (")
    assert most.text.endswith("longer, 30.0 ms against 9.00 ms.")
    assert most.seconds == pytest.approx(0.021)
    assert most.figure == "layers 20250103-000000-abcd: conv2 + relu, data gradient"
    assert others[0].text.startswith("Then the garbage collector: 4.00 ms longer")
    assert others[0].figure == "gc_time"


def test_every_sentence_has_its_figure(document: StudyDocument) -> None:
    found = explained(document)
    assert all(sentence.figure for sentence in found.all_sentences())
    said = text(found)
    for wanted in (
        "The other way round is dense1, weight gradient: 4.00 ms (",
        "Summed up by kind: data gradient +21.0 ms, the garbage collector +4.00 ms, weight",
        "All parts together make up 70% of the difference; +10.0 ms is between them, and -1.0",
        "Page faults cost at most 5.00 ms of flux/cpu's step and 2.00 ms of torch/cpu's",
        "flux/cpu starts 15.2 s later: 17.3 s against 2.15 s to the end of its first step (first",
        "The later start of flux/cpu is never repaid. [break_even]",
    ):
        assert wanted in said
    # The whole steps that were timed beside the layers, of both.
    assert "the steps beside the layers are apart: those took 51.0 ms and 20.0 ms." in " ".join(said.split())


def test_what_the_cell_gains_is_said_from_its_side(document: StudyDocument) -> None:
    (pair,) = explained(document, against="flux/cpu").pairs
    assert (pair.cell, pair.against) == ("torch/cpu", "flux/cpu")
    assert "torch/cpu takes 30.0 ms (" in pair.sentences[0].text
    assert "a step less than flux/cpu" in pair.sentences[0].text
    assert "Most of it is conv2 + relu, data gradient: 21.0 ms (" in pair.sentences[1].text
    assert "less, 9.00 ms against 30.0 ms" in pair.sentences[1].text
    assert any("torch/cpu starts 15.2 s earlier" in sentence.text for sentence in pair.sentences)


def test_a_difference_without_a_verdict_comes_first_and_says_so() -> None:
    disturbed = measured("jax/cpu", 0.015, disturbance=DISTURBED)
    found = explain(study(measured("torch/cpu", 0.020), measured("tf/cpu", 0.010), disturbed), Saved())
    assert [pair.cell for pair in found.pairs] == ["jax/cpu", "tf/cpu"]
    assert found.pairs[0].sentences[0].text == (
        "The difference of jax/cpu and torch/cpu is not certain: 1 of 1 blocks of jax/cpu were disturbed."
    )
    once = study(*(measured(cell, 0.01, processes=1) for cell in ("torch/cpu", "tf/cpu")))
    (pair,) = explain(once, Saved()).pairs
    assert pair.sentences[0].text == (
        "The difference of tf/cpu and torch/cpu is not certain: all was measured within one run, and the next"
        " one may differ; --processes 5 tells."
    )


def test_what_was_not_measured_is_said_with_its_command(document: StudyDocument) -> None:
    found = explain(document, Saved())
    commands = {sentence.figure: sentence.command for sentence in found.missing}
    assert commands["layers"] == "polybench layers --engines flux,torch --threads 2"
    assert commands["overhead"] == "polybench overhead --engines flux,torch --threads 2"
    said = text(found)
    assert "Not measured: the layers of flux/cpu, torch/cpu. [layers]" in said
    assert "polybench sweep --engines flux --threads 1,2" in said
    assert "polybench sweep --engines flux --threads 2 --batch-size 32,128,512" in said
    assert "polybench compare --engines flux,flux+default_threads,flux+train --threads 2" in said
    assert "polybench compare --engines flux,torch --input pipeline --threads 2" in said
    measured_all = explained(document, saved(document, "a", threads=1), saved(document, "b", batch_size=32))
    left = {sentence.figure for sentence in measured_all.missing}
    assert not left & {"layers", "sweep"}
    assert all(shlex.split(sentence.command or "") for sentence in found.missing)


def test_layers_that_are_known_are_not_named_as_missing(document: StudyDocument) -> None:
    """The command still has the cell that the missing one is compared with, but no other."""
    document.results += [measured("jax/cpu", 0.015), measured("tf/cpu", 0.010)]

    def of(*cells: str) -> LayersDocument:
        return layers(document, dict.fromkeys(cells, 0.02), {cell: {CONV: 0.009} for cell in cells})

    def missing(*known: LayersDocument) -> tuple[str, str | None]:
        (said,) = (one for one in explain(document, Saved(known)).missing if one.figure == "layers")
        return said.text, said.command

    all_four = "Not measured: the layers of flux/cpu, torch/cpu, jax/cpu, tf/cpu."
    assert missing() == (all_four, "polybench layers --engines flux,torch,jax,tf --threads 2")
    assert missing(of("flux/cpu", "torch/cpu", "tf/cpu")) == (
        "Not measured: the layers of jax/cpu, beside those of torch/cpu.",
        "polybench layers --engines torch,jax --threads 2",
    )
    assert missing(of("flux/cpu", "torch/cpu", "tf/cpu"), of("jax/cpu")) == (
        "Not measured: the layers of torch/cpu, jax/cpu in one run.",
        "polybench layers --engines torch,jax --threads 2",
    )


def test_points_of_a_sweep_over_batch_sizes_tell_the_fixed_cost(document: StudyDocument) -> None:
    found = explained(document, saved(document, "a", batch_size=1), saved(document, "b", batch_size=16))
    assert found.pairs[0].account("batch size") is not None
    assert "By batch size, " in text(found)
    assert "overhead, a line through 3 studies" in text(found)


def test_heaps_are_advised_where_page_faults_cost_something(document: StudyDocument) -> None:
    document.settings = msgspec.structs.replace(document.settings, heap="system")
    assert "flux/cpu with a heap that keeps its memory" in text(explained(document))


def test_waiting_for_data_is_told_where_it_was_measured(document: StudyDocument) -> None:
    for result, waiting in zip(document.results, (0.003, 0.001), strict=True):
        result.pipeline = Pipeline(waiting, 0.01)
    document.settings = msgspec.structs.replace(document.settings, input="pipeline")
    said = text(explained(document))
    assert "flux/cpu waits 3.00 ms a step for data, torch/cpu 1.00 ms: +2.00 ms of the difference." in said
    assert "all of it was loaded beforehand" not in said


def test_a_step_compiled_as_a_whole_has_no_layers_and_that_is_said() -> None:
    compiled = study(measured("torch/cpu", 0.020), measured("torch+compile/cpu", 0.010))
    found = explain(compiled, Saved())
    assert "torch+compile/cpu has no times of its layers: its step is timed as a whole only." in text(found)
    assert not [sentence for sentence in found.missing if sentence.figure == "layers"]
    assert found.advice[0].text == (
        "torch/cpu as torch+compile/cpu: 10.0 ms a step less, 10.0 ms instead of 20.0 ms."
    )


def test_cells_that_cannot_be_compared_have_their_reason_and_a_command() -> None:
    said = {sentence.text: sentence.command for sentence in explain(typical_study(), Saved()).left_out}
    assert said == {
        "tf+keras_fit/cpu: did not do the same arithmetic": (
            "polybench parity --engines tf+keras_fit --threads 2"
        ),
        "torch/cuda: unavailable: no CUDA device is visible to PyTorch (install an NVIDIA driver, then run"
        " polybench doctor)": "polybench compare --engines torch --threads 2",
        "tf/cuda: failed: killed by signal 9 (SIGKILL) out of memory?": (
            "polybench compare --engines tf --threads 2"
        ),
    }


@pytest.mark.parametrize(
    ("document", "against", "message"),
    [
        (study(measured("torch/cpu", 0.01)), None, "one row with times, torch/cpu, and a"),
        (
            study(measured("torch/cpu", 0.01), absent("flux/cpu", "unavailable", "no Julia", "setup flux")),
            None,
            r"flux/cpu: unavailable: no Julia \(setup flux\); measure them together: polybench compare",
        ),
        (study(absent("tf/cpu", "failed", "killed")), None, "no row with times"),
        (typical_study(), "tf/cuda", "tf/cuda: failed: killed by .*give --against one of torch/cpu, tf/cpu"),
        (typical_study(), "tf+keras_fit/cpu", "did not do the same arithmetic"),
        (typical_study(), "tf/gpu", "unknown cell 'tf/gpu'; did you mean"),
    ],
)  # fmt: skip
def test_nothing_to_compare_is_bad_input(document: StudyDocument, against: str | None, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        explain(document, Saved(), against)


def test_a_row_that_failed_its_check_is_compared_with_nothing() -> None:
    failed = measured("tf/cpu", 0.01, parity=Parity("fail"))
    cells = study(measured("torch/cpu", 0.02), measured("flux/cpu", 0.05), failed)
    assert [pair.cell for pair in explain(cells, Saved()).pairs] == ["flux/cpu"]


def test_a_collector_that_takes_little_is_told_all_the_same(document: StudyDocument) -> None:
    parts = {"flux/cpu": {CONV: 0.030}, "torch/cpu": {CONV: 0.009}}
    steps = {"flux/cpu": 0.05, "torch/cpu": 0.02}
    timed = layers(document, steps, parts)
    document.results[0].gc = GarbageCollection(2e-5)
    said = text(explain(document, Saved([timed])))
    assert "The garbage collector takes 20.0 µs of flux/cpu's step." in said
