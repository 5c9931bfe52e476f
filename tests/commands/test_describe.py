import ast

import pytest
import typer
from typer.testing import CliRunner

from polybench.commands.compare import compare
from polybench.core.errors import BadInput
from polybench.machine import cores


@pytest.fixture
def run():
    app = typer.Typer()
    app.command()(compare)
    return lambda *arguments: CliRunner().invoke(app, ["--describe", "--devices", "cpu", *arguments])


def test_prints_each_cell_once_and_runs_nothing(run):
    result = run(
        "--engines", "torch,torch,tf+xla", "--data", "cifar10", "--steps", "30", "--batch-size", "64"
    )
    assert result.exit_code == 0, result.output
    assert result.stdout.count("# torch/cpu\n") == 1
    assert "# tf+xla/cpu\n" in result.stdout
    assert result.stdout.count("STEPS = 30\n") == 2
    assert "--batch-size 64 --steps 32 --data cifar10 " in result.stdout  # two of the steps are untimed
    assert result.stdout.count("step_seconds") == 2


def test_output_for_one_cell_is_a_program(run):
    tree = ast.parse(run("--engines", "torch", "--learning-rate", "0.5").stdout)
    assert ast.get_docstring(tree)
    assert "LEARNING_RATE = 0.5" in ast.unparse(tree)


def test_says_which_have_no_script(run):
    result = run("--engines", "reference,tf+keras_fit")
    assert result.exit_code == 0
    assert [line.partition(":")[0] for line in result.stdout.split("\n") if line] == [
        "# reference/cpu",
        "# tf+keras_fit/cpu",
    ]
    assert "no plain script" in result.stdout


def test_says_that_synthetic_images_are_in_no_file(run):
    assert "Synthetic images" in run("--engines", "torch", "--data", "synthetic").stdout


def test_says_how_to_have_the_heap_and_the_cores(run):
    assert "the heap of polybench's workers, run it with: GLIBC_TUNABLES=" in run("--engines", "torch").stdout
    chosen = cores.choose(cores.physical_cores(), 1)[0]
    output = run("--engines", "torch,tf", "--pin", "--threads", "1").stdout
    assert output.count("# To have the heap and cores of polybench's workers, ") == 2
    assert output.count(f" taskset -c {chosen}\n") == 2


def test_bad_input(run):
    assert isinstance(run("--engines", "torhc").exception, BadInput)


def test_there_is_no_script_with_a_pipeline_yet(run):
    assert "leave out --input pipeline" in str(run("--engines", "torch", "--input", "pipeline").exception)
