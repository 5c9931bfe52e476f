"""The pages of `polybench view`: what is saved is shown, found and compared; nothing in it is a program."""

from __future__ import annotations

import html
import re
from pathlib import Path

import msgspec
import pytest

from polybench.core.document.study import StudyDocument, to_json
from polybench.page.listing import ROWS
from polybench.report.saved_studies import Store
from polybench.viewing.answers import MOST_PARTS, Answers
from tests.factories import measured, saved, study
from tests.page.test_page import HOSTILE, hostile_study
from tests.plots.documents import full_layers, full_study, full_sweep


@pytest.fixture(autouse=True)
def needed() -> None:
    pytest.importorskip("plotly", reason="plotly is not installed")
    pytest.importorskip("jinja2", reason="jinja2 is not installed")


def begun(number: int, model: str = "lenet", hostname: str = "host") -> StudyDocument:
    """A small study of its own minute."""
    one = study(measured("torch/cpu", 0.01))
    clock = f"{number // 60:02}:{number % 60:02}"
    return msgspec.structs.replace(
        one,
        id=f"20250101-{clock.replace(':', '')}00-abcd",
        created=f"2025-01-01T{clock}:00Z",
        settings=msgspec.structs.replace(one.settings, model=model),
        host=msgspec.structs.replace(one.host, hostname=hostname),
    )


def text(answers: Answers, target: str) -> str:
    answer = answers.to(target)
    assert answer.status == 200, answer.page.text
    return answer.page.text


def names(page: str) -> list[str]:
    return re.findall(r'name="id" value="([^"]*)"', page)


def test_the_newest_are_first_and_pages_lead_to_the_oldest(tmp_path: Path) -> None:
    store = Store(tmp_path)
    for number in range(2 * ROWS + 3):
        store.save(begun(number))
    answers = Answers(store)
    first, last = text(answers, "/"), text(answers, "/?page=3")
    assert "103 studies, page 1 of 3." in first
    assert names(first)[0] == begun(102).id
    assert len(names(first)) == ROWS
    assert names(last) == [begun(2).id, begun(1).id, begun(0).id]
    assert 'href="/?page=2" rel="next"' in first
    assert 'rel="next"' not in last
    for number in ("99", "0", "-1", "x", "9" * 5000, "٣"):
        assert names(text(answers, f"/?page={number}"))  # none is an error


def test_filters_are_those_of_the_command_and_stay_in_the_links(tmp_path: Path) -> None:
    store = Store(tmp_path)
    for number in range(ROWS + 10):
        store.save(begun(number, hostname="a&b" if number else "other"))
    store.save(begun(200, model="rosetta"))
    answers = Answers(store)
    page = text(answers, "/?model=lenet&host=a%26b&engine=&since=2025-01-01&version=")
    assert f"{ROWS + 9} of {ROWS + 11} studies" in page
    (link,) = re.findall(r'href="([^"]*)" rel="next"', page)
    assert names(text(answers, html.unescape(link))) == [begun(number).id for number in range(9, 0, -1)]
    assert 'name="host" value="a&amp;b"' in page
    assert "None of them is like that" in text(answers, "/?engine=flux")
    assert "version &#39;2.13&#39;: write name=number" in answers.to("/?version=2.13").page.text


def test_an_empty_folder_says_what_makes_a_study(tmp_path: Path) -> None:
    assert "polybench compare" in text(Answers(Store(tmp_path / "none")), "/")
    assert "No ranked cell" in text(Answers(Store(tmp_path / "none")), "/history")


def test_what_cannot_be_read_is_listed_and_not_shown(tmp_path: Path) -> None:
    (tmp_path / "20250101-000000-dead.json").write_text("{")
    answers = Answers(Store(tmp_path))
    assert "unreadable: " in text(answers, "/")
    assert " disabled>" in text(answers, "/")
    answer = answers.to("/report?id=20250101-000000-dead")
    assert answer.status == 400
    assert "cannot read the study" in answer.page.text


def test_a_report_has_what_belongs_to_the_study_and_a_way_back(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.save(full_study())
    store.save(full_layers(full_study()))
    page = text(Answers(store), f"/report?id={full_study().id}")
    assert "tf is 1.25" in page
    assert "Time of each layer" in page
    assert '<a class="brand" href="/">' in page
    assert "asks no server" not in page


def test_several_studies_and_a_sweep_are_one_report(tmp_path: Path) -> None:
    store = Store(tmp_path)
    two = [full_study(), saved(full_study(), batch_size=256)]
    for one in (*two, full_sweep()):
        store.save(one)
    answers = Answers(store)
    assert "Throughput of a sweep" in text(answers, f"/report?id={full_sweep().id}")
    assert full_sweep().id in text(answers, "/")
    page = text(answers, f"/report?id={two[0].id}&id={two[1].id}&id={full_sweep().id}")
    assert "3 reports" in page
    assert "Step times side by side" in page
    assert answers.to("/report").status == 400
    many = "&".join(f"id={number}" for number in range(MOST_PARTS + 1))
    assert "choose 1 to 12" in answers.to(f"/report?{many}").page.text


def test_a_difference_is_from_the_older_to_the_newer_and_can_be_turned(tmp_path: Path) -> None:
    store = Store(tmp_path)
    old, new = begun(1), begun(2)
    new.results[0] = measured("torch/cpu", 0.02)
    store.save(old)
    store.save(new)
    answers = Answers(store)
    page = text(answers, f"/diff?id={new.id}&id={old.id}")
    assert 'class="change slower"' in page
    (turned,) = re.findall(r'href="(/diff[^"]*)"', page)
    assert 'class="change faster"' in text(answers, html.unescape(turned))
    assert "choose two studies" in answers.to(f"/diff?id={old.id}").page.text
    # Of two files with one ID each is itself.
    new.results[0] = measured("torch/cpu", 0.04)
    (tmp_path / "copy.json").write_bytes(to_json(new))
    page = text(answers, f"/diff?a={new.id}&b=copy")
    assert 'class="change slower"' in page
    (turned,) = re.findall(r'href="(/diff[^"]*)"', page)
    assert 'class="change faster"' in text(answers, html.unescape(turned))


def test_cells_over_time_have_a_figure_and_a_row_a_study(tmp_path: Path) -> None:
    store = Store(tmp_path)
    for number in range(5):
        store.save(begun(number))
    store.save(begun(9, model="rosetta"))
    (tmp_path / "20250120-000000-dead.json").write_text("{")
    assert "6 of 6 studies" in text(Answers(store), "/history")
    page = text(Answers(store), "/history?model=lenet")
    assert "5 of 5 studies" in page
    assert "5 studies, in numbers" in page
    assert 'data-figure="s1-history"' in page
    assert 'data-figure="s2-history"' not in page


def test_every_text_of_a_study_and_of_an_address_is_escaped(tmp_path: Path) -> None:
    store = Store(tmp_path)
    hostile = msgspec.structs.replace(hostile_study(), id="20250101-000000-bad")
    store.save(hostile)
    store.save(saved(hostile, "20250102-000000-bad"))
    (tmp_path / f"{HOSTILE.replace('/', '_')}.json").write_text("{}")
    answers = Answers(store)
    quoted = "%3Cscript%3Ealert(1)%3C%2Fscript%3E%22%27"
    for target in (
        "/", "/history", f"/?model={quoted}", f"/?since={quoted}", f"/{quoted}", f"/report?id={quoted}",
        "/report?id=20250101-000000-bad", f"/history?host={quoted}",
        "/diff?id=20250101-000000-bad&id=20250102-000000-bad",
    ):  # fmt: skip
        page = answers.to(target).page.text
        assert "<script>alert" not in page, target
    assert "&lt;script&gt;alert(1)" in text(answers, "/")
