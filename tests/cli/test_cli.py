"""The command-line program: output, errors and exit codes."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

import pytest
import typer

from polybench import cli
from polybench.engines import ENGINES
from polybench.errors import BadInput
from polybench.render import FORMATS
from polybench.runner import doctor
from polybench.schema.options import Study
from polybench.schema.study import from_json
from tests.cli.conftest import Run
from tests.commands import FAST, refused
from tests.small_datasets import cifar_folder


@pytest.fixture
def program(tmp_path: Path) -> Run:
    """Return a function that runs the program in its own process."""

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "polybench", *arguments]
        return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, cwd=tmp_path)

    return run


def test_a_folder_that_is_not_utf8_is_an_error_before_measuring(program: Run, tmp_path: Path) -> None:
    folder = ("--results", os.fsdecode(b"results-\xff"))
    assert "no saved studies" in program("list", *folder).stdout
    done = program("compare", "--engines", "fake", *FAST, *folder)
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1].startswith("error: a path or option is not UTF-8: ")
    assert "results-\\udcff" in done.stderr
    assert "Traceback" not in done.stderr
    assert [*tmp_path.rglob("*.json*")] == []


@pytest.mark.parametrize(
    ("arguments", "panels"),
    [
        (
            ["--help"],
            {
                "Measure": ["│ compare ", "│ peak "],
                "Results": ["│ list ", "│ resume "],
                "Your own code": ["│ export ", "│ trace "],
                "Versions and machines": ["│ versions ", "│ merge "],
                "Information and set-up": ["│ doctor ", "│ data "],
            },
        ),
        (
            ["compare", "--help-all"],
            {"Workload": ["--engines"], "Measurement": ["--upload", "--margin"], "Output": ["--format"]},
        ),
    ],
)
def test_help_has_panels(arguments: list[str], panels: dict[str, list[str]], run: Run) -> None:
    text = run(*arguments).stdout
    starts = [text.index(f"─ {heading} ─") for heading in panels]
    assert starts == sorted(starts)
    for start, end, words in zip(starts, [*starts[1:], len(text)], panels.values(), strict=True):
        assert not [word for word in words if word not in text[start:end]]


def test_every_command_has_help(run: Run) -> None:
    assert run("--version").stdout.startswith("polybench 0.")
    for name, command in typer.main.get_command(cli.app).commands.items():
        result = run(name, "--help")
        assert result.returncode == 0
        assert "Usage" in result.stdout
        assert command.help in " ".join(result.stdout.split())


def test_compare_prints_a_table_and_saves_the_study(program: Run, run: Run, tmp_path: Path) -> None:
    data = str(cifar_folder(tmp_path, 100))  # an epoch of all synthetic images takes 614 MB
    result = program("compare", "--engines", "fake,fake+slow,faulty+unavailable", *FAST, "--data", data)
    assert result.returncode == 0
    assert "fake+slow/cpu" in result.stdout
    assert "unavailable: the faulty framework is not installed" in result.stdout
    assert "\x1b" not in result.stdout + result.stderr
    assert "Traceback" not in result.stderr
    assert program("show", "last").stdout == result.stdout
    assert "fake/cpu, fake+slow/cpu" in run("list").stdout


def test_every_format_prints_the_document_and_nothing_else(run: Run) -> None:
    result = run("compare", "--engines", "fake", *FAST, "--format", "json", "--quiet")
    assert all(line.startswith("warning: ") for line in result.stderr.splitlines())
    document = from_json(result.stdout.encode())
    assert (document.schema, document.argv[0]) == ("polybench.study/3", "compare")
    for name in FORMATS:
        shown = run("show", "last", "--format", name)
        assert (shown.returncode, shown.stderr) == (0, "")
        assert "fake/cpu" in shown.stdout.replace("\\", "")


def test_output_option_writes_a_file(run: Run, tmp_path: Path) -> None:
    result = run("compare", "--engines", "fake", *FAST, "--format", "json", "--output", "out.json")
    assert result.stdout == ""
    assert json.loads((tmp_path / "out.json").read_text())["results"][0]["configuration"] == "fake/cpu"
    assert run("show", "last", "--format", "json", "-o", "copy.json").stdout == ""
    assert (tmp_path / "copy.json").read_text() == (tmp_path / "out.json").read_text()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--engines", "torhc"], "did you mean 'torch'"),
        (["--engines", ","], "no engines given"),
        (["--engines", "fake", "--devices", "gpu"], "unknown device 'gpu'"),
        (["--engines", "fake", "--precision", "fp16"], "unknown precision"),
        (["--engines", "fake", "--input", "stream"], "unknown input 'stream'; inputs are: pipeline, preload"),
        (["--engines", "fake", "--malloc", "retained"], "unknown malloc 'retained'; did you mean 'retain'?"),
        (
            ["--engines", "fake", "--pin-cpus", "--threads", "99999", "--oversubscribe"],
            "99999 threads need as many physical cores",
        ),
        (["--engines", "fake", "--optimizer", "adam", "--momentum", "0.9"], "drop --momentum"),
        (["--engines", "fake", "--batch-size", "0"], "--batch-size"),
        (["--engines", "fake", "--format", "tabel"], "did you mean 'table'"),
        (["--engines", "fake", "--columns", "sped"], "unknown column"),
        (["--engines", "fake", "--output", "no/such/folder/x"], "cannot write --output"),
        (["--engines", "fake", "--margin", "500%"], "invalid fraction"),
        (["--engines", "fake", "--price", "cpu=1", "--price", "cpu=2"], "cpu is given twice"),
        (["--engines", "fake", "--results", "/proc/nowhere"], "cannot write results"),
    ],
)
def test_bad_input_is_exit_code_2_and_one_clear_message(arguments: list[str], message: str, run: Run) -> None:
    result = run("compare", *arguments)
    assert result.returncode == 2
    assert message in " ".join(result.stderr.replace("│", " ").split())
    assert "Traceback" not in result.stderr
    assert result.stdout == ""


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["compare", "--no-such-option"], "No such option: --no-such-option"),
        (
            ["compare", "--budget", "soon"],
            "invalid duration 'soon': expected a number above 0 and a unit, such as 60s, 2m or 0.5h",
        ),
        (["show"], "'ID'"),
        (["comapre"], "comapre"),
    ],
)
def test_an_invalid_command_line_prints_one_line(arguments: list[str], message: str, run: Run) -> None:
    result = run(*arguments)
    assert (result.returncode, result.stdout) == (2, "")
    (line,) = result.stderr.splitlines()
    assert line.startswith("error: ")
    assert message in line
    assert line.endswith(" --help")


def test_a_bug_has_a_traceback() -> None:
    code = """if True:
        import sys
        from polybench import cli
        from polybench.cli import columns
        def print_table(*_): raise RuntimeError("a bug\x1b")
        columns.print_table = print_table
        sys.argv = ["polybench", "columns"]
        cli.main()"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith("Traceback")
    assert done.stderr.endswith("RuntimeError: a bug\\x1b\n")


def test_a_failed_configuration_is_exit_code_1_and_the_rest_is_printed(run: Run) -> None:
    result = run("compare", "--engines", "fake,faulty+crash", *FAST)
    assert result.returncode == 1
    assert "SIGSEGV" in result.stdout
    assert "not checked" in result.stdout


def test_nothing_measured_is_exit_code_4(run: Run) -> None:
    assert run("compare", "--engines", "faulty+unavailable", *FAST, "--no-save").returncode == 4
    assert run("list").stdout.startswith("no saved studies")


def test_strict_is_exit_code_3(run: Run) -> None:
    result = run("compare", "--engines", "fake,faulty+unavailable", "--strict", *FAST)
    assert result.returncode == 3
    assert "the faulty framework is not installed" in result.stderr


def test_parity_help_lists_its_formats(run: Run) -> None:
    text = " ".join(run("parity", "--help").stdout.replace("│", "").split())
    assert ", ".join(FORMATS) in text
    assert run("parity", "--engines", "fake", "--format", "svg").returncode == 2


def test_parity_reports_every_tensor(run: Run) -> None:
    result = run("parity", "--engines", "reference", "--data", "synthetic", "--batch-size", "8", "--format", "json")
    assert result.returncode == 0
    tensors = json.loads(result.stdout)["results"][0]["parity"]["tensors"]
    assert {"name", "step", "kind", "relative_error", "tolerance"} <= set(tensors[0])


def test_dry_run_prints_the_configurations(run: Run) -> None:
    result = run("compare", "--engines", "torch,torch,tf+xla", "--devices", "cpu", "--dry-run")
    assert result.stdout.split() == ["torch/cpu", "torch/cpu#2", "tf+xla/cpu"]


RUNS = {"runs": True, "versions": {"torch": "2.9"}, "build": {}, "devices": ["cpu"], "variants": {}}
LACKS_TF = {"runs": False, "reason": "tensorflow is not installed", "hint": "pip install tensorflow"}
LACKS_JULIA = {"runs": False, "reason": "Julia is not installed", "hint": "polybench setup flux"}


def test_doctor_reports_each_engine_as_soon_as_it_is_known(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    printed: list[str] = []
    monkeypatch.setattr(importlib.import_module("polybench.cli.doctor"), "echo", lambda text, **_: printed.append(text))

    def probe() -> Iterator[tuple[str, dict[str, object]]]:
        yield "tf", LACKS_TF
        assert printed == ["checked tf"]
        yield "reference", RUNS
        assert printed == ["checked tf"]

    monkeypatch.setattr(doctor, "probe_engines", probe)
    assert run("doctor").returncode == 4
    assert printed[1] == "What to do first:"


def examined(
    engines: dict[str, Any], other: float = 2, steal: float = 1, *, idle: bool = True, cifar10: bool = True
) -> list[tuple[str, Any]]:
    """Return the sections of the report of a machine."""
    machine = {
        "cpu": "a CPU", "cores": 2, "usable_threads": 2, "memory_bytes": 1 << 33, "available_memory_bytes": 1 << 32,
        "gpus": [], "os": "Linux", "python": "3.12",
    }  # fmt: skip
    return [
        ("machine", machine),
        ("data", {"folder": "/data", "cifar10": cifar10, "results": "/results"}),
        ("cache", {"folder": "/cache", "bytes": 0}),
        ("meters", [{"available": False, "meter": "energy", "reason": "no permission", "hint": "sudo chmod a+r x"}]),
        *(("engines", {name: entry | {"cuda": "never ran on a GPU"}}) for name, entry in engines.items()),
        ("machine", {"other_cpu_percent": other, "steal_percent": steal, "idle": idle}),
    ]


@pytest.mark.parametrize(
    ("other", "steal", "hint"), [(90, 1, "stop other programs"), (9, 80, "measure when the host is idle")]
)
def test_doctor_begins_with_what_to_do(
    other: float, steal: float, hint: str, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    engines = {"jax": RUNS, "keras": LACKS_TF, "reference": RUNS, "torch": RUNS, "flux": LACKS_JULIA}
    sections = examined(engines, other, steal, idle=False, cifar10=False)
    monkeypatch.setattr(doctor, "examine", lambda: sections)
    lines = run("doctor").stdout.splitlines()
    wait = "or let polybench wait: polybench compare --wait-idle 60s"
    assert lines[:7] == [
        "What to do first:",
        f"  machine  {hint}, {wait} (other programs {other} % of a core, hypervisor {steal} %)",
        "  flux     polybench setup flux (Julia is not installed)",
        "  keras    pip install tensorflow (tensorflow is not installed)",
        "  data     polybench data fetch (CIFAR-10 is missing; studies use synthetic images)",
        "  measure  polybench compare --engines torch",
        "",
    ]
    assert f"load     BUSY (other programs {other} % of a core, hypervisor {steal} %)" in lines
    assert "meters   energy: missing, no permission; fix it with: sudo chmod a+r x" in lines


def test_doctor_names_no_tests_and_only_what_is_missing(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "examine", lambda: examined({"tf": RUNS, "jax": RUNS}))
    text = run("doctor").stdout
    assert text.startswith("What to do first:\n  measure  polybench compare --engines tf\n\nmachine  a CPU")
    assert "GPU" not in text
    assert "\nload     idle (" in text


def test_doctor_reports_engines_meters_and_data(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = {name: ENGINES[name] for name in ("reference", "torch")}
    monkeypatch.setattr(ENGINES, "load_all", lambda: (chosen, {}))
    result = run("doctor", "--all", "--format", "json")
    report = json.loads(result.stdout)
    assert {*report["engines"]} == {*chosen}
    assert_complete(report)
    assert result.returncode == (0 if report["engines"]["torch"]["runs"] else 4)
    monkeypatch.setattr(doctor, "probe_engines", report["engines"].items)
    text = run("doctor").stdout
    assert f"empty it with: rm -r {report['cache']['folder']}\n" in text
    assert "polybench data fetch" in text
    assert "energy of the processor" in text


@pytest.mark.wide  # it starts each engine; tests/cluster/test_doctor.py has the reports of several machines
def test_doctor_reports_every_engine_here_and_on_another_machine(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    remote = run("doctor", "--all", "--on", "local", "--format", "json")
    (machine,) = json.loads(remote.stdout)["machines"]
    # Reuse the engines of the first report: probing them again would double the test's duration.
    monkeypatch.setattr(doctor, "probe_engines", machine["report"]["engines"].items)
    result = run("doctor", "--all", "--format", "json")
    report = json.loads(result.stdout)
    assert (report.keys(), result.returncode) == (machine["report"].keys(), remote.returncode)
    assert set(report["engines"]) >= {"flux", "torch", "tf"}
    runs = [e["runs"] for name, e in report["engines"].items() if name != "reference"]
    assert result.returncode == (0 if any(runs) else 4)
    assert_complete(report)


def assert_complete(report: doctor.Report) -> None:
    assert report["engines"]["reference"]["runs"]
    for entry in report["engines"].values():
        assert entry["runs"] or (entry["reason"] and entry["hint"])
    for meter in report["meters"]:
        assert meter["available"] or meter["reason"]
    assert any("energy of the processor" in meter["meter"] for meter in report["meters"])


def test_doctor_lists_missing_variants_and_hides_internal_engines(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = {"runs": True, "versions": {"Flux": "0.16"}, "build": {}, "devices": ["cpu"]}
    installed = {"requires": None, "install": None, "installed": True, "hint": None}
    hint = "polybench setup flux --add-package Enzyme"
    missing = {"requires": "Enzyme.jl", "install": hint, "installed": False, "hint": hint}
    engines = {
        "flux": engine | {"variants": {"enzyme": missing, "train": installed}},
        "reference": engine | {"variants": {}},
    }
    monkeypatch.setattr(doctor, "probe_engines", engines.items)
    text = run("doctor").stdout
    assert "variants: train\n" in text
    assert f"missing variant: enzyme requires Enzyme.jl: {hint}\n" in text
    assert "never ran on a GPU" not in text
    assert "reference" not in text
    assert "reference" in run("doctor", "--all").stdout
    assert run("doctor", "--format", "json").stdout.count("reference") == 0


def test_layers_prints_the_operations_of_a_step(run: Run) -> None:
    fast = [*FAST, "--quiet"]
    result = run("layers", "--engines", "fake,faulty+slow_last_layer", *fast, "--sort", "slowdown", "--format", "csv")
    assert result.returncode == 0
    assert result.stdout.splitlines()[1].startswith("fake/cpu,dense3,weight gradient,")
    result = run("layers", "--engines", "faulty+unavailable", *fast)
    assert result.returncode == 4
    assert "unavailable: the faulty framework is not installed" in result.stdout
    layer = ("--layer", "conv 4->8 3x3 pad 1 relu", "--shape", "8x8")
    result = run("layers", "--engines", "fake", *fast, *layer, "--format", "json")
    assert result.returncode == 0
    rows = json.loads(result.stdout)["configurations"][0]["rows"]
    assert [row["operation"] for row in rows] == ["forward", "input gradient", "weight gradient", "relu gradient"]
    assert rows[0]["flops"] == 16 * 2 * 3 * 3 * 4 * 8 * 8 * 8
    result = run("layers", "--engines", "fake", *fast, "--layer", "lstm 3->4", "--shape", "8x8")
    assert (result.returncode, "invalid layer 'lstm 3->4'" in result.stderr) == (2, True)
    invalid = {("--sort", "lots"): "unknown order 'lots'", ("--format", "svg"): "unknown format 'svg'"}
    for wrong, message in invalid.items():
        result = run("layers", "--engines", "fake", *wrong)
        assert result.returncode == 2
        assert message in result.stderr


@pytest.mark.parametrize(
    ("options", "strict", "processes"), [((), False, 5), (("--strict",), True, 5), (("--quick",), False, 1)]
)
def test_options_of_layers_reach_their_measurement(
    options: tuple[str, ...], strict: bool, processes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    received: list[tuple[bool, int]] = []

    def run_layers(study: Study, *_: object, strict: bool = False, **__: object) -> NoReturn:
        received.append((strict, study.processes))
        raise BadInput("not measured")

    monkeypatch.setattr("polybench.experiments.layers.run_layers", run_layers)
    assert refused("layers", "--engines", "fake", "--no-save", *options) == "not measured"
    assert received == [(strict, processes)]
