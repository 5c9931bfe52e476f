"""Terminal, Markdown and LaTeX: syntax, and escaping of all texts."""

from __future__ import annotations

import msgspec
import pytest

from polybench.errors import BadInput
from polybench.render import FORMATS, render
from polybench.render.study import important_columns
from polybench.render.table import Table, number_columns, text_columns
from polybench.render.terminal import render as render_text
from polybench.schema.metrics import METRICS, Metric
from polybench.schema.result import Result
from polybench.schema.study import from_json
from tests.factories import measured, study, typical_study, unmeasured
from tests.figures.test_all_figures import DOCUMENTS

FAILED = study(unmeasured("tf/cpu", "failed", "crashed"))


@pytest.mark.parametrize("name", FORMATS)
def test_every_format_ends_with_one_newline(name: str) -> None:
    for one in (typical_study(), study()):
        text = render(one, name, columns=list(METRICS.values()))
        assert text.endswith("\n")
        assert not text.endswith("\n\n")


@pytest.mark.parametrize("name", FORMATS)
def test_every_format_contains_every_configuration(name: str) -> None:
    text = render(typical_study(), name).replace("\\", "")
    missing = [result.configuration for result in typical_study().results if result.configuration not in text]
    assert not missing, f"--format {name} leaves out configurations of a study, from the rows of its Table or Records"


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("kind", [kind for kind in DOCUMENTS if kind != "study"])
def test_every_document_has_every_format(kind: str, name: str) -> None:
    text = render(DOCUMENTS[kind], name).replace("\\", "")
    expected = "memory" if kind == "peak" else "torch/cpu"
    assert expected in text, f"--format {name} leaves out {expected}, from the rows or columns of a {kind}'s table"
    assert text.endswith("\n")


def test_machine_formats_contain_all_columns() -> None:
    header, *_ = render(typical_study(), "csv").splitlines()
    assert set(METRICS) <= {column.partition(" ")[0] for column in header.split(",")}
    assert len(important_columns(typical_study(), None)) < len(METRICS)
    assert METRICS["second_step"].title not in render(typical_study(), "markdown")


def test_json_is_the_saved_document(columns: list[Metric]) -> None:
    assert from_json(render(typical_study(), "json", columns=columns).encode()) == typical_study()


def test_an_unknown_format_is_bad_input() -> None:
    with pytest.raises(BadInput, match="unknown format 'xml'; formats are: csv"):
        render(typical_study(), "xml")


def lines(columns: list[Metric], *results: Result) -> list[str]:
    return render(study(*results), columns=columns).splitlines()


def test_complete_table(columns: list[Metric]) -> None:
    text = render(typical_study(), columns=columns)
    assert text == (
        """\
lenet on synthetic images, batch 128, fp32, 2 threads; Some, 2 cores; 2025-01-01

  tf is 1.93 (1.93 to 1.93) times as fast as torch.
  torch is 1.22 (1.22 to 1.22) times as fast as flux.

engine                     step  images/s      speed vs. torch   start   memory  result
----------------  -------------  --------  -------------------  ------  -------  -----------
tf/cpu            8.55 ms ±2.5%    14,971  1.93 (1.93 to 1.93)  2.15 s  412 MiB  same
torch/cpu         16.5 ms ±2.5%     7,758                    1  2.15 s  412 MiB  same
flux/cpu          20.1 ms ±2.5%     6,368  0.82 (0.82 to 0.82)  2.15 s  412 MiB  same [2]
torch/cuda        unavailable: no CUDA device is visible to PyTorch (hint: install an NVIDIA driver,
                  then run polybench doctor)
tf/cuda           failed: killed by signal 9 (SIGKILL) out of memory? (log: /tmp/polybench/tf.log)

not ranked: failed the parity check
tf+keras_fit/cpu   112 ms ±2.5%     1,143                       2.15 s  412 MiB  DIFFERS [1]

  Brackets: 95% intervals over 3 runs, each in a fresh process, of this study.
  [1] parity check failed: loss 3.1e-2 from the reference
  [2] max-pool gradient: conv1.weight is 0.88% off the exact rule
  Why: polybench explain ID   7 notes: polybench show ID --notes
"""
    )


def test_paths_are_never_broken(columns: list[Metric]) -> None:
    path = "/" + "long-folder/" * 12 + "torch.log"
    assert any(path in line for line in lines(columns, unmeasured("torch/cpu", "failed", "crashed", log_path=path)))


def test_notes_wrap_and_further_tables_follow_under_their_titles() -> None:
    columns = [*text_columns("layer"), *number_columns("time")]
    further = Table(title=["costs"], columns=text_columns("a", "b"), rows=[["x", "y z"]], notes=["see below"])
    table = Table(columns=columns, rows=[["conv", "1 ms"], ["dense", "10 µs"]], notes=["one " * 60], tables=[further])
    rows, title, further_rows, further_notes, notes = render_text(table, 60).split("\n\n")
    assert rows.splitlines() == ["layer   time", "-----  -----", "conv    1 ms", "dense  10 µs"]
    assert (title, further_rows.splitlines()[2], further_notes) == ("costs", "x  y z", "  see below")
    first, second, *_ = notes.splitlines()
    assert (first[:6], second[:8]) == ("  one ", "    one ")
    assert max(map(len, notes.splitlines())) <= 60


def test_markdown_contains_tables_and_notes(columns: list[Metric]) -> None:
    text = render(typical_study(), "markdown", columns=columns)
    cells = ["tf/cpu", "8.55 ms ±2.5%", "14,971", "1.93 (1.93 to 1.93)", "2.15 s", "412 MiB", "same"]
    assert cells in [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines()]
    assert text.index("**not ranked: failed the parity check**") < text.index("| tf+keras_fit/cpu |")
    assert "- torch/cuda: unavailable: no CUDA" in text
    assert r"- \[2\] max-pool gradient: conv1.weight is 0.88% off the exact rule" in text
    table = [line for line in text.splitlines() if line.startswith("|")]
    assert {line.count("|") for line in table} == {len(columns) + 2}


def test_markdown_escapes_special_characters(columns: list[Metric]) -> None:
    document = study(measured("a|b/cpu", 0.01), unmeasured("tf/cpu", "failed", "<class 'X'> * `y` | z"))
    text = render(document, "markdown", columns=columns)
    assert r"| a\|b/cpu |" in text
    assert r"failed: \<class 'X'> \* \`y\` \| z" in text


def test_latex_is_a_booktabs_table_with_the_id_as_label(columns: list[Metric]) -> None:
    document = typical_study()
    text = render(document, "latex", columns=columns)
    assert text.count(r"\toprule") == text.count(r"\end{tabular}") == 2
    assert text.startswith(r"\begin{table}")
    assert text.endswith("\\end{table}\n")
    label = text.splitlines().index(rf"\label{{tab:{document.id}}}")
    assert text.splitlines()[label - 1].startswith(r"\caption")  # a label before the caption would get a wrong number
    renamed = msgspec.structs.replace(document, id="a_b}c")
    assert r"\label{tab:a-b-c}" in render(renamed, "latex", columns=columns)


def test_latex_has_four_columns_and_the_methods_and_other_notes_are_comments() -> None:
    torch = measured("torch/cpu", 0.0165, versions={"torch": "2.13.0"})
    flux = measured("flux/cpu", 0.0201, versions={"julia": "1.10.8", "flux": "0.16.10"})
    text = render(study(torch, flux, warnings=["100% busy"]), "latex")
    header, *rows = [line.strip().removesuffix(r" \\") for line in text.splitlines() if " & " in line]
    assert [cell.strip() for cell in header.split("&")] == ["engine", "step", "images/s", r"speed vs. torch"]
    assert [cell.strip() for cell in rows[1].split("&")] == [
        "flux/cpu: Flux 0.16.10 (Julia 1.10.8)", "20.1 ms (19.6 ms to 20.6 ms)", "6,368", "0.82 (0.82 to 0.82)"
    ]  # fmt: skip
    assert "We measured one training step of lenet" in text
    assert r"% 100\% busy" in text.splitlines()


def test_latex_escapes_special_characters(columns: list[Metric]) -> None:
    text = render(typical_study(), "latex", columns=columns)
    assert r"tf+keras\_fit/cpu & 112 ms ±2.5\%" in text
    assert r"Brackets: 95\% intervals" in text
    special = study(unmeasured("tf/cpu", "failed", r"50% of $x_1 & {y}# \z"))
    assert r"50\% of \$x\_1 \& \{y\}\# \textbackslash{}z" in render(special, "latex", columns=columns)


@pytest.mark.parametrize(
    ("name", "row", "mark"), [("markdown", "- tf/cpu: failed: crashed", "|"), ("latex", r"crashed\par", "tabular")]
)
def test_study_without_measurements_has_no_table(columns: list[Metric], name: str, row: str, mark: str) -> None:
    text = render(FAILED, name, columns=columns)
    assert row in text
    assert mark not in text
