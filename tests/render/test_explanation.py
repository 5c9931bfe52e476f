"""An explanation as text: one table of all configurations, a sentence per pair, and suggestions only on request."""

from __future__ import annotations

import json
import re

import msgspec
import pytest

from polybench.analysis.explanation import SavedDocuments, explain
from polybench.networks.layers import Operation
from polybench.render import render as render_table
from polybench.render.explanation import explanation_table, render
from polybench.schema.analyses import ExplanationDocument, Statement
from polybench.schema.resources import GarbageCollection
from polybench.schema.result import ColdStart
from polybench.storage.store import Store
from tests.factories import layers, measured, study, unmeasured
from tests.gallery import GALLERY

CONV: tuple[str, Operation] = ("conv1 + relu", "weight gradient")
CONV_FORWARD: tuple[str, Operation] = ("conv1 + relu", "forward")
POOL: tuple[str, Operation] = ("max_pool1", "forward")
DENSE: list[tuple[str, Operation]] = [(f"dense{number}", "forward") for number in range(4)]
UPDATE: tuple[str, Operation] = ("step", "update")


@pytest.fixture
def explanation() -> ExplanationDocument:
    document = study(
        measured("flux/cpu", 0.040, startup=ColdStart(0.1, 5.0, 1.0, 0.2, 11.0, 0.1)),
        measured("torch/cpu", 0.020, startup=ColdStart(0.1, 1.0, 0.2, 0.1, 0.3, 0.1)),
        measured("tf/cpu", 0.015),
    )
    small = dict.fromkeys(DENSE, 1e-4)
    times = {
        "flux/cpu": {CONV: 0.020, CONV_FORWARD: 0.010, POOL: 0.004, **small, UPDATE: 0.002},
        "torch/cpu": {CONV: 0.006, CONV_FORWARD: 0.005, POOL: 0.008, **small, UPDATE: 0.001},
        "tf/cpu": {CONV: 0.005, CONV_FORWARD: 0.005, POOL: 0.003, **dict.fromkeys(DENSE, -1e-5), UPDATE: 0.001},
    }
    timed = layers(document, {"flux/cpu": 0.041, "torch/cpu": 0.0205, "tf/cpu": 0.0149}, times)
    return explain(document, SavedDocuments([timed]))


def lines(text: str) -> list[str]:
    return [" ".join(line.split()) for line in text.splitlines()]


def test_all_configurations_are_columns_of_one_table(explanation: ExplanationDocument) -> None:
    assert lines(render(explanation, "table", 80)) == [
        "Where a training step of lenet goes, in ms (each layer timed alone)",
        "",
        "flux torch tf largest difference",
        "------------------ ----- ----- ------ ------------------------------------",
        "conv1 + relu 30.00 11.00 10.00 flux weight gradient: 20.00 vs. 6.00",
        "max_pool1 4.00 8.00 3.00 torch forward: 8.00 vs. tf 3.00",
        "4 smaller layers 0.40 0.40 < 0.05",
        "loss, update, call 2.00 1.00 1.00",
        "between the layers 3.60 -0.40 1.00",
        "whole step 40.00 20.00 15.00",
        "beside layers 41.00 20.50 14.90",
        "layers, forward 14.40 13.40 7.96",
        "layers, backward 20.00 6.00 5.00",
        "",
        "flux - torch: 20.0 ms; 14.0 of them are the weight gradient of conv1 (NNlib's",
        "weight gradient runs on one thread: docs/upstream/nnlib_conv_filter.md).",
        "torch - tf: 5.00 ms; the forward pass of max_pool1 alone differs by 5.00 ms.",
        "start: flux 17.3 s (11.0 s of it the first step), torch 1.70 s, tf 2.15 s.",
        "Layers: polybench show layers-20250103-000000-abcd",
        "Not measured yet: 6, --suggest",
    ]


def test_no_time_is_negative_except_between_the_layers(explanation: ExplanationDocument) -> None:
    negative = [line for line in lines(render(explanation, "table")) if re.search(r" -\d", line)]
    assert negative == ["between the layers 3.60 -0.40 1.00"]


def test_a_breakdown_that_misses_its_difference_is_replaced_by_both_sums() -> None:
    document = study(measured("torch/cpu", 0.020), measured("tf/cpu", 0.016))
    times = {"torch/cpu": {CONV: 0.019}, "tf/cpu": {CONV: 0.021}}
    timed = layers(document, {"torch/cpu": 0.020, "tf/cpu": 0.016}, times)
    text = " ".join(lines(render(explain(document, SavedDocuments([timed])), "table")))
    assert (
        "torch - tf: 4.00 ms. The layers timed alone do not explain this difference: tf's sum to 21.0 ms, its whole"
        " step takes 16.0 ms." in text
    )
    assert "weight gradient of conv1" not in text


def test_the_study_knows_the_collector_without_layers() -> None:
    document = study(measured("torch/cpu", 0.020), measured("flux/cpu", 0.150, gc=GarbageCollection(0.066, 4)))
    text = lines(render(explain(document, SavedDocuments()), "table"))
    assert "Where a training step of lenet goes, in ms" in text
    assert "garbage collection 66.0" in text
    assert "whole step 20.00 150.0" in text
    assert "flux - torch: 130 ms; 66.0 of them are garbage collection." in text
    assert not any("between the layers" in line for line in text)


def test_suggestions_are_shown_on_request(explanation: ExplanationDocument) -> None:
    command = "    polybench overhead --engines flux,torch,tf --threads 2"
    assert command not in render(explanation, "table").splitlines()
    text = render(explanation, "table", suggest=True)
    assert command in text.splitlines()
    assert "Not measured yet\n----------------" in text
    assert "--suggest" not in text
    as_markdown = render(explanation, "markdown", suggest=True)
    assert "### Not measured yet" in as_markdown
    assert "`polybench overhead --engines flux,torch,tf --threads 2`" in as_markdown


def test_markdown_has_the_same_table_and_sentences(explanation: ExplanationDocument) -> None:
    text = " ".join(render(explanation, "markdown").split())
    assert "| max_pool1 | 4.00 | 8.00 | 3.00 | torch forward: 8.00 vs. tf 3.00 |" in text
    assert "- torch - tf: 5.00 ms; the forward pass of max_pool1 alone differs by 5.00 ms." in text


def test_short_steps_have_more_decimals() -> None:
    document = study(measured("torch/cpu", 0.0004), measured("tf/cpu", 0.0002))
    times = {"torch/cpu": {CONV: 0.0003, UPDATE: 1e-6}, "tf/cpu": {CONV: 0.0001, UPDATE: 3e-5}}
    timed = layers(document, {"torch/cpu": 0.0004, "tf/cpu": 0.0002}, times)
    text = lines(render(explain(document, SavedDocuments([timed])), "table"))
    assert "conv1 + relu 0.300 0.100 torch weight gradient: 0.300 vs. tf 0.100" in text
    assert "loss, update, call < 0.005 0.030" in text


def test_times_with_wide_intervals_are_no_result() -> None:
    document = study(measured("torch/cpu", 0.020), measured("tf/cpu", 0.010))
    times = {"torch/cpu": {CONV: 0.012, POOL: 0.005}, "tf/cpu": {CONV: 0.006, POOL: 0.003}}
    timed = layers(document, {"torch/cpu": 0.020, "tf/cpu": 0.010}, times)
    conv, *others = timed.configurations[0].rows
    wide = msgspec.structs.replace(conv, ci95=(-0.02, 0.044))
    timed.configurations[0].rows = [wide, *others]
    text = lines(render(explain(document, SavedDocuments([timed])), "table"))
    assert "conv1 + relu (no result) 6.00" in text
    assert "(no result): the interval of the time is too wide." in text


def test_layers_are_in_the_order_of_their_differences_not_of_their_times() -> None:
    document = study(measured("flux/cpu", 0.05), measured("torch/cpu", 0.04))
    flux: dict[tuple[str, Operation], float] = {("long", "forward"): 0.020, ("other", "forward"): 0.012}
    times = {"flux/cpu": flux, "torch/cpu": {**flux, ("other", "forward"): 0.004}}
    found = explain(document, SavedDocuments([layers(document, {"flux/cpu": 0.05, "torch/cpu": 0.04}, times)]))
    assert [row[0] for row in explanation_table(found).rows][:2] == ["other", "long"]


def test_many_layers_and_pairs_are_summed_up() -> None:
    names = [f"torch/cpu#{number}" for number in range(2, 42)]
    document = study(*(measured(name, 0.0165 + number / 1000) for number, name in enumerate(names)))
    keys: list[tuple[str, Operation]] = [(f"block{number}", "forward") for number in range(15)]
    times = {name: dict.fromkeys(keys, 0.001 + number / 1e5) for number, name in enumerate(names)}
    steps = {name: document.result(name).step_seconds for name in names}
    found = explain(document, SavedDocuments([layers(document, steps, times)]))
    for width in (40, 80, 200):
        text = render(found, "table", width)
        long = [line.strip() for line in text.splitlines() if len(line) > width]
        assert long == ([f"polybench show {found.layers}"] if width == 40 else [])  # commands stay in one piece
        assert len(text.splitlines()) < 70
    text = " ".join(lines(render(found, "table", 80)))
    assert "9 smaller layers" in text
    assert "more sentences: --format json)" in text
    assert "omitted, because the line is too short: torch#" in text


def test_long_names_fit_into_a_terminal() -> None:
    document = study(measured("torch/cpu", 0.0165), measured(f"{'x' * 60}/cpu", 0.01))
    for width in (60, 80):
        text = render(explain(document, SavedDocuments()), "table", width)
        table, _, sentences = text.partition("whole step")
        assert max(map(len, table.splitlines())) <= width
        assert "x" * 24 in table
        assert "torch -" in sentences


def test_long_layers_wrap_before_columns_are_omitted() -> None:
    document = study(measured("torch/cpu", 0.020), measured("tf/cpu", 0.010))
    long: tuple[str, Operation] = ("d" * 60, "forward")
    times = {"torch/cpu": {long: 0.012}, "tf/cpu": {long: 0.006}}
    timed = layers(document, {"torch/cpu": 0.020, "tf/cpu": 0.010}, times)
    for text in (render(explain(document, SavedDocuments([timed])), "table", 60), render_table(timed, width=60)):
        assert "omitted, because the line is too short: t" not in text
        assert f"{'d' * 28}  " in text
        assert max(map(len, text.partition("whole step")[0].splitlines())) <= 60


def test_rows_that_cannot_be_compared_have_their_reason() -> None:
    busy = measured("jax/cpu", 0.01, step_time=None, busy=True, reason="other programs used the cores")
    document = study(
        measured("torch/cpu", 0.02),
        measured("tf/cpu", 0.01),
        busy,
        unmeasured("flux/cpu", "unavailable", "no Julia", "polybench setup flux"),
    )
    text = lines(render(explain(document, SavedDocuments()), "table"))
    assert "jax/cpu (busy): other programs used the cores" in text
    assert "flux/cpu unavailable: no Julia (polybench setup flux)" in text


@pytest.mark.parametrize(
    ("command", "shown"),
    [
        ("polybench run --env a*b*", "`polybench run --env a*b*`"),
        ("polybench run --env a`*b*", r"polybench run --env a\`\*b\*"),
    ],
)
def test_a_command_in_markdown_is_code_unless_a_backtick_would_end_it(
    explanation: ExplanationDocument, command: str, shown: str
) -> None:
    measure = Statement(text="measure *this*", evidence="step_time", command=command)
    document = msgspec.structs.replace(explanation, suggested_measurements=[measure])
    assert rf"- measure \*this\* {shown}" in render(document, "markdown", suggest=True).splitlines()


def test_json_contains_all_parts_and_statements(explanation: ExplanationDocument) -> None:
    document = json.loads(render(explanation, "json"))
    assert document["schema"] == "polybench.explanation/2"
    comparison = document["comparisons"][0]
    breakdown = comparison["breakdowns"][0]
    assert len(breakdown["components"]) == 8
    rows = (*breakdown["components"], *breakdown["unattributed"])
    total = sum(row["difference_seconds"] for row in rows)
    assert total == pytest.approx(breakdown["difference_seconds"])
    assert {"text", "evidence", "seconds", "command"} == set(comparison["statements"][0])
    assert len(document["suggested_measurements"]) == 6
    parts = {part["name"]: part["seconds"]["flux/cpu"] for part in document["parts"]}
    whole, backward, forward = (parts.pop(name) for name in ("whole step", "layers, backward", "layers, forward"))
    assert parts.pop("beside layers") == pytest.approx(0.041)
    assert sum(parts.values()) == pytest.approx(whole)
    assert (backward, forward) == pytest.approx((0.020, 0.0144))
    assert document["layers"] == "layers-20250103-000000-abcd"


def test_saved_studies_have_no_nanoseconds_and_few_lines() -> None:
    from polybench.analysis.related_documents import load_saved_documents

    store = Store(GALLERY / "measured")
    for one in store.studies():
        text = render(explain(one, load_saved_documents(one, store)), "table", 80)
        assert " ns" not in text
        assert "below noise" not in text
        assert max(map(len, text.splitlines())) <= 80
        assert len(text.splitlines()) <= 30


def test_a_finding_needs_the_cpu_and_its_engine(explanation: ExplanationDocument) -> None:
    assert "docs/upstream" not in "".join(one.text for one in explanation.summary[1:])
    single = study(measured("flux/cpu", 0.040), measured("torch/cpu", 0.020))
    single.settings = msgspec.structs.replace(single.settings, threads=1)
    timed = layers(single, {"flux/cpu": 0.04, "torch/cpu": 0.02}, {"flux/cpu": {CONV: 0.03}, "torch/cpu": {CONV: 0.01}})
    (sentence, *_) = explain(single, SavedDocuments([timed])).summary
    assert sentence.text == "flux - torch: 20.0 ms; the weight gradient of conv1 alone differs by 20.0 ms."
