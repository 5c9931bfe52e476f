"""Running the steps without a GPU: steps, documents, time limits, and missing packages."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from polybench.results.usage import NVML_BY_PROCESS
from polybench.schema.parity import ParityCheck, PrecisionResult
from polybench.schema.resources import DeviceAllocation, Energy, Memory, Utilization
from polybench.schema.study import to_json
from tests import factories
from tests.gpu import __main__, machine, run_steps, summary_lines
from tests.gpu.steps import Here, Step, steps
from tests.gpu.subprocesses import Command, Done, beside, run
from tests.gpu.summary import Line, markdown

ROOT = Path(__file__).parents[2]
HERE = Here(("torch", "jax"))


def done(tmp_path: Path, *results: Any, **changes: Any) -> Done:
    """Return a finished command with a study of these results."""
    study = msgspec.structs.replace(factories.study(*results), **changes)
    tmp_path.joinpath("it.json").write_bytes(to_json(study))
    return Done(Command("it", ()), 0, 1.0, tmp_path)


def verdicts(lines: Any) -> list[str]:
    return [line.verdict for line in lines]


def test_without_a_gpu_it_ends_with_a_message(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(__main__, "gpu_names", list)
        assert __main__.main([str(tmp_path / "made")]) == 4
    assert capsys.readouterr().err == "No NVIDIA GPU was found, so no CUDA code can be tested.\n"
    assert not (tmp_path / "made").exists()


def test_without_a_gpu_it_needs_only_python() -> None:
    """It must report this even if polybench's own packages are not installed."""
    code = "import sys, tests.gpu.__main__; sys.exit(bool({'msgspec', 'numpy', 'polybench'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-S", "-c", code], cwd=ROOT, check=False).returncode == 0


def test_only_missing_packages_are_installed_from_the_folder(tmp_path: Path) -> None:
    asked: list[tuple[str, ...]] = []
    report = '{"install": [{"download_info": {"url": "file:///brought%20along/msgspec-1.whl"}}]}'

    def pip(*arguments: str) -> str:
        asked.append(arguments)
        return report if "--dry-run" in arguments else ""

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(machine, "_pip", pip)
        patched.setattr(machine, "_is_installed", lambda name: name != "optax")
        site = machine.add_missing_packages(tmp_path, tmp_path / "site")
    assert site.is_dir()
    *_, installed = asked
    assert [one for one in installed if one.endswith(".whl")] == ["/brought along/msgspec-1.whl"] * 2
    assert all("--no-index" in arguments for arguments in asked)
    assert any(one.startswith("msgspec") for one in asked[0])
    assert asked[1][-1] == "optax"


def test_missing_packages_are_named_with_the_command_that_downloads_them(tmp_path: Path) -> None:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(machine, "requirements", lambda: ["polybench-has-no-such-package"])
        with pytest.raises(machine.NoPackages, match=r"(?s)no-such-package.*tests\.gpu\.wheels"):
            machine.add_missing_packages(tmp_path, tmp_path / "site")


def test_the_steps_match_the_gpu() -> None:
    found = list(steps(HERE))
    assert [step.name for step in found[:4]] == ["tests-torch", "tests-jax", "tests-nvml", "parity"]
    assert len({step.name for step in found}) == len(found)
    lines = [" ".join(command.arguments) for step in found for command in step.commands]
    assert all("--anonymous" in line for line in lines if line.startswith("polybench"))
    assert any("--precision fp32,tf32,bf16" in line for line in lines)
    assert any("torch+cudagraph" in line and "4096" in line for line in lines)
    asked = [
        command.arguments[command.arguments.index("--engines") + 1].split(",")
        for step in found
        for command in step.commands
        if "--engines" in command.arguments
    ]
    assert not any(name.partition("+")[0] == "flux" for names in asked for name in names)
    assert sum(step.name.startswith("table-") for step in found) == 5


def test_every_command_of_the_steps_is_valid(tmp_path: Path) -> None:
    """Otherwise a misspelled option would fail on the GPU machine only."""
    import typer
    from typer.testing import CliRunner

    from polybench.cli import app

    commands: Any = typer.main.get_command(app)
    for step in steps(HERE):
        for command in step.commands:
            program, verb, *rest = run_steps._placed(command, tmp_path).arguments
            if program == "polybench" and verb in ("compare", "run"):
                shown = CliRunner().invoke(app, [verb, *rest, "--dry-run"])
                assert shown.exit_code == 0, (rest, shown.output)
            elif program == "polybench":  # has no --dry-run
                commands.commands[verb].make_context(verb, list(rest))


def test_programs_run_side_by_side_until_the_time_limit(tmp_path: Path) -> None:
    (tmp_path / "sleeps.py").write_text("import time; time.sleep(600)")
    (tmp_path / "fails.py").write_text("import sys; print('no', file=sys.stderr); sys.exit(3)")
    (tmp_path / "works.py").write_text("print('it')")
    environment = os.environ | {"PYTHONPATH": str(tmp_path)}
    out = tmp_path / "out"
    works, fails = run([Command(name, (name,)) for name in ("works", "fails")], out, 120, environment)
    assert (works.code, fails.code, fails.last_words()) == (0, 3, "no")
    assert (out / "works.command").read_text().endswith("-m works\n")
    late = run([Command(name, ("sleeps",)) for name in ("a", "b")], out, 0.5, environment)
    assert [done.code for done in late] == [None, None]


def test_a_background_load_runs_until_its_step_ends(tmp_path: Path) -> None:
    (tmp_path / "stays.py").write_text("import os, time; print(os.getpid(), flush=True); time.sleep(60)")
    environment = os.environ | {"PYTHONPATH": str(tmp_path)}
    with beside(Command("s", ("stays",)), tmp_path, environment) as ready:
        assert Path(f"/proc/{ready}").exists()
    assert not Path(f"/proc/{ready}").exists()
    with beside(Command("none", ("no_such_module",)), tmp_path, environment) as ready:
        assert ready == ""


def test_parity_is_passed_failed_or_not_tried(tmp_path: Path) -> None:
    part = PrecisionResult(1e-12, 2e-11, 0.0, {})
    results = [
        factories.measured("torch/cuda", 1.0, parity=ParityCheck("pass", float64=part)),
        factories.measured("jax/cuda", 1.0, parity=ParityCheck("fail", reason="conv1 is off")),
        factories.unmeasured("tf/cuda", "unavailable", "TensorFlow is not installed"),
        factories.unmeasured("torch/cuda#2", "failed", "it crashed"),
    ]
    lines = list(summary_lines.parity_results(done(tmp_path, *results)))
    assert verdicts(lines) == ["passed", "failed", "could not be tried", "failed"]
    assert "2.0e-11" in lines[0].detail
    assert lines[1].detail == "conv1 is off"


def test_unread_gpu_meters_are_failures_with_a_reason(tmp_path: Path) -> None:
    whole = factories.measured(
        "torch/cuda", 1.0,
        memory=Memory(device_peak_bytes=1, device_nvml_bytes=2, device_nvml_source=NVML_BY_PROCESS),
        utilization=Utilization(gpu_percent=1, power=2, clocks={"sm": 1}, temperature=3, throttle_reasons=[]),
        energy=Energy(1.0, "NVML"),
    )  # fmt: skip
    device = DeviceAllocation(1, 2, "", "")
    whole.allocations = msgspec.structs.replace(whole.allocations, device=device)
    lacks = msgspec.structs.replace(
        whole, configuration="jax/cuda", memory=Memory(), warnings=["cannot read power (Not Supported)"]
    )
    lines = list(summary_lines.speeds(done(tmp_path, whole, lacks)))
    assert verdicts(lines) == ["passed", "passed", "passed", "failed"]
    assert "lacks peak of its pool, memory by NVML: cannot read power (Not Supported)" in lines[3].detail


def test_a_failed_row_does_not_affect_the_next(tmp_path: Path) -> None:
    failed, ran = (
        factories.unmeasured("torch/cuda", "failed", "CUDA out of memory"),
        factories.measured("torch/cpu", 1.0),
    )
    assert verdicts(summary_lines.one_fails_and_the_next_runs(done(tmp_path, failed, ran))) == ["passed", "passed"]
    assert verdicts(summary_lines.one_fails_and_the_next_runs(done(tmp_path, ran, failed))) == ["failed", "failed"]


@pytest.mark.parametrize(
    ("warnings", "source", "verdict"),
    [
        (["another process used the GPU in 3 of 5 timing blocks"], None, "passed"),
        ([], NVML_BY_PROCESS, "failed"),
        ([], None, "could not be tried"),
    ],
)
def test_another_gpu_process_is_reported_if_that_is_possible(
    tmp_path: Path, warnings: list[str], source: str, verdict: str
) -> None:
    result = factories.measured("torch/cuda", 1.0, warnings=warnings, memory=Memory(device_nvml_source=source))
    assert verdicts(summary_lines.load_is_reported(done(tmp_path, result))) == [verdict]


TESTS = """
import pytest

def test_a_is_b(record_property):
    record_property("found", "3.2")

def test_c():
    assert 1 == 2

@pytest.fixture
def no():
    raise ValueError("no fixture")

def test_d(no):
    pass

def test_e():
    pytest.skip("no TensorFlow")
"""


def test_each_test_is_reported_when_it_ends(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(TESTS)
    (tmp_path / "conftest.py").write_text("from tests.gpu.conftest import pytest_addoption, pytest_configure\n")
    report = f"--gpu-report={tmp_path / 'it.jsonl'}"
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        f"--rootdir={tmp_path}",
        report,
    ]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    subprocess.run([*command, "."], cwd=tmp_path, env=environment, capture_output=True, check=False)
    lines = list(summary_lines.tests(Done(Command("it", ()), 1, 1.0, tmp_path)))
    assert [(line.what, line.verdict) for line in lines] == [
        ("a is b", "passed"), ("c", "failed"), ("d", "failed"), ("e", "could not be tried"),
    ]  # fmt: skip
    assert lines[0].detail == "3.2"
    assert "assert 1 == 2" in lines[1].detail
    assert "no fixture" in lines[2].detail
    assert "no TensorFlow" in lines[3].detail


def test_a_step_without_a_document_fails_and_one_without_time_is_not_tried(tmp_path: Path) -> None:
    step = Step("it", "It", 10, (), summary_lines.speeds)
    (tmp_path / "it.log").write_text("Traceback\nKeyError: 'x'\n")
    assert list(run_steps._found(step, Done(Command("it", ()), 1, 1.0, tmp_path))) == [
        Line("It: it", "failed", "code 1, KeyError: 'x' (FileNotFoundError)")
    ]
    assert verdicts(run_steps._found(step, Done(Command("it", ()), None, 9.0, tmp_path))) == ["could not be tried"]
    assert verdicts(run_steps._lines(step, tmp_path, 1.0)) == ["could not be tried"]


def test_the_summary_is_a_table() -> None:
    text = markdown(["NVIDIA X"], {"Python": "3.12"}, {"One": [Line("a|b", "passed", "c\nd")], "Two": []})
    assert "| a\\|b | passed | c d |" in text
    assert "1 passed, 0 failed, 0 could not be tried." in text


@pytest.mark.slow
def test_a_rehearsal_runs_some_steps(tmp_path: Path) -> None:
    assert run_steps.tell((), tmp_path, 300, rehearse=True, only={"memory"}) == 0
    summary = (tmp_path / "summary.md").read_text()
    assert "fake+crash/cpu (fp32, batch 128) failed as expected | passed" in summary
    assert "| failed |" not in summary
    assert len(list((tmp_path / "documents").glob("*.json"))) == 1
