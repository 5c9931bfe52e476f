"""Report file: contents, escaping and Content-Security-Policy."""

from __future__ import annotations

import base64
import cProfile
import gzip
import hashlib
import html
import json
import re
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from polybench.analysis.explanation import SavedDocuments, explain
from polybench.errors import BadInput
from polybench.figures import FIGURES
from polybench.html_report import StudySection, render_report
from polybench.html_report.page import _environment, format_command
from polybench.html_report.study_section import build_view, headline, parity_views, results_table
from polybench.render.table import Column, Table
from polybench.results.comparisons import add_comparisons
from polybench.schema.measurements import PointReference
from polybench.schema.parity import KnownDeviation, ParityCheck, PrecisionResult, TensorComparison
from polybench.schema.result import Result
from polybench.schema.study import StudyDocument
from tests.commands import printed, refused
from tests.factories import measured, saved_again, study, typical_study, unmeasured
from tests.figures.documents import full_layers, full_study, full_sweep, with_peaks
from tests.log_of import log_of

MALICIOUS = "<script>alert(1)</script>"


@pytest.fixture(autouse=True)
def require_extras() -> None:
    pytest.importorskip("plotly", reason="plotly is not installed")
    pytest.importorskip("jinja2", reason="jinja2 is not installed")


def full_section() -> StudySection:
    one = full_study()
    layers = full_layers(one)
    return StudySection(one, [("torch/cpu", "import torch\n")], layers, explain(one, SavedDocuments([layers])))


def figure_json(page: str) -> dict[str, Any]:
    match = re.search(r'<script type="application/json" id="figure-data">(.*?)</script>', page, re.DOTALL)
    assert match
    decoded: dict[str, Any] = json.loads(match[1])
    return decoded


def test_published_results_are_escaped_in_every_place() -> None:
    part = Table(columns=[Column(MALICIOUS)], rows=[[MALICIOUS]], notes=[MALICIOUS])
    text = str(_environment().get_template("macros.html.j2").module.published(part))
    assert text.count("&lt;script&gt;") == 3
    assert "<script" not in text


def test_a_command_can_be_pasted_into_a_shell() -> None:
    assert (
        format_command(["run", "my study.toml", "--title", "$HOME"]) == "polybench run 'my study.toml' --title '$HOME'"
    )
    assert format_command(["/usr/bin/script.py"]) == ""


def test_report_contains_everything_of_a_study() -> None:
    page = render_report([full_section()])
    for part in (
        "tf is 1.25 (1.25 to 1.25) times as fast as torch.",
        "torch/cuda", "install a driver", "not ranked", "conv1", "import torch", "polybench run study.toml",
        "0" * 64, "1" * 64, "2" * 64, "Some CPU @ 2.00GHz", "8.0 GiB",
    ):  # fmt: skip
        assert part in page
    drawn = {name for name, row in FIGURES.items() if row.kind in ("study", "layers")} - {"roofline"}  # without peaks
    assert set(figure_json(page)["figures"]) == {f"s1-{name}" for name in drawn}, "full_section lacks a figure's data"
    numbers = ["tf/cpu: 1.25 (1.25 to 1.25) times as fast as torch/cpu", "torch/cpu: baseline"]
    assert 'aria-label="Speed relative to the baseline: ' + "; ".join(numbers) in page
    for text in numbers:
        assert f"<li>{text}</li>" in page
    for name in figure_json(page)["figures"]:
        assert f'id="{name}-numbers"' in page


def test_fastest_rows_have_a_label_if_every_comparison_has_a_verdict() -> None:
    def labels(*results: Result) -> dict[str, str]:
        document = study(*results)
        add_comparisons(document.results, "torch/cpu", {})
        return {row["configuration"]: row["label"] for row in results_table(document)["rows"]}

    torch, tf, flux = measured("torch/cpu", 0.01), measured("tf/cpu", 0.01), measured("flux/cpu", 0.03)
    assert labels(torch, flux) == {"torch/cpu": "fastest", "flux/cpu": ""}
    assert labels(torch, tf, flux) == {"torch/cpu": "among the fastest", "tf/cpu": "among the fastest", "flux/cpu": ""}
    assert set(labels(torch, measured("flux/cpu", 0.03, processes=1)).values()) == {""}
    assert set(labels(torch).values()) == {""}


def test_policy_allows_only_two_scripts_and_nothing_is_fetched() -> None:
    page = render_report([full_section()])
    policy = re.search(r'http-equiv="Content-Security-Policy" content="([^"]*)"', page)
    assert policy
    allowed = dict(part.strip().split(" ", 1) for part in html.unescape(policy[1]).split(";"))
    assert (allowed["default-src"], allowed["base-uri"], allowed["form-action"]) == ("'none'",) * 3
    (report_script,) = re.findall(r"<script>(.*?)</script>", page, re.DOTALL)
    (compressed,) = re.findall(r'<script type="text/plain" id="plotly">(.*?)</script>', page, re.DOTALL)
    scripts = (report_script.encode(), gzip.decompress(base64.b64decode(compressed)))
    hashes = [f"'sha256-{base64.b64encode(hashlib.sha256(one).digest()).decode()}'" for one in scripts]
    assert allowed["script-src"] == " ".join(hashes)
    assert not re.search(r"\b(src|href)=\"(?!#)", page)
    assert not re.search(r"\son\w+=", page.replace(report_script, ""))


def malicious_study() -> StudyDocument:
    """Create a study with malicious text in all fields that accept arbitrary text."""
    one = typical_study()
    one = msgspec.structs.replace(
        one, title=MALICIOUS, argv=["compare", MALICIOUS], study=MALICIOUS, warnings=[MALICIOUS], id=MALICIOUS
    )
    one.host = msgspec.structs.replace(one.host, hostname=MALICIOUS, cpu=MALICIOUS, os=MALICIOUS, python=MALICIOUS)
    one.settings = msgspec.structs.replace(one.settings, model=MALICIOUS, dataset=MALICIOUS)
    one.results = [
        *one.results,
        measured(
            "torch+x/cpu", 0.01, versions={MALICIOUS: MALICIOUS, "build": {MALICIOUS: MALICIOUS}}, warnings=[MALICIOUS],
            parity=ParityCheck(
                "pass", MALICIOUS, steps=3, batch_size=16,
                known_deviations=[KnownDeviation(MALICIOUS, MALICIOUS, 1e-3, MALICIOUS)],
                tensors=[TensorComparison("timed", MALICIOUS, 0, "loss", 1e-7, 1e-5)],
            ),
        ),
        unmeasured("tf/x", "failed", MALICIOUS, MALICIOUS, log_path=MALICIOUS),
    ]  # fmt: skip
    for result in one.results[-2:]:
        result.configuration = MALICIOUS + result.configuration
    return one


def test_texts_of_a_study_are_escaped() -> None:
    page = render_report([StudySection(malicious_study(), [(MALICIOUS, MALICIOUS)])])
    assert MALICIOUS not in page
    assert page.count("&lt;script&gt;alert(1)&lt;/script&gt;") > 20
    assert page.count("<script") == 3


def test_the_work_for_a_report_is_proportional_to_its_rows(tmp_path: Path) -> None:
    calls: list[int] = []
    for rows in (100, 201):
        results = [measured("torch/cpu", 0.02), *(measured(f"tf@e{row}/cpu", 0.01) for row in range(1, rows))]
        for result in results:
            result.versions["numpy"] = result.configuration
        path = tmp_path / f"{rows}.jsonl"
        path.write_bytes(log_of(study(*results)))
        with cProfile.Profile() as profile:
            printed("report", path, "--output", tmp_path / "report.html", "--results", tmp_path)
        calls.append(sum(one.callcount for one in profile.getstats()))
    assert calls[1] < 2.5 * calls[0]
    assert "201 comparable configurations; an explanation has at most 200" in refused("explain", path)


def test_report_of_many_step_times_is_small() -> None:
    configurations = [
        measured("torch/cpu" if not number else f"torch+v{number}/cpu", 0.01 + number / 1e3) for number in range(12)
    ]
    times = [[[0.01 + step / 1e6 + process / 1e5 for step in range(84)] for _ in range(20)] for process in range(5)]
    for result in configurations:
        assert result.step_times
        result.step_times = msgspec.structs.replace(result.step_times, values=times)
    one = study(*configurations)
    assert sum(len(steps) for result in one.results for process in result.nested_step_times for steps in process) > 1e5
    assert len(render_report([StudySection(one)])) < 3e6


def test_several_studies_have_an_overview() -> None:
    before = full_study()
    after = saved_again(before, "20250102-000000-abcd", batch_size=256)
    page = render_report([StudySection(before), StudySection(after)])
    assert "Step times of each study" in page
    assert ">2 studies<" in page
    names = figure_json(page)["figures"]
    assert {"s1-speed", "s2-speed"} <= set(names)
    same_title = render_report([StudySection(before), StudySection(saved_again(before))])
    assert "lenet on synthetic images, batch 128, 20250102-000000-abcd" in same_title


def test_roofline_appears_in_the_layers_section_with_peaks() -> None:
    one = full_study()
    page = render_report([StudySection(one, layers=with_peaks(full_layers(one)))])
    assert {"s1-layers", "s1-roofline"} <= set(figure_json(page)["figures"])
    _, _, layers = page.partition('id="s1-layers"')
    assert 'data-figure="s1-roofline"' in layers
    assert "s1-roofline" not in figure_json(render_report([full_section()]))["figures"]


def test_sweep_has_curves_best_points_and_a_table() -> None:
    page = render_report([full_sweep()])
    assert set(figure_json(page)["figures"]) == {"s1-scaling"}
    for part in (
        "torch/cpu has the highest throughput: 190 images/s (threads 4).",
        "Fastest: torch/cpu with threads 4, 190 images/s.",
        "1.80 (1.70 to 1.90)", "torch/cpu *", "more threads than usable cores", "sweep-20250101-000000-abcd",
    ):  # fmt: skip
        assert part in page
    assert "cost per epoch" not in page
    one = full_sweep()
    configuration = msgspec.structs.replace(
        one.points[0].configurations[0], epoch_seconds=3.9, dollars_per_epoch=0.00123
    )
    one.points[0] = msgspec.structs.replace(one.points[0], configurations=[configuration])
    assert "$0.00123" in (page := render_report([one]))
    assert "<h3>Time and cost per epoch</h3>" in page
    nothing = msgspec.structs.replace(full_sweep(), points=[], curves=[], fastest=[], thread_pools=[])
    assert "Nothing was measured." in render_report([nothing])


def test_the_best_points_of_a_sweep_are_marked_unless_it_is_inconclusive() -> None:
    sweep = full_sweep()
    best, *_ = sweep.fastest
    others = [point for point in sweep.points if point.parameters != best.parameters]
    assert render_report([msgspec.structs.replace(sweep, fastest=[best])]).count('class="label good">fastest<') == 1
    same = [best, PointReference(best.configuration, others[0].parameters)]
    page = render_report([msgspec.structs.replace(sweep, fastest=same)])
    assert page.count('class="label good">among the fastest<') == 2
    page = render_report([msgspec.structs.replace(sweep, inconclusive_reason="the machine was busy")])
    assert 'class="label good"' not in page


def test_texts_of_a_sweep_are_escaped() -> None:
    one = msgspec.structs.replace(
        full_sweep(), title=MALICIOUS, id=MALICIOUS, model=MALICIOUS, warnings=[MALICIOUS], argv=["sweep", MALICIOUS]
    )
    one.host = msgspec.structs.replace(one.host, hostname=MALICIOUS, cpu=MALICIOUS)
    page = render_report([one])
    assert MALICIOUS not in page
    assert page.count("<script") == 3


def test_headline_describes_the_fastest_configuration() -> None:
    assert headline(full_study()).startswith("tf is 1.25")
    assert headline(study()) == "Nothing was measured."
    single = study(measured("torch/cpu", 0.01, vs_baseline=None))
    assert headline(single) == "Measured: torch/cpu."
    render_report([StudySection(study()), StudySection(single)])  # sections without data are valid


def test_no_headline_is_about_a_variant_with_a_caveat() -> None:
    document = full_study()
    fastest = max(document.results, key=lambda one: one.vs_baseline.speedup if one.vs_baseline else 0.0)
    assert fastest.vs_baseline is not None
    teaching = msgspec.structs.replace(
        fastest,
        configuration="flux+gc_off/cpu",
        caveat="step times leave out garbage collection",
        vs_baseline=msgspec.structs.replace(fastest.vs_baseline, speedup=9.0),
    )
    document.results = [*document.results, teaching]
    assert headline(document) == headline(full_study())


def test_important_columns_are_visible_at_first() -> None:
    table = results_table(typical_study())
    shown = [column["name"] for column in table["columns"] if column["shown"]]
    assert {"step_time", "speedup", "parity"} <= set(shown)
    assert len(shown) <= 7 < len(table["columns"])
    assert sorted(column["name"] for _, group in table["groups"] for column in group) == sorted(
        column["name"] for column in table["columns"]
    )
    assert [row["kind"] for row in table["rows"]] == ["ranked"] * 3 + ["unranked"] + ["not-measured"] * 2
    row = next(row for row in table["rows"] if row["configuration"] == "tf/cpu")
    assert float(row["cells"][0][1]) == pytest.approx(0.00855, rel=1e-3)


def test_parity_section_shows_the_largest_errors() -> None:
    part = PrecisionResult(1e-12, None, 3e-9, {"loss": 1e-9, "gradient": 1e-9, "weight": 1e-9})
    tensors = [TensorComparison("float64", f"t{n}", 0, "weight", 1e-12 * n, 1e-9) for n in range(40)]
    tensors.append(TensorComparison("timed", "worst", 3, "gradient", None, 5e-2))
    checked = measured("torch/cpu", 0.01, parity=ParityCheck("fail", "why", float64=part, tensors=tensors))
    (parity,) = parity_views(study(checked, unmeasured("tf/cpu", "unavailable", "no tf")))
    assert [error and (error["error"], error["passed"]) for error in parity["errors"][:3]] == [
        ("1.0e-12", True), ("not finite", False), ("3.0e-9", False),
    ]  # fmt: skip
    assert parity["errors"][3:] == [None, None, None]
    assert [one.name for one, _ in parity["largest_errors"][:2]] == ["worst", "t39"]
    assert (len(parity["largest_errors"]), parity["comparisons"]) == (12, 41)


def test_command_is_empty_for_studies_from_python() -> None:
    def command(*argv: str) -> str:
        return build_view(StudySection(msgspec.structs.replace(study(), argv=list(argv))), 1)["command"]

    assert command("compare", "--data", "a b") == "polybench compare --data 'a b'"
    assert command("notebook.py", "x") == ""


@pytest.mark.parametrize(("module", "name"), [("jinja2", "jinja2"), ("plotly.offline", "plotly")])
def test_missing_package_is_named(module: str, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from polybench.html_report import page
    from polybench.html_report.page import plotly_script

    plotly_script.cache_clear()
    page._environment.cache_clear()
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(BadInput, match=rf"{name} is not installed; pip install 'polybench-dl\[report\]'"):
        render_report([StudySection(study())])


def test_options_in_notes_are_not_broken_over_lines_and_titles_of_sweeps_come_once() -> None:
    sweep = full_sweep()
    sweep.title = "Sizes & threads"
    sweep.warnings = ["<b>: try --wait-idle 30s"]
    report = render_report([sweep])
    assert '<li>&lt;b&gt;: try <span class="option">--wait-idle</span> 30s</li>' in report
    head = report.partition("<article")[2].partition("<h2")[0]
    texts = re.findall(">([^<>]+)<", head)
    assert sum("Sizes &amp; threads" in text for text in texts) == 1
