"""The program as a user runs it: output, errors, exit codes."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import typer

from polybench import cli
from polybench.core.document.study import from_json
from polybench.data import synthetic
from polybench.export import FORMATS, PARITY_FORMATS
from polybench.measuring import doctor
from tests.small import cifar_folder

FAST = ["--data", "synthetic", "--processes", "1", "--rounds", "1", "--steps", "5", "--batch-size", "16"]
Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def program(tmp_path: Path) -> Run:
    """The program, in a process of its own."""

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "polybench", *arguments]
        return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, cwd=tmp_path)

    return run


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Run:
    """The program from its entry point to its exit code, in this process and on less data."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(synthetic.IMAGES, "train", 2000)

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        monkeypatch.setattr(sys, "argv", ["polybench", *arguments])
        capfd.readouterr()
        with pytest.raises(SystemExit) as ended:
            cli.main()
        assert isinstance(ended.value.code, int)
        return subprocess.CompletedProcess(sys.argv, ended.value.code, *capfd.readouterr())

    return run


def test_help_and_version(run: Run) -> None:
    assert "compare" in run("--help").stdout
    assert run("--version").stdout.startswith("polybench 0.")
    commands = typer.main.get_command(cli.app).commands
    assert {"compare", "run", "show", "engines"} <= set(commands)
    for command in commands:
        result = run(command, "--help")
        assert result.returncode == 0
        assert "Usage" in result.stdout


def test_a_comparison_prints_a_table_and_saves_itself(program: Run, run: Run, tmp_path: Path) -> None:
    data = str(cifar_folder(tmp_path, 100))  # of all synthetic images, an epoch takes 614 MB
    result = program("compare", "--engines", "fake,fake+slow,fake+unavailable", *FAST, "--data", data)
    assert result.returncode == 0
    assert "fake+slow/cpu" in result.stdout
    assert "unavailable: the fake framework is not installed" in result.stdout
    assert "\x1b" not in result.stdout + result.stderr
    assert "Traceback" not in result.stderr
    assert program("show", "last").stdout == result.stdout
    assert "fake/cpu, fake+slow/cpu" in run("list").stdout


@pytest.mark.parametrize("name", FORMATS)
def test_every_format_is_printed_and_nothing_else(name: str, run: Run) -> None:
    result = run("compare", "--engines", "fake", *FAST, "--no-save", "--format", name, "--quiet")
    assert result.returncode == 0
    assert all(line.startswith("warning: ") for line in result.stderr.splitlines())
    if name == "json":
        document = from_json(result.stdout.encode())
        assert document.schema == "polybench.study/1"
        assert document.argv[0] == "compare"
    assert "fake/cpu" in result.stdout.replace("\\", "")
    assert run("list").stdout.startswith("no saved studies")


def test_output_goes_to_a_file(run: Run, tmp_path: Path) -> None:
    result = run("compare", "--engines", "fake", *FAST, "--format", "json", "--output", "out.json")
    assert result.stdout == ""
    assert json.loads((tmp_path / "out.json").read_text())["results"][0]["cell"] == "fake/cpu"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--engines", "torhc"], "did you mean 'torch'"),
        (["--engines", ","], "no engines given"),
        (["--engines", "fake", "--devices", "gpu"], "unknown device 'gpu'"),
        (["--engines", "fake", "--devices", "cpu", "--precision", "tf32"], "tf32 exists on cuda only"),
        (["--engines", "fake", "--precision", "fp16"], "unknown precision"),
        (["--engines", "fake", "--input", "stream"], "unknown input 'stream'; inputs are: pipeline, preload"),
        (["--engines", "fake", "--heap", "kept"], "unknown heap 'kept'; did you mean 'keep'?"),
        (["--engines", "fake", "--pin", "--threads", "100000"], "100000 threads need as many physical cores"),
        (["--engines", "fake", "--optimizer", "adamw"], "did you mean 'adam'"),
        (["--engines", "fake", "--optimizer", "adam", "--momentum", "0.9"], "leave --momentum out"),
        (["--engines", "fake", "--schedule", "soon=0.1"], "write step=rate"),
        (["--engines", "fake", "--batch-size", "0"], "--batch-size"),
        (["--engines", "fake", "--batch-size", "60000"], "60000"),
        (["--engines", "fake", "--data", "nowhere"], "nowhere"),
        (["--engines", "fake", "--format", "tabel"], "did you mean 'table'"),
        (["--engines", "fake", "--columns", "sped"], "unknown column"),
        (["--engines", "fake", "--output", "no/such/folder/x"], "cannot write --output"),
        (["--engines", "fake", "--budget", "soon"], "no duration"),
        (["--engines", "fake", "--target", "500%"], "no fraction"),
        (["--engines", "fake", "--price", "cpu"], "name=number"),
        (["--engines", "fake", "--price", "cpu=1", "--price", "cpu=2"], "cpu is given twice"),
        (["--engines", "fake", "--results", "/proc/nowhere"], "cannot write results"),
        (["--engines", "fake", "--no-such-option"], "No such option"),
    ],
)
def test_bad_input_is_exit_code_2_and_one_clear_message(arguments: list[str], message: str, run: Run) -> None:
    result = run("compare", *arguments)
    assert result.returncode == 2
    assert message in " ".join(result.stderr.replace("│", " ").split())
    assert "Traceback" not in result.stderr
    assert result.stdout == ""


def test_bad_input_ends_the_program(program: Run) -> None:
    result = program("compare", "--engines", "torhc")
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr.startswith("error: ")
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["compare", "--no-such-option"], "--no-such-option"),
        (["compare", "--budget", "soon"], "'soon' is no duration above 0; write 60s, 2m or 0.5h"),
        (["show"], "'ID'"),
        (["comapre"], "comapre"),
    ],
)
def test_a_command_line_that_is_not_understood_is_one_line_too(
    arguments: list[str], message: str, run: Run
) -> None:
    result = run(*arguments)
    assert (result.returncode, result.stdout) == (2, "")
    (line,) = result.stderr.splitlines()
    assert line.startswith("error: ")
    assert message in line
    assert line.endswith(" --help")


def test_a_failed_cell_is_exit_code_1_and_the_rest_is_printed(run: Run) -> None:
    result = run("compare", "--engines", "fake,fake+crash", *FAST)
    assert result.returncode == 1
    assert "SIGSEGV" in result.stdout
    assert "not checked" in result.stdout


def test_nothing_measured_is_exit_code_4(run: Run) -> None:
    assert run("compare", "--engines", "fake+unavailable", *FAST).returncode == 4


def test_strict_is_exit_code_3(run: Run) -> None:
    result = run("compare", "--engines", "fake,fake+unavailable", "--strict", *FAST)
    assert result.returncode == 3
    assert "the fake framework is not installed" in result.stderr


def test_parity_offers_the_formats_that_it_has(run: Run) -> None:
    text = " ".join(run("parity", "--help").stdout.split())
    assert "table or json." in text
    assert "latex" not in text
    assert set(PARITY_FORMATS) == {"table", "json"}
    assert run("parity", "--engines", "fake", "--format", "csv").returncode == 2


def test_parity_gives_every_tensor(run: Run) -> None:
    result = run(
        "parity", "--engines", "reference", "--data", "synthetic", "--batch-size", "8", "--format", "json"
    )
    assert result.returncode == 0
    tensors = json.loads(result.stdout)["results"][0]["parity"]["tensors"]
    assert {"name", "step", "kind", "relative_error", "tolerance"} <= set(tensors[0])


def test_dry_run_prints_the_cells(run: Run) -> None:
    result = run("compare", "--engines", "torch,torch,tf+xla", "--devices", "cpu", "--dry-run")
    assert result.stdout.split() == ["torch/cpu", "torch/cpu#2", "tf+xla/cpu"]


def test_a_corrupt_study_is_listed_as_unreadable(run: Run, own_folders: Path) -> None:
    run("compare", "--engines", "fake", *FAST)
    (own_folders / "results" / "20990101-000000-dead.json").write_text('{"schema": ')
    result = run("list")
    assert result.returncode == 0
    assert "unreadable" in result.stdout
    assert "fake/cpu" in result.stdout
    assert json.loads(run("list", "--format", "json").stdout)[1]["unreadable"]
    shown = run("show", "last")
    assert shown.returncode == 2
    assert "cannot read the study" in shown.stderr


@pytest.mark.slow  # it starts each engine
def test_doctor_says_what_is_there(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    elsewhere = run("doctor", "--on", "local", "--format", "json")
    (there,) = json.loads(elsewhere.stdout)["machines"]
    # The same answers here: to ask all engines again would take as long again.
    monkeypatch.setattr(doctor, "engines", lambda: there["report"]["engines"])
    result = run("doctor", "--format", "json")
    report = json.loads(result.stdout)
    assert (report.keys(), result.returncode) == (there["report"].keys(), elsewhere.returncode)
    assert report["engines"]["reference"]["runs"]
    assert set(report["engines"]) >= {"flux", "torch", "tf"}
    runs = [e["runs"] for name, e in report["engines"].items() if name != "reference"]
    assert result.returncode == (0 if any(runs) else 4)
    for entry in report["engines"].values():
        assert entry["runs"] or (entry["reason"] and entry["remedy"])
    for meter in report["meters"]:
        assert meter["works"] or meter["reason"]
    assert any("energy of the processor" in meter["what"] for meter in report["meters"])
    text = run("doctor").stdout
    assert f"to empty it: rm -r {report['cache']['folder']}\n" in text
    assert "polybench data fetch" in text
    assert "energy of the processor" in text


def test_layers_prints_what_a_step_is_made_of(run: Run) -> None:
    fast = [*FAST, "--quiet"]
    result = run("layers", "--engines", "fake,fake+uneven", *fast, "--sort", "lost", "--format", "csv")
    assert result.returncode == 0
    assert result.stdout.splitlines()[1].startswith("fake/cpu,dense3,weight gradient,")
    result = run("layers", "--engines", "fake+unavailable", *fast)
    assert result.returncode == 4
    assert "unavailable: the fake framework is not installed" in result.stdout
    layer = ("--layer", "conv 3x3 4->8 pad 1 relu", "--input", "8x8")
    result = run("layers", "--engines", "fake", *fast, *layer, "--format", "json")
    assert result.returncode == 0
    rows = json.loads(result.stdout)["engines"][0]["rows"]
    assert [row["part"] for row in rows] == ["forward", "data gradient", "weight gradient", "activation"]
    assert rows[0]["flop"] == 16 * 2 * 3 * 3 * 4 * 8 * 8 * 8
    result = run("layers", "--engines", "fake", *fast, "--layer", "lstm 3->4", "--input", "8x8")
    assert (result.returncode, "no layer is 'lstm 3->4'" in result.stderr) == (2, True)
    for wrong in (("--sort", "lots"), ("--format", "latex")):
        result = run("layers", "--engines", "fake", *wrong)
        assert result.returncode == 2
        assert f"unknown {'order' if wrong[0] == '--sort' else 'format'} '{wrong[1]}'" in result.stderr
