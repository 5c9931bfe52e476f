from __future__ import annotations

import msgspec

from polybench.export import render
from polybench.metrics.base import Metric
from tests.factories import absent, study, typical_study


def test_booktabs(columns: list[Metric]) -> None:
    text = render("latex", typical_study(), columns)
    assert text.count(r"\toprule") == text.count(r"\end{tabular}") == 2
    assert text.startswith(r"\begin{table}")
    assert text.endswith("\\end{table}\n")


def test_special_characters_are_escaped(columns: list[Metric]) -> None:
    text = render("latex", typical_study(), columns)
    assert r"tf+keras\_fit/cpu & 112 ms ±2.5\%" in text
    assert r"steps became 4.1\% slower" in text
    hard = render("latex", study(absent("tf/cpu", "failed", r"50% of $x_1 & {y}# \z")), columns)
    assert r"50\% of \$x\_1 \& \{y\}\# \textbackslash{}z" in hard


def test_nothing_measured(columns: list[Metric]) -> None:
    text = render("latex", study(absent("tf/cpu", "failed", "crashed")), columns)
    assert "tabular" not in text
    assert r"tf/cpu: failed: crashed\par" in text


def test_it_can_be_referred_to_by_the_studys_id(columns: list[Metric]) -> None:
    document = typical_study()
    lines = render("latex", document, columns).splitlines()
    label = lines.index(rf"\label{{tab:{document.id}}}")
    assert lines[label - 1].startswith(r"\caption")  # before it, it would number something else
    odd = msgspec.structs.replace(document, id="a_b}c")
    assert r"\label{tab:a-b-c}" in render("latex", odd, columns)
