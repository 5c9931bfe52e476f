from __future__ import annotations

import msgspec

from polybench.render import render
from polybench.schema.metrics import Metric
from tests.factories import study, typical_study, unmeasured


def test_output_is_a_booktabs_table(columns: list[Metric]) -> None:
    text = render("latex", typical_study(), columns)
    assert text.count(r"\toprule") == text.count(r"\end{tabular}") == 2
    assert text.startswith(r"\begin{table}")
    assert text.endswith("\\end{table}\n")


def test_special_characters_are_escaped(columns: list[Metric]) -> None:
    text = render("latex", typical_study(), columns)
    assert r"tf+keras\_fit/cpu & 112 ms ±2.5\%" in text
    assert r"steps became 4.1\% slower" in text
    special = render("latex", study(unmeasured("tf/cpu", "failed", r"50% of $x_1 & {y}# \z")), columns)
    assert r"50\% of \$x\_1 \& \{y\}\# \textbackslash{}z" in special


def test_study_without_measurements_has_no_table(columns: list[Metric]) -> None:
    text = render("latex", study(unmeasured("tf/cpu", "failed", "crashed")), columns)
    assert "tabular" not in text
    assert r"tf/cpu: failed: crashed\par" in text


def test_label_contains_the_study_id(columns: list[Metric]) -> None:
    document = typical_study()
    lines = render("latex", document, columns).splitlines()
    label = lines.index(rf"\label{{tab:{document.id}}}")
    assert lines[label - 1].startswith(r"\caption")  # a label before the caption would get a wrong number
    renamed = msgspec.structs.replace(document, id="a_b}c")
    assert r"\label{tab:a-b-c}" in render("latex", renamed, columns)
