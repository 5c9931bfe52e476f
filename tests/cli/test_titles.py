"""Titles and tags: options of commands that measure, saved in documents, shown by and selecting in the others."""

from __future__ import annotations

import time
from pathlib import Path
from unittest.mock import patch

import pytest

import polybench
from polybench.data import synthetic
from tests.commands import FAST, invoke, printed, printed_json, refused

NAMES = ("--title", "Nightly  run", "--tag", "ci", "--tag", "lr=0.1", "--tag", "ci")
STUDY_FILE = """
engines = ["fake"]
data = "synthetic"
batch_size = 16
processes = 1
rounds_per_process = 1
steps_per_round = 3
title = "A file"
tags = ["file"]
"""


@pytest.fixture(scope="module")
def folder(shared_folders: Path) -> Path:
    """Measure once for all tests: a study, its repetition, a study file, a sweep and an overhead."""
    folder = shared_folders / "titles"
    where = ("-q", "--results", folder)
    (shared_folders / "study.toml").write_text(STUDY_FILE)
    cheap = (
        "--data",
        "synthetic",
        "--rounds-per-process",
        "1",
        "--steps-per-round",
        "3",
        "--no-metrics",
        "--no-parity",
    )
    with patch.dict(synthetic.IMAGES, {"train": 600}):
        for command in (
            ("compare", "--engines", "fake", *FAST, *NAMES),
            ("run", "last", "--tag", "again"),
            ("run", shared_folders / "study.toml", "--title", "Not the file's", "--tag", "own"),
            (
                "sweep",
                "--engines",
                "fake",
                "--batch-size",
                "8,16",
                "--quick",
                *cheap,
                "--title",
                "Sizes",
                "--tag",
                "s/1",
            ),
            (
                "overhead",
                "--engines",
                "fake",
                "--batch-size",
                "8,16",
                "--quick",
                *cheap,
                "--title",
                "Cost",
                "--tag",
                "o",
            ),
        ):
            assert invoke(*command, *where).exit_code == 0
            time.sleep(1)  # `last` and lists order studies by their second
    return folder


def found(folder: Path, *options: str) -> dict[str, list[str]]:
    """Return the tags by title of the listed studies without points of sweeps."""
    rows = printed_json("list", "--results", folder, *options)
    return {row["title"]: row["tags"] for row in rows if row["sweep"] is None}


def test_titles_and_tags_are_saved_and_listed(folder: Path) -> None:
    listed = {
        "Nightly run": ["ci", "lr=0.1", "again"],  # the repetition, which comes after the original
        "Not the file's": ["file", "own"],
        "Sizes": ["s/1"],
        "Cost": ["o"],
    }
    assert found(folder) == listed
    text = printed("list", "--results", folder)
    for title, tags in listed.items():
        assert f"{title} #{' #'.join(tags)}" in text


@pytest.mark.parametrize(
    ("options", "titles"),
    [
        (["--tag", "ci"], {"Nightly run"}),
        (["--tag", "lr=*", "--tag", "again"], {"Nightly run"}),
        (["--title", "N*"], {"Nightly run", "Not the file's"}),
        (["--title", "N*", "--tag", "file"], {"Not the file's"}),
        (["--tag", "s/1"], {"Sizes"}),
        (["--tag", "o", "--engine", "fake"], {"Cost"}),
        (["--tag", "c"], set()),
    ],
)
def test_titles_and_tags_select(options: list[str], titles: set[str], folder: Path) -> None:
    assert set(found(folder, *options)) == titles


def test_points_of_a_sweep_have_its_tags(folder: Path) -> None:
    rows = printed_json("list", "--results", folder, "--tag", "s/1")
    assert sorted(row["kind"] for row in rows) == ["study", "study", "sweep"]


def test_each_document_shows_its_title_and_tags(folder: Path) -> None:
    ids = {row["title"]: row["id"] for row in printed_json("list", "--results", folder)}
    for title, line in (("Nightly run", "#ci #lr=0.1 #again"), ("Sizes", "#s/1"), ("Cost", "#o")):
        for format in ("table", "markdown", "latex"):
            shown = printed("show", ids[title], "--format", format, "--results", folder)
            assert f"{title} {line}" in shown.replace("\\", "")
    pytest.importorskip("plotly", reason="plotly is not installed")
    page = polybench.report("overhead-last", ids["Nightly run"], results=folder)
    for text in (">Cost<", ">Nightly run<", "#ci #lr=0.1 #again"):
        assert text in page


def test_show_prints_the_newest_document_with_a_title_or_tag(folder: Path) -> None:
    for name, options, title in (
        ("last", ["--tag", "ci"], "Nightly run"),
        ("last", ["--title", "Not*", "--tag", "own"], "Not the file's"),
        ("sweep-last", ["--tag", "s/1"], "Sizes"),
        ("overhead-last", ["--title", "Cost"], "Cost"),
    ):
        assert printed_json("show", name, *options, "--results", folder)["title"] == title
    assert printed_json("show", "last", "--tag", "ci", "--results", folder)["tags"] == ["ci", "lr=0.1", "again"]
    for name, message in (
        ("last", "no saved study has this title and these tags: `polybench list` shows all"),
        ("2026", "--title and --tag with 2026: expected one of last, sweep-last, overhead-last: leave them out"),
    ):
        assert message in refused("show", name, "--tag", "none", "--results", folder)


def test_a_history_shows_and_selects_titles_and_tags(folder: Path) -> None:
    ids = {tuple(row["tags"]): row["id"] for row in printed_json("list", "--results", folder)}
    assert f"Nightly run #ci #lr=0.1 #again: {ids['ci', 'lr=0.1', 'again']}\n" in printed(
        "history", "--results", folder
    )
    selected = polybench.history(title="Night*", tags=["again"], results=folder).rows()
    assert [row["tags"] for row in selected] == [["ci", "lr=0.1", "again"]]
    assert len(printed("history", "--tag", "ci", "--format", "csv", "--results", folder).splitlines()) == 3


def test_the_page_of_all_studies_shows_titles_and_tags(folder: Path, tmp_path: Path) -> None:
    pytest.importorskip("jinja2", reason="jinja2 is not installed")
    printed("report", "--all", "-o", tmp_path, "--results", folder)
    page = (tmp_path / "index.html").read_text()
    assert page.count(">Nightly run</a>") == 2
    assert "<small>#again</small>" in page


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--tag", "two words"], "--tag 'two words': expected up to 60 letters, digits and . _ : = / + - only"),
        (["--tag", ""], "--tag ''"),
        (["--tag", "a,b"], "--tag 'a,b'"),
        (["--tag", "x" * 61], "expected up to 60"),
        (["--title", " "], "--title ' ': expected text, such as --title 'nightly run'"),
    ],
)
def test_bad_titles_and_tags_are_refused(options: list[str], message: str) -> None:
    assert message in refused("compare", "--engines", "fake", *options)


def test_bad_tags_of_a_study_file_have_their_line(tmp_path: Path) -> None:
    (tmp_path / "study.toml").write_text('engines = ["fake"]\ntags = ["two words"]\n')
    assert "study.toml:2: tags" in refused("run", tmp_path / "study.toml")


def test_an_interrupted_run_keeps_its_title(folder: Path) -> None:
    message = refused(
        "sweep", "--engines", "fake", "--batch-size", "8,16", "--resume", "--tag", "new", "--results", folder
    )
    assert message == "--tag: an interrupted run keeps its title and tags: leave it out"
