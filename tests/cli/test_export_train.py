"""`polybench export --train`: plain programs, printed or written into a folder."""

import ast
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from polybench.data import open_dataset
from polybench.data.batches import batch_stream
from polybench.machine import cores
from polybench.planning.study_file import read_network
from tests.commands import printed, refused

MY_NET = Path(__file__).parents[2] / "examples" / "my_net.toml"


def programs(*options):
    return printed("export", "--train", "--devices", "cpu", *options)


def test_prints_each_configuration_once_and_runs_nothing():
    options = "--engines torch,torch,tf+xla --data cifar10 --steps 32 --batch-size 64"
    text = programs(*options.split())
    assert text.count("# torch/cpu\n") == 1
    assert "# tf+xla/cpu\n" in text
    assert text.count("\nUNTIMED_STEPS, STEPS = 2, 30\n") == 2
    assert "--batch-size 64 --steps 32 --data cifar10 " in text  # two of the steps are untimed
    assert text.count("step_seconds") == 2


def test_the_output_for_one_configuration_is_a_program():
    tree = ast.parse(programs("--engines", "torch", "--learning-rate", "0.5"))
    assert ast.get_docstring(tree)
    assert "lr=0.5" in ast.unparse(tree)


def test_a_configuration_without_a_program_is_a_comment():
    reference, variant = filter(None, programs("--engines", "reference,tf+keras_fit").split("\n"))
    assert reference.startswith("# reference/cpu: no plain program")
    assert variant == "# tf+keras_fit/cpu: no plain program for the variant keras_fit"


def test_synthetic_images_need_a_folder():
    text = programs("--engines", "torch", "--data", "synthetic")
    assert "# It reads synthetic images from a file; write one with: polybench export --train -o FOLDER" in text


def test_prints_the_command_that_sets_malloc_policy_and_cpus():
    assert "the malloc policy of polybench's workers, run it with: GLIBC_TUNABLES=" in programs("--engines", "torch")
    chosen = cores.select_cores(cores.physical_cores(), 1)[0]
    output = programs("--engines", "torch,tf", "--pin-cpus", "--threads", "1")
    assert output.count("# To use the malloc policy and CPUs of polybench's workers, ") == 2
    assert output.count(f" taskset -c {chosen}\n") == 2


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--engines", "torhc"], "did you mean 'torch'"),
        (["--engines", "torch", "--input", "pipeline"], "--input pipeline: programs exist for preloaded data only"),
        (["--engines", "torch", "--data", "synthetic", "-o", __file__], "not a folder; name another one"),
        (["--engines", "torch", "--steps", "2"], "--steps 2: a program does not time its first 2: try --steps 3"),
        (["--engines", "torch", "--data", "synthetic", "-o", "x" * 300], "File name too long; name another folder"),
    ],
)
def test_bad_input_has_a_message(options, message):
    assert message in refused("export", "--train", *options)


OPTIONS = ("--data", "synthetic", "--steps", "5", "--batch-size", "8", "--threads", "1")


def test_a_folder_contains_only_what_its_programs_need(small_data, tmp_path):
    folder = tmp_path / "programs"
    text = programs("-o", folder, "--engines", "torch,tf+xla,keras+torch,reference", *OPTIONS)
    names = {path.name for path in folder.iterdir()}
    assert names == {
        "torch_cpu.py", "tf+xla_cpu.py", "keras+torch_cpu.py", "initial_state.npz", "images", "run.sh"
    }  # fmt: skip
    assert "reference/cpu: no plain program for the engine reference" in text
    assert (folder / "run.sh").stat().st_mode & 0o111 == 0o111
    assert sum(path.stat().st_size for path in (folder / "images").iterdir()) == 5 * 8 * 3073
    dataset = open_dataset("synthetic", 0, tmp_path)
    indices = batch_stream(600, 8, 0, 5)
    records = np.concatenate([np.fromfile(path, np.uint8) for path in sorted((folder / "images").iterdir())])
    with np.load(folder / "initial_state.npz") as start:
        drawn = records.reshape(-1, 3073)[start["batches"]]
    assert (drawn[..., 0] == dataset.labels[indices]).all()
    assert (drawn[..., 1:].reshape(5, 8, 3, 32, 32) == dataset.images[indices]).all()


def test_programs_for_a_network_file_share_its_weights(small_data, tmp_path):
    options = ("--engines", "torch,flux", "--model", MY_NET, "--seed", "5", *OPTIONS)
    programs("-o", tmp_path / "programs", *options)
    assert "reshape(-1, 3, 32, 32)" in (tmp_path / "programs" / "torch_cpu.py").read_text()
    assert "reshape(records[2:end, :], 32, 32, 3, :)" in (tmp_path / "programs" / "flux_cpu.jl").read_text()
    with np.load(tmp_path / "programs" / "initial_state.npz") as state:
        assert {*state.files} == {*read_network(str(MY_NET)).tensor_shapes(), "batches"}
    assert not list((tmp_path / "programs").glob("*_cpu.npz"))


@pytest.mark.wide  # scripts/test_plain runs each program; the folder is read above
def test_the_programs_of_a_folder_run(small_data, tmp_path):
    pytest.importorskip("torch")
    folder = tmp_path / "my programs"
    programs("-o", folder, "--engines", "torch,torch+channels_last", *OPTIONS)
    done = subprocess.run([folder / "run.sh"], capture_output=True, text=True, check=False, cwd="/", timeout=240)
    assert done.returncode == 0, done.stderr
    torch, other = (json.loads(line) for line in done.stdout.splitlines() if line.startswith("{"))
    assert len(torch["step_seconds"]) == 3
    assert other["losses"] == pytest.approx(torch["losses"], rel=1e-5)


def test_programs_use_the_environments_of_their_configurations(small_data, tmp_path):
    environment = tmp_path / "old"
    (environment / "bin").mkdir(parents=True)
    (environment / "bin" / "python").symlink_to(sys.executable)
    engines = ("--engines", "torch,torch@old", "--env", f"old={environment}")
    programs("--output", tmp_path / "programs", *engines, *OPTIONS)
    own, old = [line for line in (tmp_path / "programs" / "run.sh").read_text().splitlines() if line.startswith("env ")]
    assert f" {sys.executable} torch_cpu.py initial_state.npz images" in own
    assert f" {environment}/bin/python torch@old_cpu.py initial_state.npz images" in old
    assert "GLIBC_TUNABLES=" in own


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (["--engines", "tf+keras_fit"], "the variant keras_fit"),
        (["--engines", "tf", "--replicas", "2"], "2 replicas"),
        (["--engines", "flux+gc_off"], "the variant gc_off"),
        (["--engines", "reference"], "the engine reference"),
        (["--engines", "lux", "--model", "imdb-bilstm"], "the network imdb-bilstm: Lux.jl has no lstm in polybench"),
    ],
)
def test_a_missing_program_has_a_reason(options, reason):
    assert f"no plain program for {reason}" in programs(*options)
