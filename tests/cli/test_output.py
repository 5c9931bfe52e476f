"""Exit codes of documents, and result files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
import typer

from polybench.cli.output import OutputOptions, exit_code, print_and_exit, repeats_warnings_of
from polybench.errors import PolybenchError
from polybench.experiments.bisect import search
from polybench.schema.analyses import BisectPair
from polybench.schema.parity import ParityCheck
from polybench.schema.result import Result
from polybench.storage.store import Store
from tests.commands import printed, refused
from tests.factories import WORKLOAD, measured, study
from tests.log_of import save_document


def absent(status: str) -> Result:
    return Result(
        configuration="x/cpu", engine="x", variant=None, device="cpu", workload=WORKLOAD, status=status  # type: ignore[arg-type]
    )  # fmt: skip


def different() -> Result:
    return measured("tf/cpu", 0.01, parity=ParityCheck("fail", "off"))


@pytest.mark.parametrize(
    ("results", "code"),
    [
        ([measured("torch/cpu", 0.01)], 0),
        ([measured("torch/cpu", 0.01), absent("unavailable")], 0),
        ([measured("torch/cpu", 0.01), absent("failed")], 1),
        ([measured("torch/cpu", 0.01), different()], 1),
        ([absent("unavailable")], 4),
        ([absent("unavailable"), absent("failed")], 1),
        ([measured("torch/cpu", 0.01), absent("failed"), absent("interrupted")], 130),
    ],
    ids=["ok", "unavailable", "failed", "different", "nothing measured", "only failures", "interrupted"],
)
def test_exit_codes(results: list[Result], code: int) -> None:
    assert exit_code(study(*results)) == code


@pytest.mark.parametrize(
    ("options", "repeats"),
    [({}, True), ({"format": "json"}, False), ({"output": Path("study.txt")}, False)],
    ids=["table", "json", "file"],
)
def test_only_a_table_on_the_terminal_repeats_the_warnings(options: dict[str, Any], repeats: bool) -> None:
    assert repeats_warnings_of(OutputOptions(**options)) is repeats


def test_parity_only_needs_a_passed_check() -> None:
    assert exit_code(study(absent("ok")), parity_only=True) == 4
    passed = absent("ok")
    passed.parity = ParityCheck("pass")
    assert exit_code(study(passed), parity_only=True) == 0


@pytest.mark.parametrize(
    "arguments",
    [
        ["report", "x"],
        ["diff", "x", "last"],
        ["diff", "last", "x"],
        ["merge", "last", "x"],
        ["merge", "last", "last"],
        ["show", "x"],
        ["explain", "x"],
        ["explain", "last"],
        ["plot", "x"],
    ],
    ids=" ".join,
)
def test_a_failed_command_leaves_no_file(arguments: list[str], own_folders: Path) -> None:
    """The study `last` has one row, so it cannot be explained or merged with itself."""
    save_document(Store(own_folders / "results"), study(measured("torch/cpu", 0.01)))
    output = own_folders / "x.html"
    refused(*arguments, "--output", output)
    assert not output.exists()
    output.write_text("as it was")
    refused(*arguments, "--output", output)
    assert output.read_text() == "as it was"


@pytest.mark.parametrize("command", [["report", "last"], ["diff", "last", "last"], ["show", "last"], ["history"]])
def test_an_output_that_cannot_be_written_is_bad_input(command: list[str], own_folders: Path) -> None:
    save_document(Store(own_folders / "results"), study(measured("torch/cpu", 0.01)))
    assert "cannot write --output" in refused(*command, "--output", own_folders / "no" / "x.html")


def test_a_result_that_is_nowhere_else_is_printed_if_its_file_cannot_be_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = OutputOptions(output=tmp_path / "removed" / "result.txt")
    with pytest.raises(PolybenchError, match="cannot write"):
        print_and_exit("the table\n", options, None, "saved", 0)
    assert capsys.readouterr().out == "the table\n"
    with pytest.raises(PolybenchError, match="cannot write"):
        print_and_exit("the table\n", options, Store(tmp_path), "saved; show it", 0)
    printed = capsys.readouterr()
    assert printed.out == ""
    assert "saved; show it" in printed.err


@pytest.mark.parametrize(
    ("option", "value", "problem"),
    [
        ("--columns", "nope", "unknown column 'nope'"),
        ("--format", "pdf", "unknown format 'pdf'"),
        ("--output", "missing/result.txt", "cannot write --output missing/result.txt: No such file or directory; name"),
        ("--output", ".", "cannot write --output .: Is a directory"),
    ],
)
def test_a_dry_run_refuses_an_output_that_the_run_would_refuse(
    option: str, value: str, problem: str, own_folders: Path
) -> None:
    (own_folders / "study.toml").write_text('engines = ["fake"]\ndata = "synthetic"\n')
    for command in (("compare", "--engines", "fake", "--data", "synthetic"), ("run", own_folders / "study.toml")):
        assert problem in refused(*command, "--dry-run", option, value)


@pytest.mark.parametrize(("codes", "code"), [((0, 0), 0), ((4, 0), 4), ((0, 1), 1), ((1, 130), 130), ((130, 1), 130)])
def test_a_command_exits_with_the_most_severe_code(codes: tuple[int, int], code: int) -> None:
    with pytest.raises(typer.Exit) as ended:
        print_and_exit("", OutputOptions(quiet=True), None, "", *codes)
    assert ended.value.exit_code == code


@pytest.mark.parametrize(
    ("version", "interrupted", "code"), [("b", False, 0), (None, False, 4), (None, True, 130), ("b", True, 130)]
)
def test_exit_codes_of_a_bisection(
    version: str | None, interrupted: bool, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    document = search(["a", "b"], [], lambda version: BisectPair(version=version, study="s", ratio=1.0))
    document = msgspec.structs.replace(document, version=version, interrupted=interrupted)
    monkeypatch.setattr("polybench.experiments.bisect.run_bisect", lambda *_, **__: document)
    printed("bisect", "1", "2", "--package", "torch", "--engines", "torch", "--format", "json", code=code)
