"""The story itself, without a GPU: steps, what is found in documents, time, and what is missing."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from polybench.core.document.identity import Parity, ParityPart
from polybench.core.document.resources import DeviceAllocation, Energy, Memory, Utilization
from polybench.core.document.study import to_json
from polybench.report.usage import BY_PROCESS
from tests import factories
from tests.gpu import __main__, findings, machine, story
from tests.gpu.running import Command, Done, beside, run
from tests.gpu.steps import Here, Step, steps
from tests.gpu.summary import Line, markdown

ROOT = Path(__file__).parents[2]
HERE = Here(("torch", "jax"))


def done(tmp_path: Path, *results: Any, **changes: Any) -> Done:
    """A command that has left a study of these results."""
    study = msgspec.structs.replace(factories.study(*results), **changes)
    tmp_path.joinpath("it.json").write_bytes(to_json(study))
    return Done(Command("it", ()), 0, 1.0, tmp_path)


def verdicts(lines: Any) -> list[str]:
    return [line.verdict for line in lines]


def test_without_a_gpu_it_ends_in_a_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(__main__, "gpu_names", list)
        assert __main__.main([str(tmp_path / "made")]) == 4
    assert capsys.readouterr().err == "There is no NVIDIA GPU here, so nothing of CUDA can be shown.\n"
    assert not (tmp_path / "made").exists()


def test_without_a_gpu_it_needs_nothing_but_python() -> None:
    """It must say so where polybench's own packages are not installed yet."""
    code = (
        "import sys, tests.gpu.__main__; sys.exit(bool({'msgspec', 'numpy', 'polybench'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-S", "-c", code], cwd=ROOT, check=False).returncode == 0


def test_missing_packages_come_from_the_folder_and_nothing_else_does(tmp_path: Path) -> None:
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


def test_packages_that_are_nowhere_are_named_with_what_makes_the_folder(tmp_path: Path) -> None:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(machine, "requirements", lambda: ["polybench-has-no-such-package"])
        with pytest.raises(machine.NoPackages, match=r"(?s)no-such-package.*tests\.gpu\.wheels"):
            machine.add_missing_packages(tmp_path, tmp_path / "site")


def test_the_steps_are_those_of_a_gpu() -> None:
    found = list(steps(HERE))
    assert [step.name for step in found[:4]] == ["tests-torch", "tests-jax", "tests-nvml", "identity"]
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


def test_every_line_of_the_story_is_one_that_polybench_takes(tmp_path: Path) -> None:
    """A misspelled option would be found on the lent machine only."""
    import typer
    from typer.testing import CliRunner

    from polybench.cli import app

    commands: Any = typer.main.get_command(app)
    for step in steps(HERE):
        for command in step.commands:
            program, verb, *rest = story._placed(command, tmp_path).arguments
            if program == "polybench" and verb in ("compare", "run"):
                shown = CliRunner().invoke(app, [verb, *rest, "--dry-run"])
                assert shown.exit_code == 0, (rest, shown.output)
            elif program == "polybench":  # what has no --dry-run
                commands.commands[verb].make_context(verb, list(rest))


def test_programs_run_side_by_side_and_are_ended_when_their_time_is_over(tmp_path: Path) -> None:
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


def test_a_stranger_runs_until_the_end_of_what_it_is_beside(tmp_path: Path) -> None:
    (tmp_path / "stays.py").write_text("import os, time; print(os.getpid(), flush=True); time.sleep(60)")
    environment = os.environ | {"PYTHONPATH": str(tmp_path)}
    with beside(Command("s", ("stays",)), tmp_path, environment) as said:
        assert Path(f"/proc/{said}").exists()
    assert not Path(f"/proc/{said}").exists()
    with beside(Command("none", ("no_such_module",)), tmp_path, environment) as said:
        assert said == ""


def test_identity_is_shown_failed_or_not_tried(tmp_path: Path) -> None:
    part = ParityPart(1e-12, 2e-11, 0.0, {})
    results = [
        factories.measured("torch/cuda", 1.0, parity=Parity("pass", algorithm=part)),
        factories.measured("jax/cuda", 1.0, parity=Parity("fail", reason="conv1 is off")),
        factories.absent("tf/cuda", "unavailable", "TensorFlow is not installed"),
        factories.absent("torch/cuda#2", "failed", "it crashed"),
    ]
    lines = list(findings.identity(done(tmp_path, *results)))
    assert verdicts(lines) == ["shown", "failed", "could not be tried", "failed"]
    assert "2.0e-11" in lines[0].detail
    assert lines[1].detail == "conv1 is off"


def test_what_was_not_read_of_a_gpu_is_a_failure_with_its_reason(tmp_path: Path) -> None:
    whole = factories.measured(
        "torch/cuda", 1.0,
        memory=Memory(device_peak_bytes=1, device_nvml_bytes=2, device_nvml_source=BY_PROCESS),
        utilization=Utilization(gpu_percent=1, power=2, clocks={"sm": 1}, temperature=3, throttle=[]),
        energy=Energy(1.0, "NVML"),
    )  # fmt: skip
    device = DeviceAllocation(1, 2, "", "")
    whole.allocations = msgspec.structs.replace(whole.allocations, device=device)
    lacks = msgspec.structs.replace(
        whole, cell="jax/cuda", memory=Memory(), warnings=["not read: power (Not Supported)"]
    )
    lines = list(findings.speeds(done(tmp_path, whole, lacks)))
    assert verdicts(lines) == ["shown", "shown", "shown", "failed"]
    assert "lacks peak of its pool, memory by NVML: not read: power (Not Supported)" in lines[3].detail


def test_a_failed_row_and_the_next_one(tmp_path: Path) -> None:
    failed, ran = (
        factories.absent("torch/cuda", "failed", "CUDA out of memory"),
        factories.measured("torch/cpu", 1.0),
    )
    assert verdicts(findings.one_fails_and_the_next_runs(done(tmp_path, failed, ran))) == ["shown", "shown"]
    assert verdicts(findings.one_fails_and_the_next_runs(done(tmp_path, ran, failed))) == ["failed", "failed"]


@pytest.mark.parametrize(
    ("warnings", "source", "verdict"),
    [
        (["another process was on the GPU in 3 of 5 blocks"], None, "shown"),
        ([], BY_PROCESS, "failed"),
        ([], None, "could not be tried"),
    ],
)
def test_a_stranger_is_noticed_or_cannot_be(
    tmp_path: Path, warnings: list[str], source: str, verdict: str
) -> None:
    result = factories.measured(
        "torch/cuda", 1.0, warnings=warnings, memory=Memory(device_nvml_source=source)
    )
    assert verdicts(findings.stranger_is_noticed(done(tmp_path, result))) == [verdict]


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


def test_each_test_is_reported_as_soon_as_it_has_ended(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(TESTS)
    (tmp_path / "conftest.py").write_text(
        "from tests.gpu.conftest import pytest_addoption, pytest_configure\n"
    )
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
    lines = list(findings.tests(Done(Command("it", ()), 1, 1.0, tmp_path)))
    assert [(line.what, line.verdict) for line in lines] == [
        ("a is b", "shown"), ("c", "failed"), ("d", "failed"), ("e", "could not be tried"),
    ]  # fmt: skip
    assert lines[0].detail == "3.2"
    assert "assert 1 == 2" in lines[1].detail
    assert "no fixture" in lines[2].detail
    assert "no TensorFlow" in lines[3].detail


def test_a_step_without_a_document_failed_and_one_without_time_was_not_tried(tmp_path: Path) -> None:
    step = Step("it", "It", 10, (), findings.speeds)
    (tmp_path / "it.log").write_text("Traceback\nKeyError: 'x'\n")
    assert list(story._found(step, Done(Command("it", ()), 1, 1.0, tmp_path))) == [
        Line("It: it", "failed", "code 1, KeyError: 'x' (FileNotFoundError)")
    ]
    assert verdicts(story._found(step, Done(Command("it", ()), None, 9.0, tmp_path))) == [
        "could not be tried"
    ]
    assert verdicts(story._lines(step, tmp_path, 1.0)) == ["could not be tried"]


def test_the_summary_is_a_table_of_lines() -> None:
    text = markdown(["NVIDIA X"], {"Python": "3.12"}, {"One": [Line("a|b", "shown", "c\nd")], "Two": []})
    assert "| a\\|b | shown | c d |" in text
    assert "1 shown, 0 failed, 0 could not be tried." in text


@pytest.mark.slow
def test_a_rehearsal_tells_a_part_of_the_story(tmp_path: Path) -> None:
    assert story.tell((), tmp_path, 300, rehearse=True, only={"memory"}) == 0
    summary = (tmp_path / "summary.md").read_text()
    assert "fake+crash/cpu (fp32, batch 128) is a failed row | shown" in summary
    assert "| failed |" not in summary
    assert len(list((tmp_path / "documents").glob("*.json"))) == 1
