"""The issues for other projects: each program runs alone, and shows what the text says."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from polybench.engines.flux.julia.discovery import manifest_file
from tests.configured_julia import configured_julia

FOLDER = Path(__file__).parents[1] / "docs" / "upstream"
PAGES = sorted(path.stem for path in FOLDER.glob("*.md") if path.stem != "index")
RETAIN = "glibc.malloc.mmap_threshold=1073741824:glibc.malloc.trim_threshold=4294967296:glibc.malloc.arena_max=1"
PROJECT = """
[deps]
NNlib = "872c559c-99b0-510c-b3b7-b6c96a88d5cd"
LinearAlgebra = "37e2e46d-f89d-539d-b4ee-838fcccc9c8e"
"""


def need(*frameworks: str) -> None:
    """Skip the test if a framework is not installed, without importing it."""
    for name in frameworks:
        if importlib.util.find_spec(name) is None:
            pytest.skip(f"{name} is not installed")


def blocks(page: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", (FOLDER / f"{page}.md").read_text("utf-8"), re.S | re.M)


def run_python(page: str, folder: Path, **variables: str) -> str:
    """Run the program of a page in an empty folder, without polybench on the path; return its output."""
    (program,) = blocks(page, "python")
    (folder / "program.py").write_text(program, "utf-8")
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | variables
    command = [sys.executable, "program.py"]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, cwd=folder, env=environment).stdout


@pytest.fixture(scope="module")
def julia(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Return the command of Julia with a project that has only NNlib, as in the configured one; without it, skip."""
    configured = configured_julia()
    folder = tmp_path_factory.mktemp("project")
    manifest = manifest_file(configured)
    assert manifest is not None
    shutil.copy(manifest, folder / "Manifest.toml")
    (folder / "Project.toml").write_text(PROJECT)
    return [configured.executable, f"--project={folder}", "--startup-file=no", "--threads=2"]


def run_julia(julia: list[str], page: str) -> str:
    (program,) = blocks(page, "julia")
    command = [*julia, "-e", program]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, timeout=300).stdout


def numbers(text: str, after: str) -> list[float]:
    """Return the numbers that follow each occurrence of a pattern."""
    return [float(number) for number in re.findall(after + r"[^\d\n]*?([\d.]+(?:e[-+]\d+)?)", text)]


@pytest.mark.wide
def test_a_row_of_an_embedding_has_half_of_its_v_in_keras(tmp_path: Path) -> None:
    need("keras", "tensorflow")
    (published,) = blocks("keras_adam", "text")
    for text in (run_python("keras_adam", tmp_path, KERAS_BACKEND="tensorflow"), published):
        sparse, dense = numbers(text, r": v \[")
        assert sparse == pytest.approx(dense / 2, rel=1e-4)
        sparse_step, dense_step = numbers(text, r"first step \[")
        assert sparse_step == pytest.approx(dense_step * 2**0.5, rel=1e-4)


@pytest.mark.wide
def test_tensorflows_variance_is_further_from_exact_the_more_pixels(tmp_path: Path) -> None:
    need("tensorflow")
    (published,) = blocks("tensorflow_moments", "text")
    for text in (run_python("tensorflow_moments", tmp_path), published):
        errors, pairwise = numbers(text, "variance"), numbers(text, "float32")
        assert errors == sorted(errors)
        assert errors[-1] > 20 * pairwise[-1]


@pytest.mark.wide
@pytest.mark.skipif(sys.platform != "linux", reason="glibc only")
def test_retaining_memory_avoids_page_faults_in_pytorch(tmp_path: Path) -> None:
    need("torch")
    assert "page faults a step" in run_python("pytorch_malloc", tmp_path, GLIBC_TUNABLES="")
    (faults,) = numbers(run_python("pytorch_malloc", tmp_path, GLIBC_TUNABLES=RETAIN), ":")
    assert faults < 100
    assert f"GLIBC_TUNABLES={RETAIN} " in blocks("pytorch_malloc", "sh")[0]


@pytest.mark.wide
def test_nnlibs_max_pooling_gives_the_gradient_to_a_smaller_value(julia: list[str]) -> None:
    output = run_julia(julia, "nnlib_maxpool")
    assert output.endswith("Float32[1.0, 0.0, 0.0, 0.0]\n")
    assert output == blocks("nnlib_maxpool", "text")[0]


@pytest.mark.wide
def test_nnlibs_weight_gradient_uses_one_core(julia: list[str]) -> None:
    (used,) = numbers(run_julia(julia, "nnlib_conv_filter"), "weight gradient:")
    assert used < 1.2


@pytest.mark.wide
@pytest.mark.parametrize(
    ("page", "printed"), [("nnlib_col2im", "col2im! takes"), ("nnlib_attention", "softmax alone:")]
)
def test_programs_with_times_run_alone(julia: list[str], page: str, printed: str) -> None:
    assert numbers(run_julia(julia, page), printed)


def test_each_text_has_versions_a_program_and_what_was_excluded() -> None:
    for page in PAGES:
        text = (FOLDER / f"{page}.md").read_text("utf-8")
        assert len(blocks(page, "(?:python|julia)")) == 1, page
        assert "**What was excluded**" in text, page
        assert re.search(r"\d+\.\d+\.\d+", text), page
        assert f"]({page}.md)" in (FOLDER / "index.md").read_text("utf-8"), page
