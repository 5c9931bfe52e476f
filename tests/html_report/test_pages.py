"""`polybench report --all`: the list, reports, differences of neighbours and history, as files."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from polybench.schema.study import StudyDocument
from polybench.storage.store import Store
from tests.commands import invoke, printed, refused
from tests.factories import measured, points_over_threads, saved_again, study
from tests.figures.documents import full_layers, full_study
from tests.html_report.test_report import MALICIOUS, malicious_study
from tests.log_of import save_document, save_sweep


@pytest.fixture(autouse=True)
def require_extras() -> None:
    pytest.importorskip("plotly", reason="plotly is not installed")
    pytest.importorskip("jinja2", reason="jinja2 is not installed")


def study_at(minute: int, seconds: float = 0.01, hostname: str = "host", **settings: str) -> StudyDocument:
    """Create a small study that started in this minute of an hour."""
    version = "2.13.0" if seconds == 0.01 else "2.14.0"
    one = study(measured("torch/cpu", seconds, versions={"torch": version}))
    return msgspec.structs.replace(
        one,
        id=f"20250101-00{minute:02}00-abcd",
        created=f"2025-01-01T00:{minute:02}:00Z",
        settings=msgspec.structs.replace(one.settings, **settings),
        host=msgspec.structs.replace(one.host, hostname=hostname),
    )


def save(folder: Path, *documents: Any) -> Store:
    store = Store(folder / "results")
    for document in documents:
        save_document(store, document)
    return store


def write_pages(folder: Path) -> Path:
    """Run the command; return the folder of pages."""
    pages = folder / "pages"
    printed("report", "--all", "-o", pages, "--results", folder / "results")
    return pages


def listed(pages: Path) -> list[str]:
    """Return the IDs of the list's links to reports, in their order."""
    return re.findall(r'<th scope="row"><a href="reports/([^"]+)\.html">', (pages / "index.html").read_text())


def diffs(pages: Path) -> set[str]:
    return {path.stem for path in (pages / "diffs").glob("*")}


def test_newest_studies_are_first_and_every_link_leads_to_a_file(tmp_path: Path) -> None:
    studies = [study_at(minute) for minute in range(5)]
    save(tmp_path, *studies)
    pages = write_pages(tmp_path)
    assert listed(pages) == [one.id for one in reversed(studies)]
    files = [*pages.rglob("*.html")]
    assert len(files) == 2 + 5 + 4  # list and history, reports, differences
    for file in files:
        links = re.findall(r'href="([^"#]+)"', file.read_text())
        assert links, file
        for link in links:
            assert (file.parent / link).is_file(), (file, link)


def test_every_page_has_the_policy_of_reports_and_plotly_only_for_figures(tmp_path: Path) -> None:
    save(tmp_path, study_at(1), study_at(2))
    printed("report", "last", "-o", tmp_path / "report.html", "--results", tmp_path / "results")
    texts = {path: path.read_text() for path in [tmp_path / "report.html", *write_pages(tmp_path).rglob("*.html")]}
    assert (
        len({re.findall(r'http-equiv="Content-Security-Policy" content="[^"]*"', one)[0] for one in texts.values()})
        == 1
    )
    with_plotly = {path.parent.name or path.name for path, text in texts.items() if 'id="plotly"' in text}
    assert {path.name for path, text in texts.items() if 'id="plotly"' not in text} == {
        "index.html", f"{study_at(1).id}--{study_at(2).id}.html"
    }  # fmt: skip
    assert with_plotly


def test_a_study_is_compared_with_the_one_before_it_of_its_workload_and_machine(tmp_path: Path) -> None:
    old, other_model, other_host = study_at(1), study_at(2, model="small-vgg"), study_at(3, hostname="other")
    new, newest, other_pass = study_at(4, seconds=0.02), study_at(5, seconds=0.02), study_at(6, pass_="forward")
    save(tmp_path, newest, other_host, new, other_model, old, other_pass)
    pages = write_pages(tmp_path)
    assert diffs(pages) == {f"{old.id}--{new.id}", f"{new.id}--{newest.id}"}
    page = (pages / "diffs" / f"{old.id}--{new.id}.html").read_text()
    assert re.findall(r'<span class="change ([^"]*)">', page) == ["slower"]
    rows = (pages / "index.html").read_text().split("<tr ")[1:]
    assert [re.findall(r'<span class="change [^"]*">([^<]*)', row) for row in rows] == [
        [], ["1 cannot tell"], ["1 slower"], [], [], [],
    ]  # fmt: skip


def test_a_sweep_or_overhead_is_one_line_and_links_to_the_reports_of_its_points(tmp_path: Path) -> None:
    sweep, overhead = "sweep-20250101-000000-abcd", "overhead-20250101-000000-abcd"
    store = save(tmp_path)
    save_sweep(store, sweep, points_over_threads())
    save_sweep(store, overhead, [({"batch_size": 128}, points_over_threads()[0][1])])
    pages = write_pages(tmp_path)
    assert sorted(listed(pages)) == [overhead, sweep]
    assert diffs(pages) == set()
    report = (pages / "reports" / f"{sweep}.html").read_text()
    assert re.findall(r'<dd><a href="([^"]*)\.html">', report) == [f"{sweep}.{number}" for number in range(3)]
    assert (pages / "reports" / f"{sweep}.1.html").exists()
    text = (pages / "index.html").read_text()
    assert "lenet, 3 points over threads 1, 2, 4" in text
    assert 'data-words="torch 2.13.0"' in text  # the versions of its points


def test_a_report_contains_the_related_documents(tmp_path: Path) -> None:
    save(tmp_path, full_study(), full_layers(full_study()))
    page = (write_pages(tmp_path) / "reports" / f"{full_study().id}.html").read_text()
    assert "tf is 1.25" in page
    assert "Time of each layer" in page
    assert '<a class="brand" href="../index.html">' in page


def test_history_has_a_figure_and_a_row_per_study(tmp_path: Path) -> None:
    save(tmp_path, *(study_at(minute, 0.01 if minute < 3 else 0.02) for minute in range(7)))
    page = (write_pages(tmp_path) / "history.html").read_text()
    assert page.count("Table of 7 studies") == 1
    assert 'data-figure="s1-history"' in page
    assert re.search(rf"slower by a factor of 2.00 \(1\.\d+ to 2\.\d+\) since {study_at(3).id}", page)


@pytest.mark.parametrize("content", [b"{\n", None], ids=["its head", "its results"])
def test_a_damaged_study_is_named_and_the_others_are_written(content: bytes | None, tmp_path: Path) -> None:
    store = save(tmp_path, *(study_at(minute) for minute in (1, 2, 3)))
    damaged = store.log_path(study_at(2).id)
    damaged.write_bytes(content or damaged.read_bytes().replace(b'"event":"block"', b'"event":"blok"'))
    done = invoke("report", "--all", "-o", tmp_path / "pages", "--results", store.folder)
    assert done.exit_code == 0
    (warning,) = [line for line in done.stderr.splitlines() if line.startswith("warning: cannot read")]
    assert study_at(2).id in warning
    assert listed(tmp_path / "pages") == [study_at(3).id, study_at(1).id]
    assert diffs(tmp_path / "pages") == {f"{study_at(1).id}--{study_at(3).id}"}
    assert f'<th scope="row">{study_at(2).id}</th>' in (tmp_path / "pages" / "index.html").read_text()


def test_pages_are_replaced_and_other_files_remain(tmp_path: Path) -> None:
    save(tmp_path, study_at(1))
    pages = write_pages(tmp_path)
    others = [pages / "CNAME", pages / "reports" / "notes.html"]
    for other in others:
        other.write_text("mine")
    save(tmp_path, study_at(2))
    write_pages(tmp_path)
    assert listed(pages) == [study_at(2).id, study_at(1).id]
    assert [other.read_text() for other in others] == ["mine", "mine"]


@pytest.mark.parametrize("name", ["index.html", "history.html", f"reports/{study_at(1).id}.html"])
def test_a_foreign_file_is_never_replaced(name: str, tmp_path: Path) -> None:
    save(tmp_path, study_at(1))
    foreign = tmp_path / "pages" / name
    foreign.parent.mkdir(parents=True)
    foreign.write_text("<!doctype html>\n<title>mine</title>")
    message = refused("report", "--all", "-o", tmp_path / "pages", "--results", tmp_path / "results")
    assert f"{foreign} is not a page of polybench and would be lost: name another folder" in message
    assert foreign.read_text() == "<!doctype html>\n<title>mine</title>"
    assert [path for path in (tmp_path / "pages").rglob("*") if path.is_file()] == [foreign]


def test_invalid_combinations_are_bad_input(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    store = save(tmp_path, study_at(1))
    where = ("--results", store.folder)
    (tmp_path / "file").write_text("mine")
    for arguments, message in (
        ((), "expected IDs, such as polybench report last, or --all"),
        (("last", "--all"), "last with --all: expected either IDs or --all"),
        (("--all", "--anonymous"), "--anonymous with --all: expected IDs"),
        (("--all", "--price", "cpu=1"), "--price with --all: expected IDs"),
        (("--all", "-o", tmp_path / "file"), f"cannot write pages to {tmp_path / 'file'}: "),
        (("--all", "-o", tmp_path / "file" / "below"), f"cannot write pages to {tmp_path / 'file' / 'below'}: "),
    ):
        assert message in refused("report", *arguments, *where)
    assert "no saved studies in none: create one with polybench compare" in refused(
        "report", "--all", "--results", "none"
    )
    assert {path.name for path in tmp_path.iterdir()} == {"file", "results"}
    assert (tmp_path / "file").read_text() == "mine"
    printed("report", "--all", *where)
    assert (tmp_path / "report" / "index.html").is_file()


@pytest.mark.parametrize("what", ["last", "--all"])
def test_open_shows_the_page_in_the_browser(what: str, tmp_path: Path) -> None:
    save(tmp_path, study_at(1))
    browser = tmp_path / "browser"
    browser.write_text(f'#!/bin/sh\nprintf %s "$1" > "{tmp_path}/address"\n')
    browser.chmod(0o755)
    output = tmp_path / "a folder" / "p"
    output.parent.mkdir()
    command = [sys.executable, "-m", "polybench", "report", what, "--open", "-o", str(output)]
    environment = os.environ | {"POLYBENCH_RESULTS": str(tmp_path / "results")}
    subprocess.run(command, check=True, env=environment | {"BROWSER": f"{browser} %s"}, capture_output=True)
    page = output if what == "last" else output / "index.html"
    assert (tmp_path / "address").read_text() == page.as_uri()
    done = subprocess.run(
        command, env=environment | {"BROWSER": "false", "PATH": ""}, capture_output=True, text=True, check=True
    )
    assert f"warning: no browser found; open {page.as_uri()}" in done.stderr


def test_texts_of_studies_are_escaped(tmp_path: Path) -> None:
    study_toml = f"# {MALICIOUS}\n"
    malicious = msgspec.structs.replace(malicious_study(), id="20250101-000000-bad", study=study_toml)
    for result in malicious.results[-2:]:
        result.engine = MALICIOUS + result.engine
    store = save(tmp_path, malicious, saved_again(malicious, "20250102-000000-bad"))
    (store.folder / f"{MALICIOUS.replace('/', '_')}.json").write_text("{}")
    pages = write_pages(tmp_path)
    assert len(diffs(pages)) == 1
    for page in pages.rglob("*.html"):
        text = page.read_text()
        assert "<script>alert" not in text, page
        assert "&lt;script&gt;alert(1)" in text, page


def test_a_missing_package_is_reported_before_anything_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from polybench.html_report.page import plotly_script

    store = save(tmp_path, study_at(1))
    plotly_script.cache_clear()
    monkeypatch.setitem(sys.modules, "plotly.offline", None)
    message = refused("report", "--all", "-o", tmp_path / "pages", "--results", store.folder)
    assert "pip install 'polybench-dl[report]'" in message
    assert not (tmp_path / "pages").exists()
