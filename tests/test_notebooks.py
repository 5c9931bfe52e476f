"""The notebooks for teaching: committed without outputs, with a prediction before every figure, and executable."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

import polybench
from tests import small_datasets

NOTEBOOKS = sorted((Path(__file__).parents[1] / "examples" / "notebooks").glob("*.ipynb"))
FIGURE = "application/vnd.plotly.v1+json"
PRINTED = {
    "1_what_a_step_costs": r"faulty\+linear_cost/cpu: 0\.[78]",  # (2 + 0.01) ms of (2 + 0.64) ms
    "2_where_the_time_goes": "and you guessed dense1",
    "3_the_first_step": "catches up with",
    "4_cpu_or_gpu": "",  # the machine may have a GPU, which fake does not support
    "5_threads_that_help_and_hurt": r"threads: (0\.9|1\.0)",  # simulated times do not depend on threads
    "6_are_they_really_the_same": "injected/cpu: fail",
    "7_why_does_my_port_differ": r"first difference: update in step 0[^$]*kind of weight decay is coupled",
}
each = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)


def cells(path: Path, kind: str) -> list[tuple[int, dict[str, Any]]]:
    """Yield (position, cell) of one type."""
    found = json.loads(path.read_text("utf-8"))["cells"]
    return [(number, cell) for number, cell in enumerate(found) if cell["cell_type"] == kind]


def positions(path: Path, kind: str, pattern: str) -> list[int]:
    return [number for number, cell in cells(path, kind) if re.search(pattern, "".join(cell["source"]), re.M)]


def test_there_are_seven_notebooks() -> None:
    assert [int(path.name.partition("_")[0]) for path in NOTEBOOKS] == [1, 2, 3, 4, 5, 6, 7]


@each
def test_a_notebook_has_no_outputs_predictions_before_figures_and_only_the_public_interface(path: Path) -> None:
    kept = [cell["id"] for _, cell in cells(path, "code") if cell["outputs"] or cell["execution_count"]]
    assert not kept, "clear all outputs, then save"
    asked = positions(path, "markdown", "^## Predict")[0]
    written = positions(path, "code", r"guess = ")[0]
    measured = positions(path, "code", r"result = ")[0]
    drawn = positions(path, "code", r"\.plot\(|go\.Figure\(")
    assert asked < written < measured < drawn[0]
    code = "\n".join("".join(cell["source"]) for _, cell in cells(path, "code"))
    assert set(re.findall(r"\bpolybench\.(\w+)\(", code)) <= set(polybench.__all__)
    assert not re.search(r"polybench\._|\._[a-z]", code)


@pytest.mark.wide  # each starts a kernel and its workers
@each
def test_the_notebook_runs(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Execute every cell with the engine `fake`; every figure must have content."""
    nbclient = pytest.importorskip("nbclient", reason="nbclient is not installed")
    nbformat = pytest.importorskip("nbformat", reason="nbformat is not installed")
    pytest.importorskip("ipykernel", reason="ipykernel is not installed")
    pytest.importorskip("plotly", reason="plotly is not installed")
    # In the third one, a configuration must catch up.
    engines = "fake,faulty+linear_cost" if path.stem == "3_the_first_step" else "faulty+linear_cost"
    monkeypatch.setenv("POLYBENCH_NOTEBOOK_ENGINES", engines)
    monkeypatch.setenv("POLYBENCH_NOTEBOOK_DATA", str(small_datasets.cifar_folder(tmp_path, 1000)))
    book = nbformat.read(path, as_version=4)
    for cell in book.cells:  # this takes a third of the time
        cell.source = cell.source.replace("processes=3", "processes=1")
    nbclient.NotebookClient(book, timeout=120, resources={"metadata": {"path": str(tmp_path)}}).execute()
    outputs = [output for cell in book.cells if cell.cell_type == "code" for output in cell.outputs]
    figures = [output.data[FIGURE] for output in outputs if FIGURE in output.get("data", {})]
    assert figures
    assert all(trace["x"] and trace["y"] for figure in figures for trace in figure["data"])
    printed = "".join(output.text for output in outputs if output.output_type == "stream")
    assert re.search(PRINTED[path.stem], printed)
