"""The report as a file: what is in it, and that nothing of a study can become a program."""

from __future__ import annotations

import base64
import gzip
import hashlib
import html
import json
import re
import sys
from typing import Any

import msgspec
import pytest

from polybench.core.document.identity import Deviation, Parity, ParityPart, TensorError
from polybench.core.document.study import StudyDocument
from polybench.core.errors import BadInput
from polybench.page import Chapter, render
from polybench.page.chapter import headline, view_of
from polybench.page.proof import proofs_of
from polybench.page.table import table_of
from polybench.report.explanation import Saved, explain
from tests.factories import absent, measured, saved, study, typical_study
from tests.plots.documents import full_layers, full_study, full_sweep, with_roofs

HOSTILE = "<script>alert(1)</script>"


@pytest.fixture(autouse=True)
def needed() -> None:
    pytest.importorskip("plotly", reason="plotly is not installed")
    pytest.importorskip("jinja2", reason="jinja2 is not installed")


def full_chapter(of: StudyDocument | None = None) -> Chapter:
    one = of or full_study()
    layers = full_layers(one)
    return Chapter(one, [("torch/cpu", "import torch\n")], layers, explain(one, Saved([layers])))


def drawings(page: str) -> dict[str, Any]:
    found = re.search(r'<script type="application/json" id="drawings">(.*?)</script>', page, re.DOTALL)
    assert found
    decoded: dict[str, Any] = json.loads(found[1])
    return decoded


def test_everything_of_a_study_is_in_it() -> None:
    page = render([full_chapter()])
    for part in (
        "tf is 1.25 (1.25 to 1.25) times as fast as torch on cpu.",
        "torch/cuda", "install a driver", "not ranked", "conv1", "import torch", "polybench run study.toml",
        "0" * 64, "1" * 64, "2" * 64, "Some CPU @ 2.00GHz",
    ):  # fmt: skip
        assert part in page
    assert len(drawings(page)["figures"]) == 8


def test_only_the_two_programs_run_and_nothing_is_fetched() -> None:
    page = render([full_chapter()])
    policy = re.search(r'http-equiv="Content-Security-Policy" content="([^"]*)"', page)
    assert policy
    allowed = dict(part.strip().split(" ", 1) for part in html.unescape(policy[1]).split(";"))
    assert (allowed["default-src"], allowed["base-uri"], allowed["form-action"]) == ("'none'",) * 3
    (own,) = re.findall(r"<script>(.*?)</script>", page, re.DOTALL)
    (packed,) = re.findall(r'<script type="text/plain" id="plotly">(.*?)</script>', page, re.DOTALL)
    programs = (own.encode(), gzip.decompress(base64.b64decode(packed)))
    hashes = [f"'sha256-{base64.b64encode(hashlib.sha256(one).digest()).decode()}'" for one in programs]
    assert allowed["script-src"] == " ".join(hashes)
    assert not re.search(r"\b(src|href)=\"(?!#)", page)
    assert not re.search(r"\son\w+=", page.replace(own, ""))


def hostile_study() -> StudyDocument:
    """Texts of its own wherever the document has text that a table of polybench's does not limit."""
    one = typical_study()
    one = msgspec.structs.replace(
        one, title=HOSTILE, argv=["compare", HOSTILE], study=HOSTILE, warnings=[HOSTILE], id=HOSTILE
    )
    one.host = msgspec.structs.replace(one.host, hostname=HOSTILE, cpu=HOSTILE, os=HOSTILE, python=HOSTILE)
    one.settings = msgspec.structs.replace(one.settings, model=HOSTILE, dataset=HOSTILE)
    one.results = [
        *one.results,
        measured(
            "torch+x/cpu", 0.01, versions={HOSTILE: {HOSTILE: HOSTILE}}, warnings=[HOSTILE],
            parity=Parity(
                "pass", HOSTILE, steps=3, batch_size=16,
                deviations=[Deviation(HOSTILE, HOSTILE, 1e-3, HOSTILE)],
                tensors=[TensorError("timed", HOSTILE, 0, "loss", 1e-7, 1e-5)],
            ),
        ),
        absent("tf/x", "failed", HOSTILE, HOSTILE, log=HOSTILE),
    ]  # fmt: skip
    for result in one.results[-2:]:
        result.cell = HOSTILE + result.cell
    return one


def test_every_text_of_a_study_is_escaped() -> None:
    page = render([Chapter(hostile_study(), [(HOSTILE, HOSTILE)])])
    assert HOSTILE not in page
    assert page.count("&lt;script&gt;alert(1)&lt;/script&gt;") > 20
    assert page.count("<script") == 3


def test_twelve_cells_and_a_hundred_thousand_samples_are_small() -> None:
    cells = [
        measured("torch/cpu" if not number else f"torch+v{number}/cpu", 0.01 + number / 1e3)
        for number in range(12)
    ]
    times = [
        [[0.01 + step / 1e6 + process / 1e5 for step in range(84)] for _ in range(20)] for process in range(5)
    ]
    for result in cells:
        assert result.samples
        result.samples = msgspec.structs.replace(result.samples, step_seconds=times)
    one = study(*cells)
    assert sum(len(steps) for result in one.results for process in result.steps for steps in process) > 1e5
    assert len(render([Chapter(one)])) < 3e6


def test_several_studies_stand_side_by_side() -> None:
    before = full_study()
    after = saved(before, "20250102-000000-abcd", batch_size=256)
    page = render([Chapter(before), Chapter(after)])
    assert "Step times side by side" in page
    assert ">2 studies<" in page
    names = drawings(page)["figures"]
    assert {"s1-speed", "s2-speed"} <= set(names)
    twice = render([Chapter(before), Chapter(saved(before))])
    assert "lenet on synthetic, batch 128, 20250102-000000-abcd" in twice


def test_rooflines_stand_with_the_layers_where_a_roof_was_measured() -> None:
    one = full_study()
    page = render([Chapter(one, layers=with_roofs(full_layers(one)))])
    assert {"s1-layers", "s1-roofline"} <= set(drawings(page)["figures"])
    _, _, layers = page.partition('id="s1-layers"')
    assert 'data-figure="s1-roofline"' in layers
    assert "s1-roofline" not in drawings(render([full_chapter()]))["figures"]


def test_a_sweep_has_curves_its_best_points_and_a_table() -> None:
    page = render([full_sweep()])
    assert set(drawings(page)["figures"]) == {"s1-scaling"}
    for part in (
        "torch/cpu trains most: 190 images a second (threads 4).",
        "torch/cpu: most images a second at threads 4: 190",
        "1.80 (1.70 to 1.90)", "torch/cpu *", "more threads than usable cores", "sweep-20250101-000000-abcd",
    ):  # fmt: skip
        assert part in page
    assert "cost of an epoch" not in page
    one = full_sweep()
    cell = msgspec.structs.replace(one.points[0].cells[0], epoch_seconds=3.9, dollars_per_epoch=0.00123)
    one.points[0] = msgspec.structs.replace(one.points[0], cells=[cell])
    assert "$0.00123" in (page := render([one]))
    assert "<h3>time and cost of an epoch</h3>" in page
    nothing = msgspec.structs.replace(full_sweep(), points=[], curves=[], pools=[])
    assert "Nothing was measured." in render([nothing])


def test_every_text_of_a_sweep_is_escaped() -> None:
    one = msgspec.structs.replace(
        full_sweep(), title=HOSTILE, id=HOSTILE, model=HOSTILE, warnings=[HOSTILE], argv=["sweep", HOSTILE]
    )
    one.host = msgspec.structs.replace(one.host, hostname=HOSTILE, cpu=HOSTILE)
    page = render([one])
    assert HOSTILE not in page
    assert page.count("<script") == 3


def test_the_headline_is_of_the_fastest() -> None:
    assert headline(full_study()).startswith("tf is 1.25")
    assert headline(study()) == "Nothing was measured."
    alone = study(measured("torch/cpu", 0.01, relative=None))
    assert headline(alone) == "Measured: torch/cpu."
    render([Chapter(study()), Chapter(alone)])  # what has nothing to show is shown as that


def test_important_columns_are_shown_and_others_are_there() -> None:
    table = table_of(typical_study())
    shown = [column.name for column in table.columns if column.shown]
    assert {"step_time", "speedup", "parity"} <= set(shown)
    assert len(shown) <= 7 < len(table.columns)
    assert sorted(column.name for _, group in table.groups for column in group) == sorted(
        column.name for column in table.columns
    )
    assert [row.kind for row in table.rows] == ["ranked"] * 3 + ["unranked"] + ["absent"] * 2
    row = next(row for row in table.rows if row.cell == "tf/cpu")
    assert float(row.values[0].key) == pytest.approx(0.00855, rel=1e-3)


def test_the_proof_shows_the_comparisons_nearest_to_what_is_allowed() -> None:
    part = ParityPart(1e-12, None, 3e-9, {"loss": 1e-9, "gradient": 1e-9, "weight": 1e-9})
    tensors = [TensorError("algorithm", f"t{n}", 0, "weight", 1e-12 * n, 1e-9) for n in range(40)]
    tensors.append(TensorError("timed", "worst", 3, "gradient", None, 5e-2))
    checked = measured("torch/cpu", 0.01, parity=Parity("fail", "why", algorithm=part, tensors=tensors))
    (proof,) = proofs_of(study(checked, absent("tf/cpu", "unavailable", "no tf")))
    assert [error and (error.error, error.passed) for error in proof.errors[:3]] == [
        ("1.0e-12", True), ("not finite", False), ("3.0e-9", False),
    ]  # fmt: skip
    assert proof.errors[3:] == [None, None, None]
    assert (proof.nearest[0].name, proof.nearest[1].name) == ("worst", "t39")
    assert (len(proof.nearest), proof.compared) == (12, 41)


def test_a_command_is_one_that_was_typed() -> None:
    def command(*argv: str) -> str:
        return view_of(Chapter(msgspec.structs.replace(study(), argv=list(argv))), 1).command

    assert command("compare", "--data", "a b") == "polybench compare --data 'a b'"
    assert command("notebook.py", "x") == ""


@pytest.mark.parametrize(("module", "name"), [("jinja2", "jinja2"), ("plotly.offline", "plotly")])
def test_what_is_missing_is_named(module: str, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from polybench.page import templating
    from polybench.page.programs import plotly

    plotly.cache_clear()
    templating._environment.cache_clear()
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(BadInput, match=rf"{name} is not installed; pip install 'polybench\[report\]'"):
        render([Chapter(study())])
